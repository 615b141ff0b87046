"""One rank on its host: framed output, exit codes, counters, and the door for Open MPI."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RANK = Path(__file__).parents[2] / "testbed" / "node" / "rank.py"
pytestmark = pytest.mark.process


def run(*argv, **spec):
    """Run a program as a rank and return its events after `ready`."""
    document = {"argv": argv, "folder": "", "variables": {}, "path": [], "nics": ["lo"]} | spec
    done = subprocess.run(
        [sys.executable, "-IS", RANK],
        input=f"\n\n{json.dumps(document)}\n\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""
    ready, *events = map(json.loads, done.stdout.splitlines())
    assert ready == {"event": "ready"}
    return events


def output(events, stream="stdout"):
    return [each["text"] for each in events if each["event"] == "out" and each["stream"] == stream]


def test_output_is_framed_line_by_line_and_streams_stay_apart():
    events = run("sh", "-c", r"printf 'one\ntwo'; printf '{}\n' >&2; printf '\377\n'")

    assert output(events) == ["one\n", "two\udcff\n"]
    assert output(events, "stderr") == ["{}\n"]
    assert (events[-1]["event"], events[-1]["exit_code"]) == ("rank", 0)
    assert set(events[-1]["nics"]["lo"]) >= {"tx_bytes", "rx_bytes", "tx_dropped"}


def test_a_long_line_arrives_in_pieces():
    events = run(sys.executable, "-c", "print('x' * 200_000)")

    assert "".join(output(events)) == "x" * 200_000 + "\n"
    assert max(map(len, output(events))) <= 1 << 16


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["/nowhere/program"], 127),
        (["/etc"], 126),
    ],
)
def test_exit_codes_are_those_of_a_shell(argv, code):
    events = run(*argv)

    assert events[-1]["exit_code"] == code
    assert bool(output(events, "stderr")) == (code in (126, 127))


def test_the_program_gets_its_folder_variables_path_and_no_input(tmp_path):
    program = tmp_path / "tell"
    program.write_text("#!/bin/sh\necho $PWD $RANK; cat\n")
    program.chmod(0o755)
    events = run("tell", folder=str(tmp_path), variables={"RANK": "3"}, path=[str(tmp_path)])

    assert output(events) == [f"{tmp_path} 3\n"]
    missing = run("pwd", folder=str(tmp_path / "missing"))
    assert run("pwd", folder=str(tmp_path / "missing"), needs_folder=True)[-1]["exit_code"] == 126
    assert output(missing) == [f"{Path.home()}\n"] == [missing[-1]["folder"] + "\n"]


def test_a_process_that_holds_the_pipe_does_not_delay_the_end():
    events = run("sh", "-c", "sleep 20 & echo $!")

    os.kill(int(output(events)[0]), signal.SIGKILL)
    assert events[-1]["exit_code"] == 0


def test_a_command_for_another_host_is_handed_on(tmp_path, monkeypatch):
    copy = tmp_path / "rank.py"  # as on a host: its scratch files stand beside it
    copy.write_bytes(RANK.read_bytes())
    monkeypatch.setitem(globals(), "RANK", copy)
    events = run(
        "sh",
        "-c",
        'test -s "$OMPI_MCA_orte_default_hostfile" && $OMPI_MCA_plm_rsh_agent b "PATH=x; orted" -mca y 1',
        spawns=True,
        hostfile="a slots=1\nb slots=1\n",
    )

    (spawn,) = (each for each in events if each["event"] == "spawn")
    assert spawn == {"event": "spawn", "host": "b", "command": "PATH=x; orted -mca y 1"}
    assert events[-1]["exit_code"] == 0


def test_stop_ends_the_program_which_still_reports():
    process = subprocess.Popen(
        [sys.executable, "-IS", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    document = {"argv": ["sh", "-c", "trap '' TERM; echo on; sleep 60"], "folder": "", "variables": {}}
    process.stdin.write(json.dumps(document | {"path": [], "nics": ["lo"]}) + "\n")
    assert [json.loads(process.stdout.readline())["event"] for _ in range(2)] == ["ready", "out"]
    process.stdin.write("stop\n")
    event = json.loads(process.communicate(timeout=20)[0])
    assert (event["event"], event["stopped"], event["exit_code"]) == ("rank", True, 128 + signal.SIGKILL)


def test_rates_keep_a_bounded_number_of_windows(monkeypatch):
    monkeypatch.syspath_prepend(str(RANK.parent))
    import rank

    monkeypatch.setattr(rank, "MAX_WINDOWS", 100)
    rates = rank.WindowRates(["lo", "missing"])
    for _ in range(1000):
        rates.add_window()

    assert 0 < len(rates.rates_by_nic["lo"]) <= 100
    assert rates.window_s >= 8 * rank.WINDOW_S
    assert rates.summarise_rates()["missing"]["peak"] == 0.0
