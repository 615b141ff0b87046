"""The journal: an operation's intent is on disk before the first byte goes to a device.

A commit that returned has reached the disk (`testbed.storage.database`). Outcomes are written only from what a device
reports back. A step with an intent and no outcome, whose process is gone, is
`unknown`: nobody may send it again before the device was read.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from ocs_drivers.model import CrossConnects, Outcome, Snapshot, Status, Step
from testbed.errors import JournalError, StorageError
from testbed.operate.owner import is_running, this_process
from testbed.storage.address import address_in
from testbed.storage.database import DATABASE_ERRORS, Database
from testbed.storage.reasons import hint_for, reason_of
from testbed.storage.schema import operations, steps


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step that was begun and of which nobody knows what became: `status` is always unknown."""

    operation: str
    lab: str
    switch: str
    ordinal: int
    address: str
    kind: str
    before: CrossConnects
    after: CrossConnects
    intent_at: str

    @property
    def status(self) -> Status:
        """Unknown, until the switch has been read."""
        return Status.UNKNOWN


class Journal:
    """The journal in one database; several processes may use it at once. A context manager.

    `path` is the SQLite file, or the URL of a server.
    """

    def __init__(self, path: str | Path) -> None:
        self.database = Database(path)
        self.path = self.database.address
        with self._errors():
            self.database.prepare()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def commit_s(self) -> float:
        """Time spent in commits, nearly all of it waiting for the disk."""
        return self.database.commit_s

    @property
    def _engine(self) -> sa.Engine:
        return self.database.engine

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            raise JournalError(str(error)) from error
        except DATABASE_ERRORS as error:
            what = f"the journal {self.database.name} cannot be written ({reason_of(error)})"
            raise JournalError(f"{what}; {hint_for(error)}") from error

    def close(self) -> None:
        """Give the database back. The journal stays usable; it is opened again when needed."""
        self.database.close()

    @contextmanager
    def operation(self, lab: str) -> Iterator[str]:
        """Open an operation, provide its id; it ends as `done`, or as `failed` or `interrupted` by what is raised."""
        operation = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        begun = {"id": operation, "lab": lab, "owner": this_process(), "started": _now(), "state": "running"}
        self._commit(sa.insert(operations).values(begun))
        try:
            yield operation
        except Exception:
            self._finish(operation, "failed")
            raise
        except BaseException:
            self._finish(operation, "interrupted")
            raise
        self._finish(operation, "done")

    def _finish(self, operation: str, state: str) -> None:
        ended = {"finished": _now(), "state": state}
        self._commit(sa.update(operations).where(operations.c.id == operation).values(ended))

    def intend(self, operation: str, switch: str, ordinal: int, address: str, step: Step) -> None:
        """Write what is about to be sent; when this returns it is on disk. Raises `JournalError`."""
        intent = {
            "operation": operation,
            "switch": switch,
            "ordinal": ordinal,
            "address": address,
            "kind": step.kind,
            "before": _as_text(step.before),
            "after": _as_text(step.after),
            "intent_at": _now(),
        }
        self._commit(sa.insert(steps).values(intent))

    def record(self, operation: str, switch: str, ordinal: int, outcome: Outcome) -> None:
        """Write what the device reported after a step."""
        self._close_step(operation, switch, ordinal, outcome.status, outcome.read_back)

    def _close_step(
        self, operation: str, switch: str, ordinal: int, status: Status, read_back: Snapshot | None
    ) -> None:
        step = (steps.c.operation == operation) & (steps.c.switch == switch) & (steps.c.ordinal == ordinal)
        known = {
            "outcome": status.value,
            "outcome_at": _now(),
            "read_back": _as_text(read_back.connections) if read_back else None,
        }
        self._commit(sa.update(steps).where(step).values(known))

    def unfinished(self) -> tuple[OpenStep, ...]:
        """Return steps begun and never concluded whose process is gone, oldest first."""
        query = (
            sa.select(steps, operations.c.lab, operations.c.owner, operations.c.state)
            .join(operations)
            .where(steps.c.outcome.is_(None))
            .order_by(steps.c.intent_at, steps.c.switch, steps.c.ordinal)
        )
        with self._errors(), self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(
            _open_step(dict(row)) for row in rows if row["state"] != "running" or not is_running(row["owner"])
        )

    def settle(self, lab: str, address: str, read_back: Snapshot) -> tuple[tuple[OpenStep, Status], ...]:
        """Conclude unfinished steps on this switch from a read: done, failed, or (neither) still unknown.

        Unknown ones are written down with what was read and not asked about again: the next plan starts from
        the switch itself, and this record is for the person who wonders.
        """
        ours = [step for step in self.unfinished() if (step.lab, step.address) == (lab, address)]
        settled = tuple((step, _judge(step, read_back.connections)) for step in ours)
        for step, status in settled:
            self._close_step(step.operation, step.switch, step.ordinal, status, read_back)
        return settled

    def history(self, operation: str) -> tuple[Mapping[str, Any], ...]:
        """Return the steps of an operation as stored, in order."""
        query = (
            sa.select(steps).where(steps.c.operation == operation).order_by(steps.c.switch, steps.c.ordinal)
        )
        with self._errors(), self.database.reading() as connection:
            return tuple(dict(row) for row in connection.execute(query).mappings())

    def state(self, operation: str) -> str:
        """Return `running`, `done`, `failed` or `interrupted`. Raises `KeyError` for an operation never begun."""
        query = sa.select(operations.c.state).where(operations.c.id == operation)
        with self._errors(), self.database.reading() as connection:
            state = connection.execute(query).scalar_one_or_none()
        if state is None:
            raise KeyError(operation)
        return str(state)

    def _commit(self, statement: sa.Executable) -> None:
        with self.transaction() as connection:
            connection.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Provide the write lock; what was done is on disk when this is left. Raises `JournalError`."""
        with self._errors(), self.database.transaction() as connection:
            yield connection


def journal_in(runs_dir: str | Path) -> Journal:
    """Return the journal of a directory of runs; it shares the database with their results."""
    return Journal(address_in(runs_dir))


def _judge(step: OpenStep, found: CrossConnects) -> Status:
    if found == step.after:
        return Status.DONE
    return Status.FAILED if found == step.before else Status.UNKNOWN


def _open_step(row: Mapping[str, Any]) -> OpenStep:
    same = ("operation", "lab", "switch", "ordinal", "address", "kind", "intent_at")
    return OpenStep(
        **{key: row[key] for key in same},
        before=_from_text(row["before"]),
        after=_from_text(row["after"]),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _as_text(connections: CrossConnects) -> str:
    return json.dumps(dict(connections))


def _from_text(text: str) -> CrossConnects:
    return CrossConnects({int(source): output for source, output in json.loads(text).items()})
