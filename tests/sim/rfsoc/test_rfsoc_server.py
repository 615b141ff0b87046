"""QICK's own Pyro4 server with a twin as its board, as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from libraries import skip_without
from needs import needs

from sim.twins.rfsoc import NotSimulated

skip_without("qick")
skip_without("Pyro4")
skip_without("psutil")


@pytest.fixture
@needs("process")
def served():
    """Ready line and process of a served loopback."""
    with subprocess.Popen(
        [sys.executable, "-m", "sim.twins.rfsoc", "sim://loopback?noise=off&delay_ns=0", "--name", "board"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield json.loads(process.stdout.readline()), process
        finally:
            process.stdin.close()
            process.stderr.read()
            process.wait(timeout=60)


@pytest.mark.long
@pytest.mark.socket
def test_a_program_runs_over_qicks_own_proxy_and_the_server_ends_with_its_input(served, programs, capsys):
    from qick import pyro

    ready, process = served
    assert ready["ready"]
    assert ready["simulated"]
    assert ready["url"] == f"qick://127.0.0.1:{ready['port']}/board"
    soc, soccfg = pyro.make_proxy("127.0.0.1", ready["port"], "board", remote_traceback=False)
    with soc:
        program = programs.Averager(soccfg, {"reps": 3, "freq": 300, "soft_avgs": 2})
        (waveform,) = program.acquire_decimated(soc, progress=False)
        (real,), (imaginary,) = programs.Averager(
            soccfg, {"reps": 500, "freq": 300, "offset": 30, "readout_length": 40}
        ).acquire(soc, progress=False)
        assert waveform.shape == (3, 2, 200)
        assert abs(real[0] + 1j * imaginary[0]) == pytest.approx(1934, rel=0.01)
        assert (soc.simulated, soc.identity) == (True, "sim-loopback-0001")
        with pytest.raises(NotSimulated, match=r"QickSoc\.get_ddr4 \(the DDR4 buffer\) is not simulated"):
            soc.get_ddr4(100)
        with pytest.raises(NotSimulated, match=r"QickSoc\.set_iq "):
            soc.set_iq(ch=0, f=1.0, i=1.0, q=0.0)
        with pytest.raises(NotSimulated, match=r"QickSoc\.tproc "):
            soc.tproc  # noqa: B018
        assert not hasattr(soc, "tproc")
        soc.set_knob("fault", "dead_board")
        with pytest.raises(ConnectionError):
            soc.clocks_locked()
    process.stdin.close()
    assert process.wait(timeout=60) == 0


@pytest.mark.process
@pytest.mark.parametrize("words", [["sim://moon"], ["sim://loopback?gain=loud"]])
def test_an_address_that_names_nothing_ends_with_two(words):
    done = subprocess.run(
        [sys.executable, "-m", "sim.twins.rfsoc", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "error: " in done.stderr


@pytest.mark.long
def test_a_port_that_is_taken_ends_with_one(served):
    ready, _ = served
    done = subprocess.run(
        [sys.executable, "-m", "sim.twins.rfsoc", "sim://loopback", "--port", str(ready["port"])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot serve: " in done.stderr
