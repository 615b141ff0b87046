"""Reasons to stop a change: Ctrl-C, first at the next boundary and then at once, and the emergency stop of a lab.

The emergency stop is a file beside the journal: it needs no lock of the database, no lease, and hardly any disk.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import quote

from testbed.errors import Interrupted
from testbed.operate.engine.planned import now
from testbed.operation_errors import OperationStopped
from testbed.storage.owner import this_person

Consent = Callable[[], None]
"""Asked before every byte that changes something; raises where nothing may be sent."""

_requested = threading.Event()


def is_interrupted() -> bool:
    """Return whether Ctrl-C asked for a stop at the next boundary."""
    return _requested.is_set()


@contextmanager
def interruptible(note: Callable[[str], None]) -> Iterator[None]:
    """Let the first Ctrl-C stop at the next boundary of steps, and the second raise `KeyboardInterrupt`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        if _requested.is_set():
            raise KeyboardInterrupt("Ctrl-C was pressed a second time while a step was running")
        _requested.set()
        note("stopping when the step that is under way is done; Ctrl-C again does not wait for it")

    before = signal.signal(signal.SIGINT, stop)
    _requested.clear()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _requested.clear()


class EmergencyStop:
    """The emergency stop of one lab in a directory of runs."""

    def __init__(self, runs_dir: str | Path, lab: str) -> None:
        self.lab = lab
        self.path = Path(runs_dir) / f"stopped-{quote(lab, safe='')}.json"

    @property
    def is_in_force(self) -> bool:
        """True until it is released."""
        return self.path.exists()

    def pull(self, reason: str) -> None:
        """Put it in force; an empty file does on a disk that is full."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        told = json.dumps({"lab": self.lab, "at": now(), "who": this_person(), "reason": reason})
        try:
            self.path.write_text(f"{told}\n", encoding="utf-8")
        except OSError:
            return

    def release(self) -> bool:
        """Let the lab move again; return whether it was stopped."""
        was = self.is_in_force
        self.path.unlink(missing_ok=True)
        return was

    def check_boundary(self, following: str) -> None:
        """Raise `Interrupted` or `OperationStopped` where nothing more may begin; `following` is what would."""
        self.check()
        if is_interrupted():
            raise Interrupted(f"stopped by Ctrl-C before {following}; run `testbed resume` to continue")

    def check(self) -> None:
        """Raise `OperationStopped` while it is in force."""
        if not self.is_in_force:
            return
        try:
            told = json.loads(self.path.read_text(encoding="utf-8"))
            said = f"{told['who']} stopped lab '{self.lab}' at {told['at'][:16].replace('T', ' ')} UTC"
            said += f" ({told['reason']})" if told["reason"] else ""
        except (OSError, ValueError, KeyError):
            said = f"lab '{self.lab}' is stopped"
        raise OperationStopped(
            f"{said}: nothing is sent. When it is safe, run `testbed stop LAB --release`, then `testbed "
            "resume`"
        )
