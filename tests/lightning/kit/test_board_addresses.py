import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from needs import needs

import lightning
from lightning import LightningControl, LightningSignalProcessing, errors, from_slide
from lightning.kit import connection, profiles
from lightning.kit.devices import board
from lightning.kit.devices.deadline import Patience
from lightning.kit.devices.identity import format_board_name, read_identity


def test_an_address_needs_a_scheme():
    for wrong in ("kit", "sim:kit", "sim://", "://kit", "", "SIM://kit"):
        with pytest.raises(errors.AddressError, match="is not a valid address of a device"):
            lightning.connect(wrong)


def test_an_unknown_scheme_tells_the_known():
    with pytest.raises(errors.UnknownScheme, match=r"visa://.*qick://, replay://, sim://"):
        lightning.connect("visa://kit")


def test_a_wrong_option_of_a_twin_is_an_error_of_the_address():
    pytest.importorskip("qick", reason="the twin is a QickConfig: pip install 'lightbed[kit]'")
    for wrong in ("sim://nothing", "sim://kit?profile=zcu999"):
        with pytest.raises(errors.AddressError):
            lightning.connect(wrong)


def test_the_twin_says_what_it_is(capsys):
    pytest.importorskip("qick", reason="the twin is a QickConfig: pip install 'lightbed[kit]'")
    soc = lightning.connect("sim://kit")
    assert soc.simulated is True
    reported = capsys.readouterr().err
    assert reported == "sim://kit: SIMULATED device sim-kit-0001, with its factory calibration\n"


def test_a_calibration_that_will_not_be_used_is_not_announced(capsys):
    """The factory's was measured with another firmware than this board's."""
    pytest.importorskip("qick", reason="the twin is a QickConfig: pip install 'lightbed[kit]'")
    lightning.connect("sim://kit?profile=zcu216")
    assert capsys.readouterr().err.endswith(", without a calibration\n")


def test_what_is_announced_is_what_is_found(monkeypatch):
    from lightning.kit.calibration import store

    def unusable(soc):
        raise errors.StaleCalibration("it is old", hint="Measure")

    soc = SimpleNamespace(identity="x", factory_calibration=lambda: {"device": "x"})
    monkeypatch.setattr(store, "find", lambda soc: None)
    assert connection._describe_simulated(soc) == "SIMULATED device x, without a calibration"
    monkeypatch.setattr(store, "find", unusable)
    assert connection._describe_simulated(soc) == "SIMULATED device x, with a calibration that cannot be used"
    monkeypatch.setattr(store, "find", lambda soc: SimpleNamespace(kind="calibration"))
    assert connection._describe_simulated(soc) == "SIMULATED device x, with its calibration"


def test_others_bring_their_own_schemes(monkeypatch):
    pytest.importorskip("qick", reason="guards are QickConfigs: pip install 'lightbed[kit]'")
    from importlib.metadata import EntryPoint

    ours = [
        EntryPoint("bench", "sim.twins.rfsoc:connect", connection.GROUP),
        EntryPoint("sim", "os:getcwd", connection.GROUP),
    ]
    monkeypatch.setattr(connection, "entry_points", lambda group: ours if group == connection.GROUP else [])
    assert {"bench", "qick", "replay", "sim"} == set(connection.find_schemes())
    assert connection.find_schemes()["sim"].value == "sim.twins.rfsoc:connect"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("qick://10.0.0.7", ("10.0.0.7", 8888, "myqick", False)),
        ("qick://10.0.0.7:9000/kit", ("10.0.0.7", 9000, "kit", False)),
        ("qick:///kit", ("127.0.0.1", 8888, "kit", True)),
        ("qick://localhost", ("localhost", 8888, "myqick", True)),
        ("qick://[::1]:1", ("[::1]", 1, "myqick", True)),
        ("qick://127.8.9.1", ("127.8.9.1", 8888, "myqick", True)),
        ("qick://lab-zcu111.example", ("lab-zcu111.example", 8888, "myqick", False)),
    ],
)
def test_addresses_of_boards(text, expected):
    at = board.parse_address(text)
    assert (at.host, at.port, at.name, at.is_loopback) == expected


@pytest.mark.parametrize(
    "text", ["qick://a b", "qick://host:0", "qick://host:70000", "qick://host/a/b", "qick://h:x"]
)
def test_what_is_no_address_of_a_board(text):
    with pytest.raises(errors.AddressError, match=r"qick://HOST:PORT/NAME"):
        board.parse_address(text)


def test_names_of_boards_tell_host_and_firmware():
    assert format_board_name("ZCU111", "Oct 7 2022", "lab") == "ZCU111-Oct 7 2022 at lab"
    assert format_board_name("", "") == "board-unknown"


def test_a_bare_qicksoc_and_the_guarded_one_are_one_device():
    pytest.importorskip("qick", reason="asks QICK: pip install 'lightbed[kit]'")
    from lightning.kit.calibration.store import get_identity
    from lightning.kit.devices.guard import guard_soc

    class Bare:
        def get_cfg(self):
            return profiles.load("lightning-zcu111").make_soccfg().get_cfg()

        def __getitem__(self, key):
            return self.get_cfg()[key]

    assert (
        get_identity(Bare())
        == guard_soc(Bare()).identity
        == read_identity(Bare()).name
        == "ZCU111-Oct 7 2022"
    )


def test_there_is_no_local_board_on_a_computer():
    pytest.importorskip("qick", reason="asks QICK: pip install 'lightbed[kit]'")
    with pytest.raises(
        errors.DeviceGone, match=r"this computer is not an RFSoC board \(QICK has no QickSoc here\)"
    ):
        lightning.connect("qick://local")


def test_on_a_board_the_local_one_is_its_qicksoc(monkeypatch):
    qick = pytest.importorskip("qick", reason="asks QICK: pip install 'lightbed[kit]'")
    from sim.twins import rfsoc

    monkeypatch.setattr(qick, "QickSoc", lambda: rfsoc.connect("sim://kit"), raising=False)
    soc = lightning.connect("qick://local")
    assert (type(soc).__name__, soc.identity) == ("GuardedSoc", "sim-kit-0001")


@pytest.fixture(scope="module")
@needs("process")
def served():
    """Yield the twin behind QICK's own server, in a process of its own."""
    pytest.importorskip("Pyro4", reason="reaches boards: pip install 'lightbed[kit]'")
    pytest.importorskip("qick", reason="reaches boards: pip install 'lightbed[kit]'")
    command = [sys.executable, "-m", "sim.twins.rfsoc", "sim://kit?seed=3"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield {**json.loads(process.stdout.readline()), "pid": process.pid}
        process.stdin.close()
        process.wait(60)


@pytest.mark.long
@pytest.mark.socket
def test_a_board_in_the_network_runs_the_kit(served, capsys):
    soc = lightning.connect(served["url"])
    assert (soc.identity, soc.simulated) == ("sim-kit-0001", True)
    assert "has no authentication" not in capsys.readouterr().err
    waveform = LightningControl(soc, from_slide({"dac_0": 200, "dac_1": 255})).acquire_decimated(soc)
    processing = LightningSignalProcessing()
    processing.plot_waveform(waveform, draw=False)
    assert abs(processing.decode_adc_result - 200) <= 1


@pytest.mark.socket
def test_qicks_own_proxy_takes_the_calibration_of_its_device(served):
    from qick.pyro import make_proxy

    soc, soccfg = make_proxy("127.0.0.1", ns_port=served["port"], proxy_name=served["name"])
    for compiled_for in (soccfg, soc):
        runtime = LightningControl(compiled_for, from_slide({"dac_0": 200, "dac_1": 255, "soft_avgs": 25}))
        assert abs(LightningSignalProcessing().decode(runtime.acquire_decimated(soc)) - 200) <= 1


@pytest.mark.socket
def test_streamed_readout_goes_through_the_network_too(served):
    soc = lightning.connect(served["url"])
    (mean,) = LightningControl(soc, from_slide({"soft_avgs": 2})).acquire(soc)
    assert mean.shape == (2,)


def stop_and_wait(pid: int) -> None:
    """Stop a process and return when every thread of it stands; a signal sent is not yet a signal taken."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 120
    while not all(
        stat.read_text().rpartition(")")[2].split()[0] == "T"
        for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ):
        assert time.monotonic() < deadline, f"process {pid} does not stand"
        os.sched_yield()


@pytest.mark.socket
def test_a_served_board_that_freezes_in_mid_acquisition_is_named(served):
    """The process stands still, as a board does whose power fails: the line stays open and nothing comes."""
    soc = lightning.connect(served["url"])
    runtime = LightningControl(soc, from_slide({"soft_avgs": 3}))
    runtime.acquire_decimated(soc)
    counter = soc.unguarded.get_tproc_counter

    def freeze_then_ask(addr):
        stop_and_wait(served["pid"])
        soc.unguarded.limit_calls(Patience(call_s=0.3))
        return counter(addr)

    soc.unguarded.get_tproc_counter = freeze_then_ask
    soc.set_patience(Patience())
    try:
        with pytest.raises(errors.DeviceGone, match=r"sim-kit-0001: no answer to get_tproc_counter in run 1"):
            runtime.acquire_decimated(soc)
    finally:
        os.kill(served["pid"], signal.SIGCONT)


@pytest.mark.socket
def test_a_served_board_that_goes_is_named(served):
    soc = lightning.connect(served["url"])
    runtime = LightningControl(soc, from_slide({"soft_avgs": 1}))
    soc.set_knob("fault", "dead_board")
    with pytest.raises(errors.DeviceGone, match=r"sim-kit-0001"):
        runtime.acquire_decimated(soc)


@pytest.mark.socket
def test_a_name_that_is_not_served_is_named(served):
    with pytest.raises(errors.DeviceGone, match=r"no board answers at 127.0.0.1:\d+ under the name 'other'"):
        lightning.connect(f"qick://127.0.0.1:{served['port']}/other")


@pytest.mark.socket
def test_a_host_other_than_loopback_brings_one_warning(served, capsys, monkeypatch):
    monkeypatch.setattr(board.BoardAddress, "is_loopback", False)
    lightning.connect(served["url"])
    assert capsys.readouterr().err.count("has no authentication") == 1


@pytest.mark.socket
def test_a_server_that_never_answers_is_given_up(monkeypatch):
    """Something listens and takes what is sent, and says nothing."""
    pytest.importorskip("Pyro4", reason="reaches boards: pip install 'lightbed[kit]'")
    pytest.importorskip("qick", reason="reaches boards: pip install 'lightbed[kit]'")
    monkeypatch.setattr(board, "CONNECT_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held = []
        taker = threading.Thread(target=lambda: held.append(listening.accept()), daemon=True)
        taker.start()
        port = listening.getsockname()[1]
        with pytest.raises(errors.DeviceGone, match="no board answers"):
            lightning.connect(f"qick://127.0.0.1:{port}")
        taker.join(60)
        for connection, _ in held:
            connection.close()


@pytest.mark.socket
def test_nobody_listening_is_named():
    pytest.importorskip("Pyro4", reason="reaches boards: pip install 'lightbed[kit]'")
    pytest.importorskip("qick", reason="reaches boards: pip install 'lightbed[kit]'")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        port = silent.getsockname()[1]
        with pytest.raises(errors.DeviceGone, match=r"nameserver"):
            lightning.connect(f"qick://127.0.0.1:{port}")
