"""Nothing of a guarded command outlives its deadline, the end of its input, or its guard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

GUARD = Path(__file__).parents[2] / "testbed" / "node" / "guard.py"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the guard finds processes in /proc"
)

# A process with a child in its group and a grandchild that left group and session; each writes its pid, then hangs.
FAMILY = """
import os, signal, sys, time
def note(name):
    open(f"{sys.argv[1]}/{name}.new", "w").write(str(os.getpid()))
    os.rename(f"{sys.argv[1]}/{name}.new", f"{sys.argv[1]}/{name}")
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        note("strayed")
    else:
        note("grouped")
else:
    note("leader")
time.sleep(600)
"""


@pytest.fixture
def guarded():
    """Start a command under the guard; what a failed test leaves is killed."""
    started = []

    def start(command, *, deadline_s=60.0, nics=(), options=(), **keywords):
        words = [word for nic in nics for word in ("--nic", nic)]
        process = subprocess.Popen(
            [sys.executable, "-IS", GUARD, "--deadline", str(deadline_s), *options, *words, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **keywords,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def family(guarded, tmp_path):
    """Return a guarded family, all three of which are there; gives the guard and the pids."""

    def start(**keywords):
        process = guarded([sys.executable, "-ISc", FAMILY, str(tmp_path)], **keywords)
        names = ("leader", "grouped", "strayed")
        wait_until(lambda: all((tmp_path / name).exists() for name in names))
        pids = {name: int((tmp_path / name).read_text()) for name in names}
        assert all(map(runs, pids.values()))
        return process, pids

    return start


def wait_until(fact, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < deadline, "it never came to be"
        threading.Event().wait(0.005)


def runs(pid):
    """Return whether a process is there and not only waiting to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def last_word(process, timeout=60):
    """Return exit status of the guard, what the command printed, and the guard's own line."""
    out, err = process.communicate(timeout=timeout)
    assert err == ""
    *before, line = out.splitlines()
    return process.returncode, "\n".join(before).rstrip("\n"), json.loads(line)


@pytest.mark.process
def test_a_command_that_ends_by_itself_is_passed_through(guarded):
    process = guarded(["sh", "-c", "read word; echo got $word; exit 7"])
    process.stdin.write("hello\n")
    process.stdin.flush()
    process.wait(60)
    status, printed, word = last_word(process)
    assert (status, printed) == (7, "got hello")
    assert word["event"] == "guard"
    assert (word["reason"], word["status"], word["dark_nics"]) == ("exit", 7, [])
    assert word["seconds"] >= 0


@pytest.mark.process
def test_the_end_of_input_ends_the_whole_family(family):
    process, pids = family()
    process.stdin.close()
    process.stdin = None
    status, _, word = last_word(process)
    assert (status, word["reason"], word["status"]) == (1, "input_closed", -signal.SIGKILL)
    assert not any(map(runs, pids.values()))


@pytest.mark.long
@pytest.mark.process
def test_the_deadline_ends_the_whole_family_in_time(family):
    process, pids = family(deadline_s=1.5)
    process.wait(60)
    status, _, word = last_word(process)
    assert (status, word["reason"], word["status"]) == (1, "deadline", -signal.SIGKILL)
    assert word["seconds"] >= 1.5
    assert not any(map(runs, pids.values()))


@pytest.mark.long
@pytest.mark.process
def test_a_renewed_deadline_counts_from_the_last_input(guarded):
    waits = "sleep 4; echo up; read first; read second"
    process = guarded(["sh", "-c", waits], deadline_s=8.0, options=["--renew"])
    assert process.stdout.readline() == "up\n"
    process.stdin.write("one\n")
    process.stdin.flush()
    process.wait(60)
    status, _, word = last_word(process)
    assert (status, word["reason"]) == (1, "deadline")
    assert word["seconds"] >= 12


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_to_the_guard_ends_the_whole_family(family, number):
    process, pids = family()
    process.send_signal(number)
    process.wait(60)
    status, _, word = last_word(process)
    assert (status, word["reason"]) == (1, "signal")
    assert not any(map(runs, pids.values()))


@pytest.mark.process
def test_orphans_of_a_command_that_ended_well_are_ended(guarded, tmp_path):
    stray = f"(setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' &) ; until [ -s {tmp_path}/pid ]; do :; done"
    process = guarded(["sh", "-c", stray])
    process.wait(60)
    status, _, word = last_word(process)
    assert (status, word["reason"], word["status"]) == (0, "exit", 0)
    assert not runs(int((tmp_path / "pid").read_text()))


@pytest.mark.process
def test_a_killed_guard_takes_the_command_along(guarded, tmp_path):
    process = guarded(
        ["sh", "-c", f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600"]
    )
    wait_until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    process.kill()
    wait_until(lambda: not runs(pid))


@pytest.mark.process
def test_a_command_killed_by_somebody_else_is_told_apart_from_our_ending_it(guarded):
    process = guarded(["sh", "-c", "kill -SEGV $$"])
    process.wait(60)
    status, _, word = last_word(process)
    assert (status, word["reason"], word["status"]) == (1, "exit", -signal.SIGSEGV)


@pytest.mark.long
@pytest.mark.process
def test_a_command_that_reads_no_more_does_not_hold_up_the_deadline(guarded):
    """It leaves room for a part of what waits in its pipe: waiting for more room would be for ever."""
    process = guarded(["sh", "-c", "dd bs=5000 count=1 >/dev/null 2>&1; exec sleep 600"], deadline_s=1.0)
    writer = threading.Thread(target=feed, args=(process, "x" * 65536, 64))
    writer.start()
    process.wait(60)
    writer.join()
    word = json.loads(process.stdout.read().splitlines()[-1])
    assert word["reason"] == "deadline"


def feed(process, text, times):
    """Write until the reader is gone."""
    try:
        for _ in range(times):
            process.stdin.write(text)
            process.stdin.flush()
    except (BrokenPipeError, OSError):
        pass


@pytest.mark.process
def test_input_arrives_whole_and_in_order(guarded):
    """More than pipes hold, so that pieces wait in the guard."""
    lines = "".join(f"{number}\n" for number in range(200_000))
    process = guarded(["sh", "-c", "head -n 200000 | cksum"])
    writer = threading.Thread(target=feed, args=(process, lines, 1))
    writer.start()
    process.wait(60)
    writer.join()
    expected = subprocess.run(["cksum"], input=lines, capture_output=True, text=True, check=True).stdout
    assert process.stdout.read().splitlines()[0] == expected.strip()


@pytest.mark.process
def test_the_last_line_stands_alone_when_the_command_died_in_the_middle_of_one(guarded):
    process = guarded(["sh", "-c", 'printf \'{"event": "ro\'; kill -9 $$'])
    process.wait(60)
    _, printed, word = last_word(process)
    assert printed == '{"event": "ro'
    assert word["status"] == -signal.SIGKILL


@pytest.mark.process
def test_nics_without_carrier_are_named(guarded):
    carrier = Path("/sys/class/net/lo/carrier")
    if not carrier.exists() or not os.access(carrier, os.R_OK):
        pytest.skip("no loopback interface in /sys/class/net")
    process = guarded(["true"], nics=["nonesuch0", "lo", "nonesuch1"])
    process.wait(60)
    _, _, word = last_word(process)
    lo_is_up = "1" in _read(carrier)
    assert word["dark_nics"] == ["nonesuch0", *([] if lo_is_up else ["lo"]), "nonesuch1"]


def _read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.mark.process
def test_a_program_that_does_not_exist_is_an_error_in_words(guarded):
    process = guarded(["/nonesuch/python"])
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "/nonesuch/python" in err.splitlines()[-1]
