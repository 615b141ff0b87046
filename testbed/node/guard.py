"""Run one command so that nothing of it outlives us: not the deadline, not the end of our input.

    python3 guard.py --deadline 60 --renew --nic nic1 --nic nic2 -- python3 collective.py ...

The command gets a session of its own and a pipe that carries our input on to it. It is killed, with everything
it started, when our input ends, when the deadline passes, and on SIGTERM, SIGHUP or SIGINT; should we be killed
ourselves, the kernel kills it. With `--renew` the deadline counts again from all input. At the end we print one line:
`{"event": "guard", "reason": "exit"|"deadline"|"input_closed"|"signal", "status", "seconds", "dark_nics"}`.
Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.1
JUST_NOW_S = 0.2


class Guard:
    """One guarded command, and why it ended."""

    def __init__(self, command: list[str], deadline_s: float, *, renew: bool) -> None:
        self.began = self.renewed = time.monotonic()
        self.renew = renew
        self.deadline_s = deadline_s
        self.signalled = False
        self.pending = b""
        libc = ctypes.CDLL(None)
        # Orphans of the command become our children, so that we can find and end them.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._note_signal)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            # Safe: we have one thread.
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
        )
        assert self.process.stdin is not None  # opened as a pipe
        self.onward = self.process.stdin.fileno()
        os.set_blocking(self.onward, False)  # a command that does not read must not keep us from the clock

    def _note_signal(self, _number: int, _frame: object) -> None:
        self.signalled = True

    def watch(self) -> str:
        """Pass input on until there is a reason to end; gives the reason."""
        while self.process.poll() is None:
            if self.signalled:
                return "signal"
            if time.monotonic() - self.renewed >= self.deadline_s:
                return "deadline"
            if not self._pass_input():
                return "exit" if self._has_just_ended() else "input_closed"
        return "exit"

    def _has_just_ended(self) -> bool:
        """Return whether the command ended before the input did: the reader that disconnected may know it first."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(JUST_NOW_S)
        return self.process.returncode is not None

    def _pass_input(self) -> bool:
        """Carry over what has arrived, waiting briefly for it; False when the input has ended."""
        wanting = [self.onward] if self.pending else []
        arrived, writable, _ = select.select([0], wanting, [], POLL_S)
        if arrived:
            data = os.read(0, 65536)
            if not data:
                return False
            self.pending += data
            if self.renew:
                self.renewed = time.monotonic()
        if writable:
            self._write_on()
        return True

    def _write_on(self) -> None:
        """Give the command as much of what is pending as it takes."""
        try:
            self.pending = self.pending[os.write(self.onward, self.pending) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.pending = b""  # the command has ended or does not read; its status says how

    def end(self) -> None:
        """Kill the command's session and every orphan of it, and reap them all."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        while children := child_pids():
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            reap()


def child_pids() -> list[int]:
    """Return our children, orphans that came to us included."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split()]


def reap() -> None:
    """Take the status of one child, waiting for it."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)


def is_dark(nic: str) -> bool:
    """Return whether a NIC has no carrier (or is down, or gone)."""
    try:
        return Path(f"/sys/class/net/{nic}/carrier").read_text(encoding="ascii").strip() != "1"
    except OSError:
        return True


def main() -> int:
    """Return guard the command after `--`; gives its exit status, or 1 when it was killed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deadline", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--renew", action="store_true", help="count the deadline again from all input")
    parser.add_argument("--nic", action="append", default=[], help="say at the end whether it has carrier")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    guard = Guard(command, options.deadline, renew=options.renew)
    try:
        reason = guard.watch()
    finally:
        dark = [nic for nic in options.nic if is_dark(nic)]
        guard.end()
    status = guard.process.returncode
    seconds = round(time.monotonic() - guard.began, 3)
    line = {"event": "guard", "reason": reason, "status": status, "seconds": seconds, "dark_nics": dark}
    print("\n" + json.dumps(line), flush=True)  # the command may have died in the middle of a line
    return status if reason == "exit" and status >= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
