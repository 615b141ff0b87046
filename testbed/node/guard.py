"""Guard of one command: no process of the command outlives the guard, the deadline or the guard's input.

    python3 guard.py --deadline 60 --renew --nic nic1 --nic nic2 -- python3 collective.py ...

The command gets its own session and a pipe that forwards the guard's input. The guard kills it and all its descendants
when the input ends, when the deadline passes, or on SIGTERM, SIGHUP or SIGINT. If the guard is killed, the kernel kills
the command. With `--renew` any input restarts the deadline. At the end the guard prints one line:
`{"event": "guard", "reason": "exit"|"deadline"|"input_closed"|"signal", "status", "seconds", "dark_nics"}`.
`--clean FOLDER` removes a folder at the end, usually the folder to which this file was copied.
Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.1
SIGNAL_WINDOW_S = 0.2


class Guard:
    """One guarded command."""

    def __init__(self, command: list[str], deadline_s: float, *, is_renewed: bool) -> None:
        self.start_s = self.renewed_s = time.monotonic()
        self.is_renewed = is_renewed
        self.deadline_s = deadline_s
        self.is_signalled = False
        self.pending_input = b""
        libc = ctypes.CDLL(None)
        # Orphans of the command become children of the guard, so that it can find and end them.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(signal_number, self._note_signal)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            # Safe: the guard has one thread.
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
        )
        assert self.process.stdin is not None  # opened as a pipe
        self.command_input = self.process.stdin.fileno()
        os.set_blocking(self.command_input, False)  # a command that does not read must not delay the deadline

    def _note_signal(self, _number: int, _frame: object) -> None:
        self.is_signalled = True

    def watch(self) -> str:
        """Forward input until there is a reason to end; return the reason."""
        while self.process.poll() is None:
            if self.is_signalled:
                return "signal"
            if time.monotonic() - self.renewed_s >= self.deadline_s:
                return "deadline"
            if not self._forward_input():
                return "exit" if self._has_just_ended() else "input_closed"
        return "exit"

    def _has_just_ended(self) -> bool:
        """Return whether the command ends right after its input: a caller may close the input of an ended command."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(SIGNAL_WINDOW_S)
        return self.process.returncode is not None

    def _forward_input(self) -> bool:
        """Wait briefly for input and forward it; return False if the input has ended."""
        writers = [self.command_input] if self.pending_input else []
        readable_files, writable_files, _ = select.select([0], writers, [], POLL_S)
        if readable_files:
            data = os.read(0, 65536)
            if not data:
                return False
            self.pending_input += data
            if self.is_renewed:
                self.renewed_s = time.monotonic()
        if writable_files:
            self._write_pending()
        return True

    def _write_pending(self) -> None:
        """Write as much of the pending input as the command accepts."""
        try:
            self.pending_input = self.pending_input[os.write(self.command_input, self.pending_input) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.pending_input = b""  # the command has ended or closed its input; its exit status says more

    def end(self) -> None:
        """Kill the command's session and all its orphans, and reap them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        while children := list_child_pids():
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            reap_children()


def list_child_pids() -> list[int]:
    """Return the process ids of the guard's children, including adopted orphans."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split()]


def reap_children() -> None:
    """Wait for one child and collect its status."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)


def is_nic_dark(nic: str) -> bool:
    """Return whether a NIC has no carrier, is down or is missing."""
    try:
        return Path(f"/sys/class/net/{nic}/carrier").read_text(encoding="ascii").strip() != "1"
    except OSError:
        return True


def main() -> int:
    """Guard the command after `--`; return its exit status, or 1 if it was killed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deadline", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--renew", action="store_true", help="restart the deadline at any input")
    parser.add_argument("--nic", action="append", default=[], help="NIC whose carrier is reported at the end")
    parser.add_argument("--clean", metavar="FOLDER", help="folder to remove at the end")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    guard = Guard(command, options.deadline, is_renewed=options.renew)
    try:
        reason = guard.watch()
    finally:
        dark_nics = [nic for nic in options.nic if is_nic_dark(nic)]
        guard.end()
        if options.clean:
            shutil.rmtree(options.clean, ignore_errors=True)
    status = guard.process.returncode
    elapsed_s = round(time.monotonic() - guard.start_s, 3)
    report = {
        "event": "guard",
        "reason": reason,
        "status": status,
        "seconds": elapsed_s,
        "dark_nics": dark_nics,
    }
    print("\n" + json.dumps(report), flush=True)  # the command may have died in the middle of a line
    return status if reason == "exit" and status >= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
