r"""Applies that are taken back unless a person confirms them in time.

    requested -> armed -> confirmed
         \          \---> firing -> fired | failed
          \-> ended (never proven, so never armed)

It is requested before the first byte, and armed only after the proof, by a process of its own: the watcher. It goes
back when the time is over, whatever became of the process of the apply. The next command notices a watcher's death.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from testbed.operate.intent import load_intents, read_journal
from testbed.operation_errors import ConfirmPending, NotArmed, NothingToConfirm
from testbed.storage.owner import is_running, this_person, this_process

if TYPE_CHECKING:
    from testbed.operate.journal import Journal

State = Literal["requested", "armed", "confirmed", "firing", "fired", "failed", "ended"]
ARMING_S = 20.0
"""Time in which a watcher must have written its name."""
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Confirmation:
    """One apply that waits for its confirmation, as the journal holds it."""

    epoch: int
    back_to: int
    within_s: float
    state: State
    watcher: str
    due_at: str
    reason: str

    @property
    def is_watched(self) -> bool:
        """True while its watcher runs."""
        return is_running(self.watcher)

    @property
    def waits(self) -> bool:
        """True if a person is to confirm it, or to go back."""
        return self.state in ("requested", "armed", "firing")


def confirmations_of(runs_dir: str | Path, lab: str) -> tuple[Confirmation, ...]:
    """Return all of a lab, the newest first. Raises `JournalError`."""
    rows = read_journal(runs_dir, "select * from confirmations where lab = ? order by epoch desc", lab)
    keys = ("epoch", "back_to", "within_s", "state", "watcher", "due_at", "reason")
    return tuple(Confirmation(**{key: row[key] for key in keys}) for row in rows)


def pending_of(runs_dir: str | Path, lab: str) -> Confirmation | None:
    """Return the one that waits: armed, or requested by an apply that was proven or is under way."""
    states = {one.epoch: one for one in load_intents(runs_dir, lab)}
    for one in confirmations_of(runs_dir, lab):
        intent = states.get(one.epoch)
        may_be_armed = intent is not None and (intent.is_under_way or intent.state == "verified")
        if one.state == "requested" and not may_be_armed:
            continue
        if one.waits:
            return one
    return None


def check_none_pending(runs_dir: str | Path, lab: str) -> None:
    """Raise `ConfirmPending` while an apply waits for its confirmation."""
    found = pending_of(runs_dir, lab)
    if found:
        due = f" until {found.due_at[:19].replace('T', ' ')} UTC" if found.due_at else ""
        what = f"epoch {found.epoch} of lab '{lab}' waits{due} for its confirmation"
        raise ConfirmPending(f"{what}: `testbed confirm` keeps it, `testbed rollback` undoes it now")


class Confirmations:
    """Writing confirmations of one lab."""

    def __init__(self, journal: Journal, lab: str) -> None:
        self._journal = journal
        self._lab = lab

    def request(self, epoch: int, back_to: int, within_s: float) -> None:
        """Write that an epoch is to be taken back unless it is confirmed; on disk before anything moves."""
        from testbed.storage.schema import confirmations

        told = {"lab": self._lab, "epoch": epoch, "back_to": back_to, "within_s": within_s}
        told |= {"state": "requested", "who": this_person(), "requested_at": _now()}
        with self._journal.transaction() as connection:
            connection.execute(confirmations.insert().values(told))

    def change(self, epoch: int, former: tuple[State, ...], state: State, **known: str) -> bool:
        """Change the state of one, if it has one of the former; return whether it had."""
        from testbed.storage.schema import confirmations as table

        ours = (table.c.lab == self._lab) & (table.c.epoch == epoch) & table.c.state.in_(former)
        with self._journal.transaction() as connection:
            return connection.execute(table.update().where(ours).values(state=state, **known)).rowcount == 1

    def arm(self, start_watcher: Callable[[], object], epoch: int) -> Confirmation:
        """Start the watcher and wait until it has armed itself. Raises `NotArmed`."""
        start_watcher()
        deadline = time.monotonic() + ARMING_S
        while time.monotonic() < deadline:
            found = self._read(epoch)
            if found.state == "armed":
                return found
            time.sleep(POLL_S)
        self.change(epoch, ("requested",), "ended", reason="its watcher did not start")
        what = f"epoch {epoch} stands and is proven, but the process that would go back did not start"
        raise NotArmed(f"{what} in {ARMING_S:.0f} s; run `testbed rollback` to undo it by hand")

    def confirm(self) -> Confirmation:
        """Keep the epoch that waits. Raises `NothingToConfirm`."""
        found = pending_of(self._journal.directory, self._lab)
        if found is None or not self.change(
            found.epoch, ("requested", "armed"), "confirmed", ended_at=_now()
        ):
            raise NothingToConfirm(
                f"no apply of lab '{self._lab}' awaits confirmation; see `testbed history`"
            )
        return found

    def end(self, reason: str) -> None:
        """Let none wait any more: somebody has gone back by hand."""
        for one in confirmations_of(self._journal.directory, self._lab):
            if one.state in ("requested", "armed"):
                self.change(one.epoch, ("requested", "armed"), "ended", ended_at=_now(), reason=reason)

    def watch(self, epoch: int, go_back: Callable[[int], str]) -> State:
        """Arm it and wait; go back when the time is over and nobody has confirmed. `go_back` returns why it failed.

        The time is that of the machine's steady clock: setting the clock moves nothing.
        """
        found = self._read(epoch)
        deadline = time.monotonic() + found.within_s
        due = datetime.now(UTC) + timedelta(seconds=found.within_s)
        armed = {"watcher": this_process(), "due_at": due.isoformat(timespec="seconds")}
        if not self.change(epoch, ("requested",), "armed", **armed):
            return self._read(epoch).state
        while time.monotonic() < deadline:
            time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))
            if (state := self._read(epoch).state) != "armed":
                return state
        if not self.change(epoch, ("armed",), "firing"):
            return self._read(epoch).state
        reason = go_back(found.back_to)
        state = "failed" if reason else "fired"
        self.change(epoch, ("firing",), state, ended_at=_now(), reason=reason)
        return state

    def _read(self, epoch: int) -> Confirmation:
        return next(one for one in confirmations_of(self._journal.directory, self._lab) if one.epoch == epoch)


def find_unwatched(runs_dir: str | Path, lab: str) -> Iterator[tuple[str, str, str]]:
    """Yield what the next command tells of applies that nobody watches, and of a failed way back.

    Operation, detail and hint of each.
    """
    pending = pending_of(runs_dir, lab)
    states = {one.epoch: one for one in load_intents(runs_dir, lab)}
    for one in confirmations_of(runs_dir, lab)[:1]:
        intent = states.get(one.epoch)
        operation = intent.operation if intent else ""
        if one == pending and not one.is_watched and not (intent and intent.is_under_way):
            what = "was never armed" if one.state == "requested" else "lost the process that would go back"
            detail = f"epoch {one.epoch} waits for its confirmation and {what}: nobody goes back by itself"
            yield operation, detail, "run `testbed confirm`, or `testbed rollback`"
        later = [other for other in states.values() if other.epoch > one.epoch and other.state == "verified"]
        if one.state == "failed" and not later:
            detail = f"epoch {one.epoch} was not confirmed, and going back to epoch {one.back_to} failed ({one.reason})"
            yield operation, detail, "see `testbed history`, then `testbed rollback`"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
