r"""Applies that are rolled back unless a person confirms them in time.

    requested -> armed -> confirmed
         \          \---> firing -> fired | failed
          \-> ended (never proven, so never armed)

An apply requests a confirmation before it sends the first byte. After the proof, a separate process, the watcher, arms
the confirmation. The watcher rolls back when the time is over, even if the process of the apply has died. If the
watcher dies, the next command reports it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from testbed.operate.intent import load_intents, read_journal
from testbed.operation_errors import ConfirmPending, NoPendingConfirmation, WatcherNotArmed
from testbed.storage.owner import get_current_person, get_current_process, is_running

if TYPE_CHECKING:
    from testbed.operate.journal import Journal

State = Literal["requested", "armed", "confirmed", "firing", "fired", "failed", "ended"]
ARMING_TIMEOUT_S = 20.0
"""Time within which a watcher must arm itself."""
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The confirmation of one epoch as the journal holds it.

    After `within_s`, at `due_at`, the watcher rolls back to epoch `back_to`. `reason` says why it ended or failed.
    """

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
    def is_pending(self) -> bool:
        """True if the confirmation is still open: a person can confirm or roll back."""
        return self.state in ("requested", "armed", "firing")


def load_confirmations(runs_dir: str | Path, lab: str) -> tuple[Confirmation, ...]:
    """Return the confirmations of a lab, the newest first. Raises `JournalError`."""
    rows = read_journal(runs_dir, "select * from confirmations where lab = ? order by epoch desc", lab)
    keys = ("epoch", "back_to", "within_s", "state", "watcher", "due_at", "reason")
    return tuple(Confirmation(**{key: row[key] for key in keys}) for row in rows)


def find_pending_confirmation(runs_dir: str | Path, lab: str) -> Confirmation | None:
    """Return the pending confirmation: armed or firing, or requested by an apply that is verified or running."""
    intent_by_epoch = {intent.epoch: intent for intent in load_intents(runs_dir, lab)}
    for confirmation in load_confirmations(runs_dir, lab):
        intent = intent_by_epoch.get(confirmation.epoch)
        may_be_armed = intent is not None and (intent.is_under_way or intent.state == "verified")
        if confirmation.state == "requested" and not may_be_armed:
            continue
        if confirmation.is_pending:
            return confirmation
    return None


def check_none_pending(runs_dir: str | Path, lab: str) -> None:
    """Raise `ConfirmPending` if an apply awaits confirmation."""
    pending_confirmation = find_pending_confirmation(runs_dir, lab)
    if pending_confirmation:
        deadline_text = (
            f" until {pending_confirmation.due_at[:19].replace('T', ' ')} UTC"
            if pending_confirmation.due_at
            else ""
        )
        problem = f"epoch {pending_confirmation.epoch} of lab '{lab}' awaits confirmation{deadline_text}"
        raise ConfirmPending(f"{problem}: run `testbed confirm` to keep it, or `testbed rollback` to undo it")


class ConfirmationLog:
    """Writable confirmations of one lab."""

    def __init__(self, journal: Journal, lab: str) -> None:
        self._journal = journal
        self._lab = lab

    def request(self, epoch: int, back_to: int, within_s: float) -> None:
        """Store that an epoch must be rolled back unless confirmed. The request is on disk when this returns."""
        from testbed.storage.schema import confirmations

        values = {"lab": self._lab, "epoch": epoch, "back_to": back_to, "within_s": within_s}
        values |= {"state": "requested", "who": get_current_person(), "requested_at": _format_now()}
        with self._journal.open_transaction() as connection:
            connection.execute(confirmations.insert().values(values))

    def change_state(
        self, epoch: int, expected_states: tuple[State, ...], state: State, **values: str
    ) -> bool:
        """Set the state of an epoch's confirmation if it is in one of `expected_states`. Return whether it was set.

        Compare-and-set in one transaction, so that of two processes only one succeeds.
        """
        from testbed.storage.schema import confirmations as table

        condition = (table.c.lab == self._lab) & (table.c.epoch == epoch) & table.c.state.in_(expected_states)
        with self._journal.open_transaction() as connection:
            return (
                connection.execute(table.update().where(condition).values(state=state, **values)).rowcount
                == 1
            )

    def arm(self, start_watcher: Callable[[], object], epoch: int) -> Confirmation:
        """Start the watcher and wait until it has armed itself. Raises `WatcherNotArmed`."""
        start_watcher()
        deadline_s = time.monotonic() + ARMING_TIMEOUT_S
        while time.monotonic() < deadline_s:
            confirmation = self._read(epoch)
            if confirmation.state == "armed":
                return confirmation
            time.sleep(POLL_S)
        self.change_state(epoch, ("requested",), "ended", reason="its watcher did not start")
        problem = f"epoch {epoch} is in force and verified, but its watcher, which would roll it back, did not start"
        raise WatcherNotArmed(
            f"{problem} within {ARMING_TIMEOUT_S:.0f} s; run `testbed rollback` to undo it by hand"
        )

    def confirm(self) -> Confirmation:
        """Confirm the pending epoch and return its confirmation. Raises `NoPendingConfirmation`."""
        pending_confirmation = find_pending_confirmation(self._journal.directory, self._lab)
        if pending_confirmation is None or not self.change_state(
            pending_confirmation.epoch, ("requested", "armed"), "confirmed", ended_at=_format_now()
        ):
            raise NoPendingConfirmation(
                f"no apply of lab '{self._lab}' awaits confirmation; see `testbed history`"
            )
        return pending_confirmation

    def end_pending(self, reason: str) -> None:
        """End every confirmation that is requested or armed, because a person has rolled back."""
        for confirmation in load_confirmations(self._journal.directory, self._lab):
            if confirmation.state in ("requested", "armed"):
                self.change_state(
                    confirmation.epoch, ("requested", "armed"), "ended", ended_at=_format_now(), reason=reason
                )

    def watch(self, epoch: int, roll_back: Callable[[int], str]) -> State:
        """Arm the confirmation and wait; call `roll_back` if it is not confirmed in time, and return the last state.

        `roll_back` takes the epoch to go back to, and returns why it failed or an empty string. The time is measured
        with the monotonic clock, so that setting the machine's clock does not change it.
        """
        confirmation = self._read(epoch)
        deadline_s = time.monotonic() + confirmation.within_s
        due_at = datetime.now(UTC) + timedelta(seconds=confirmation.within_s)
        watcher_values = {"watcher": get_current_process(), "due_at": due_at.isoformat(timespec="seconds")}
        if not self.change_state(epoch, ("requested",), "armed", **watcher_values):
            return self._read(epoch).state
        while time.monotonic() < deadline_s:
            time.sleep(min(POLL_S, max(0.0, deadline_s - time.monotonic())))
            if (state := self._read(epoch).state) != "armed":
                return state
        # Compare-and-set: only one of `confirm` and the watcher succeeds, even at the deadline.
        if not self.change_state(epoch, ("armed",), "firing"):
            return self._read(epoch).state
        reason = roll_back(confirmation.back_to)
        state = "failed" if reason else "fired"
        self.change_state(epoch, ("firing",), state, ended_at=_format_now(), reason=reason)
        return state

    def _read(self, epoch: int) -> Confirmation:
        return next(
            confirmation
            for confirmation in load_confirmations(self._journal.directory, self._lab)
            if confirmation.epoch == epoch
        )


def find_unwatched_confirmations(runs_dir: str | Path, lab: str) -> Iterator[tuple[str, str, str]]:
    """Yield operation, detail and hint of a pending apply without a watcher and of a failed automatic rollback."""
    pending_confirmation = find_pending_confirmation(runs_dir, lab)
    intent_by_epoch = {intent.epoch: intent for intent in load_intents(runs_dir, lab)}
    for confirmation in load_confirmations(runs_dir, lab)[:1]:
        intent = intent_by_epoch.get(confirmation.epoch)
        operation = intent.operation if intent else ""
        if (
            confirmation == pending_confirmation
            and not confirmation.is_watched
            and not (intent and intent.is_under_way)
        ):
            problem = (
                "its watcher did not start" if confirmation.state == "requested" else "its watcher has died"
            )
            detail = f"epoch {confirmation.epoch} awaits confirmation, but {problem}: there is no automatic rollback"
            yield operation, detail, "run `testbed confirm`, or `testbed rollback`"
        later_intents = [
            later_intent
            for later_intent in intent_by_epoch.values()
            if later_intent.epoch > confirmation.epoch and later_intent.state == "verified"
        ]
        if confirmation.state == "failed" and not later_intents:
            problem = f"the rollback to epoch {confirmation.back_to} failed ({confirmation.reason})"
            detail = f"epoch {confirmation.epoch} was not confirmed; {problem}"
            yield operation, detail, "see `testbed history`, then `testbed rollback`"


def _format_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
