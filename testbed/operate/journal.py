"""The journal: an operation's intent is on disk before the first byte goes to a device.

SQLite in WAL mode with `synchronous=FULL`: a commit that returned has reached the disk. Outcomes are written
only from what a device reports back. A step with an intent and no outcome, whose process is gone, is
`unknown`: nobody may send it again before the device was read.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from ocs_drivers.model import CrossConnects, Outcome, Snapshot, Status, Step
from testbed.database_file import BUSY_TIMEOUT_S, database_in
from testbed.errors import JournalError, OperationRunning
from testbed.operate.engine import tables
from testbed.operate.engine.planned import PlannedStep, as_text, from_text, now
from testbed.operate.engine.step_log import StepLog
from testbed.operate.engine.tables import operations as _operations
from testbed.operate.engine.tables import steps as _steps
from testbed.operate.engine.transitions import StepEvent, StepState
from testbed.operate.intent_log import INTENTS_TABLE
from testbed.operate.owner import is_running, this_person, this_process


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
    """The journal in one SQLite file; several processes may use it at once. A context manager.

    `commit_s` is the time spent in commits, nearly all of it waiting for the disk.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.commit_s = 0.0
        self._adding = threading.Lock()  # switches are worked on in threads
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._engine = sa.create_engine(f"sqlite:///{self.path}", connect_args={"timeout": BUSY_TIMEOUT_S})
        sa.event.listen(self._engine, "connect", _make_durable)
        sa.event.listen(self._engine, "begin", _lock_at_once)
        with self._errors(), self._engine.begin() as connection:
            tables.create(connection)
            connection.exec_driver_sql(INTENTS_TABLE)
            _note_deaths(connection)
        self.steps = StepLog(self.transaction)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DatabaseError, sqlite3.DatabaseError) as error:
            what = f"the journal {self.path} cannot be written ({getattr(error, 'orig', error)})"
            raise JournalError(
                f"{what}; free disk space, or choose another directory for runs (--runs-dir)"
            ) from error

    def close(self) -> None:
        """Give the file back. The journal stays usable; it is opened again when needed."""
        self._engine.dispose()

    @contextmanager
    def operation(
        self, lab: str, kind: str = "apply", *, why: str = "", goal: str = "", again: str | None = None
    ) -> Iterator[str]:
        """Open an operation, provide its id; it ends as `done`, or as `failed` or `interrupted` by what is raised.

        One that ended too early is opened `again`, by one process only: raises `OperationRunning`.
        """
        operation = self._reopen(again) if again else self._begin(lab, kind, why, goal)
        try:
            yield operation
        except Exception as error:
            self._finish(operation, "failed", str(error))
            raise
        except BaseException as error:
            self._finish(operation, "interrupted", str(error) or type(error).__name__)
            raise
        self._finish(operation, "done", "")

    def _begin(self, lab: str, kind: str, why: str, goal: str) -> str:
        operation = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        begun = {"id": operation, "lab": lab, "owner": this_process(), "started": now(), "state": "running"}
        told = {"kind": kind, "who": this_person(), "why": why, "goal": goal}
        self._commit(sa.insert(_operations).values(begun | told))
        return operation

    def _reopen(self, operation: str) -> str:
        """Take an operation over from a process that is gone."""
        query = sa.select(_operations.c.state, _operations.c.owner).where(_operations.c.id == operation)
        with self.transaction() as connection:
            row = connection.execute(query).one()
            if row.state == "running" and is_running(row.owner):
                raise OperationRunning(
                    f"operation {operation} is under way in process {row.owner.split()[0]}"
                )
            taken = {"owner": this_process(), "state": "running", "finished": None, "reason": ""}
            connection.execute(sa.update(_operations).where(_operations.c.id == operation).values(taken))
        return operation

    def _finish(self, operation: str, state: str, reason: str) -> None:
        self.note(operation, finished=now(), state=state, reason=reason)

    def note(self, operation: str, **known: str) -> None:
        """Write something of an operation: its `stage`, its `goal`."""
        self._commit(sa.update(_operations).where(_operations.c.id == operation).values(known))

    def prove(self, operation: str, *, is_proven: bool) -> None:
        """Write that a proof has covered all that was read back; without findings the steps are verified."""
        self.note(operation, stage="proof")
        if is_proven:
            self.steps.for_all(operation, StepEvent.PROVE, [StepState.OBSERVED])

    def begin(self, operation: str, planned: Iterable[PlannedStep], goal: str) -> None:
        """Write the steps and the goal of an operation, unless it has one, before anything is sent."""
        ours = _operations.c.id == operation
        with self.transaction() as connection:
            connection.execute(sa.update(_operations).where(ours).values(stage="circuits"))
            without = ours & (_operations.c.goal == "")
            connection.execute(sa.update(_operations).where(without).values(goal=goal))
            self.steps.plan_in(connection, operation, planned)

    def intend(self, operation: str, switch: str, ordinal: int, address: str, step: Step) -> None:
        """Write what is about to be sent; when this returns it is on disk. Raises `JournalError`."""
        self.steps.intend(operation, [PlannedStep.of(switch, ordinal, address, step)])

    def record(self, operation: str, switch: str, ordinal: int, outcome: Outcome) -> None:
        """Write what the device reported after a step."""
        self.steps.record(operation, switch, ordinal, outcome)

    def unfinished(self) -> tuple[OpenStep, ...]:
        """Return steps begun and never concluded whose process is gone, oldest first."""
        query = (
            sa.select(_steps, _operations.c.lab, _operations.c.owner, _operations.c.state.label("of"))
            .join(_operations)
            .where(_steps.c.outcome.is_(None) & (_steps.c.intent_at != ""))
            .order_by(_steps.c.intent_at, _steps.c.switch, _steps.c.ordinal)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(
            _open_step(dict(row)) for row in rows if row["of"] != "running" or not is_running(row["owner"])
        )

    def settle(self, lab: str, address: str, read_back: Snapshot) -> tuple[tuple[OpenStep, Status], ...]:
        """Conclude unfinished steps on this switch from a read: done, failed, or (neither) still unknown.

        Unknown ones are written down with what was read and not asked about again: the next plan starts from
        the switch itself, and this record is for the person who wonders.
        """
        ours = [step for step in self.unfinished() if (step.lab, step.address) == (lab, address)]
        settled = tuple((step, _judge(step, read_back.connections)) for step in ours)
        for step, status in settled:
            key, read = (step.switch, step.ordinal), as_text(read_back.connections)
            self.steps.close(step.operation, {key: (status, read)})
        return settled

    def history(self, operation: str) -> tuple[Mapping[str, Any], ...]:
        """Return the steps of an operation as stored, in order."""
        query = (
            sa.select(_steps)
            .where(_steps.c.operation == operation)
            .order_by(_steps.c.switch, _steps.c.ordinal)
        )
        with self._engine.connect() as connection:
            return tuple(dict(row) for row in connection.execute(query).mappings())

    def state(self, operation: str) -> str:
        """Return `running`, `done`, `failed` or `interrupted`. Raises `KeyError` for an operation never begun."""
        query = sa.select(_operations.c.state).where(_operations.c.id == operation)
        with self._engine.connect() as connection:
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
        begin = time.monotonic()
        with self._errors(), self._engine.begin() as connection:
            yield connection
        with self._adding:
            self.commit_s += time.monotonic() - begin


def journal_in(runs_dir: str | Path) -> Journal:
    """Return the journal of a directory of runs; it shares the file with their results."""
    return Journal(database_in(runs_dir))


def _make_durable(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_lock_at_once` says, not at the first write
    _use_wal(connection)
    connection.execute("PRAGMA synchronous=FULL")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Turn a new file to WAL; SQLite does not wait for others here, so we do."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _lock_at_once(connection: sa.Connection) -> None:
    """Take the write lock first: one taken after a read is refused at once when somebody else wrote meanwhile."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _note_deaths(connection: sa.Connection) -> None:
    """Let no operation stay `running` whose process is gone."""
    running = connection.execute(
        sa.select(_operations.c.id, _operations.c.owner).where(_operations.c.state == "running")
    ).all()
    for row in running:
        if not is_running(row.owner):
            gone = {"state": "killed", "finished": now(), "reason": "its process is gone"}
            connection.execute(sa.update(_operations).where(_operations.c.id == row.id).values(gone))


def _judge(step: OpenStep, found: CrossConnects) -> Status:
    """Return what became of a step by the ports that it touches: others may have been patched since."""
    ports = {port for pair in step.before.pairs ^ step.after.pairs for port in pair}

    def at_ports(connections: CrossConnects) -> frozenset[tuple[int, int]]:
        return frozenset(pair for pair in connections.pairs if not ports.isdisjoint(pair))

    if at_ports(found) == at_ports(step.after):
        return Status.DONE
    return Status.FAILED if at_ports(found) == at_ports(step.before) else Status.UNKNOWN


def _open_step(row: Mapping[str, Any]) -> OpenStep:
    same = ("operation", "lab", "switch", "ordinal", "address", "kind", "intent_at")
    return OpenStep(
        **{key: row[key] for key in same},
        before=from_text(row["before"]),
        after=from_text(row["after"]),
    )
