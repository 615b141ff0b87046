"""Reasons to stop a change: Ctrl-C, and the emergency stop of a lab.

The first Ctrl-C stops between two steps, the second at once. The emergency stop is a file next to the journal: it
needs no database lock, no lease, and hardly any disk space.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from urllib.parse import quote

from testbed.errors import Interrupted
from testbed.operate.engine.planned import format_now
from testbed.operation_errors import OperationStopped
from testbed.storage.owner import get_current_person

CheckSending = Callable[[], None]
"""Check that is called before every write to a device, and raises if nothing may be sent."""

_interrupt_requested = threading.Event()


class _StopFlag:
    """Flag that stops the changes of one context. The changes poll `is_set`. `set` also calls the `callbacks`."""

    def __init__(self) -> None:
        self.is_set = False
        self.callbacks: list[Callable[[], object]] = []

    def set(self) -> None:
        """Stop the changes before their next step."""
        self.is_set = True
        for callback in tuple(self.callbacks):
            callback()


_stop_flag: ContextVar[_StopFlag | None] = ContextVar("stop flag", default=None)


def is_interrupted() -> bool:
    """Return whether the change must stop before its next step: Ctrl-C was pressed, or its caller was cancelled."""
    flag = _stop_flag.get()
    return _interrupt_requested.is_set() or (flag is not None and flag.is_set)


@contextmanager
def allow_stop() -> Iterator[Callable[[], None]]:
    """Provide a function that stops only the changes of this context, before their next step."""
    flag = _StopFlag()
    token = _stop_flag.set(flag)
    try:
        yield flag.set
    finally:
        _stop_flag.reset(token)


@contextmanager
def call_on_stop(callback: Callable[[], object]) -> Iterator[None]:
    """Call a function if the changes of this context are stopped during the block."""
    flag = _stop_flag.get()
    if flag is None:
        yield
        return
    flag.callbacks.append(callback)
    try:
        if flag.is_set:
            callback()
        yield
    finally:
        flag.callbacks.remove(callback)


@contextmanager
def stop_on_interrupt(add_note: Callable[[str], None]) -> Iterator[None]:
    """Stop a change between two steps at the first Ctrl-C, and raise `KeyboardInterrupt` at the second.

    Has no effect outside the main thread, because only that thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle_interrupt(_number: int, _frame: FrameType | None) -> None:
        if _interrupt_requested.is_set():
            raise KeyboardInterrupt("Ctrl-C was pressed a second time while a step was running")
        _interrupt_requested.set()
        add_note("stopping after the current step; press Ctrl-C again to stop without waiting for it")

    previous_handler = signal.signal(signal.SIGINT, handle_interrupt)
    _interrupt_requested.clear()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        _interrupt_requested.clear()


class EmergencyStop:
    """The emergency stop of one lab, a file in the runs directory."""

    def __init__(self, runs_dir: str | Path, lab: str) -> None:
        self.lab = lab
        self.path = Path(runs_dir) / f"stopped-{quote(lab, safe='')}.json"

    @property
    def is_in_force(self) -> bool:
        """True from `activate` to `release`."""
        return self.path.exists()

    def activate(self, reason: str) -> None:
        """Put the stop in force. On a full disk, the file stays empty but still stops all changes."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        text = json.dumps(
            {"lab": self.lab, "at": format_now(), "who": get_current_person(), "reason": reason}
        )
        try:
            self.path.write_text(f"{text}\n", encoding="utf-8")
        except OSError:
            return

    def release(self) -> bool:
        """Allow changes again; return whether the stop was in force."""
        was_in_force = self.is_in_force
        self.path.unlink(missing_ok=True)
        return was_in_force

    def check_before(self, next_stage: str) -> None:
        """Raise `OperationStopped` or `Interrupted` if the next stage, named `next_stage`, must not start."""
        self.check()
        if is_interrupted():
            raise Interrupted(f"stopped by Ctrl-C before {next_stage}; run `testbed resume` to continue")

    def check(self) -> None:
        """Raise `OperationStopped` if the stop is in force."""
        if not self.is_in_force:
            return
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
            problem = f"{record['who']} stopped lab '{self.lab}' at {record['at'][:16].replace('T', ' ')} UTC"
            problem += f" ({record['reason']})" if record["reason"] else ""
        except (OSError, ValueError, KeyError):
            problem = f"lab '{self.lab}' is stopped"
        raise OperationStopped(
            f"{problem}: nothing is sent. When it is safe, run `testbed stop LAB --release`, then `testbed "
            "resume`"
        )
