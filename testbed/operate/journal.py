"""The journal: the record of operations, in which an intent is on disk before the first byte goes to a device.

A commit that returned has reached the disk (`testbed.storage.database`). Outcomes are written only from what a device
reports. A step with an intent but no outcome, whose process has ended, is `unknown`: it must not be sent again before
the device has been read.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from ocs_drivers.model import CrossConnects, Outcome, Snapshot, Status, Step
from testbed.errors import JournalError, StorageError
from testbed.log_context import about, logger
from testbed.operate.engine.planned import (
    ROUTES_CHANGE,
    PlannedStep,
    format_now,
    parse_circuits,
    render_circuits,
)
from testbed.operate.engine.step_log import SETTLED_LATER_REASON, StepLog
from testbed.operate.engine.transitions import StepEvent, StepState
from testbed.operation_errors import OperationRunning
from testbed.storage.address import get_database_address
from testbed.storage.database import DATABASE_ERRORS, Database
from testbed.storage.owner import get_current_person, get_current_process, get_current_run, is_running
from testbed.storage.reading import find_hint, get_database_message
from testbed.storage.schema import operations, steps


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step that has an intent but no outcome."""

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
        """Always unknown: only a read of the switch can tell."""
        return Status.UNKNOWN


class Journal:
    """The journal in one database; several processes may use it at once. A context manager.

    `path` is the SQLite file, or the URL of a server; `directory` is the runs directory. Opening the journal sets
    running operations to `killed` if their process has ended.
    """

    def __init__(self, path: str | Path, directory: str | Path | None = None) -> None:
        self.database = Database(path)
        self.path = self.database.address
        self.directory = Path(directory) if directory else Path(self.path).parent
        self.step_log = StepLog(self.open_transaction)
        with self._convert_errors():
            self.database.prepare()
        self._mark_killed_operations()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def commit_s(self) -> float:
        """Seconds spent in commits, nearly all of it waiting for the disk."""
        return self.database.commit_s

    @property
    def _engine(self) -> sa.Engine:
        return self.database.engine

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            raise JournalError(str(error)) from error
        except DATABASE_ERRORS as error:
            problem = f"the journal {self.database.name} cannot be written ({get_database_message(error)})"
            raise JournalError(f"{problem}; {find_hint(error)}") from error

    def close(self) -> None:
        """Close the database. The journal stays usable: the database is opened again when needed."""
        self.database.close()

    @contextmanager
    def open_operation(
        self,
        lab: str,
        kind: str = "apply",
        *,
        reason: str = "",
        goal: str = "",
        resumed_operation: str | None = None,
    ) -> Iterator[str]:
        """Open an operation and provide its id. It ends as `done`, or after an error as `failed` or `interrupted`.

        Pass `resumed_operation` (an operation id) to resume an unfinished operation. Raises `OperationRunning` if
        another process runs it, and `JournalError`.
        """
        operation = (
            self._reopen(resumed_operation)
            if resumed_operation
            else self._insert_operation(lab, kind, reason, goal)
        )
        with about(operation=operation):
            logger.info("%s of lab %s started", kind, lab)
            try:
                yield operation
            except Exception as error:
                self._finish(operation, "failed", str(error))
                raise
            except BaseException as error:
                self._finish(operation, "interrupted", str(error) or type(error).__name__)
                raise
            self._finish(operation, "done", "")

    def _insert_operation(self, lab: str, kind: str, reason: str, goal: str) -> str:
        operation = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        values = {
            "id": operation,
            "lab": lab,
            "owner": get_current_process(),
            "started": format_now(),
            "state": "running",
        }
        values |= {
            "kind": kind,
            "who": get_current_person(),
            "why": reason,
            "goal": goal,
            "run": get_current_run(),
        }
        self._commit(sa.insert(operations).values(values))
        return operation

    def _reopen(self, operation: str) -> str:
        """Take over an operation whose process has ended."""
        query = sa.select(operations.c.state, operations.c.owner).where(operations.c.id == operation)
        with self.open_transaction() as connection:
            row = connection.execute(query).one()
            if row.state == "running" and is_running(row.owner):
                raise OperationRunning(f"operation {operation} is running in process {row.owner.split()[0]}")
            values = {"owner": get_current_process(), "state": "running", "finished": None, "reason": ""}
            connection.execute(sa.update(operations).where(operations.c.id == operation).values(values))
        return operation

    def _finish(self, operation: str, state: str, reason: str) -> None:
        logger.info("operation ended: %s%s", state, f" ({reason})" if reason else "")
        self.update_operation(operation, finished=format_now(), state=state, reason=reason)

    def update_operation(self, operation: str, **values: str) -> None:
        """Set columns of an operation, such as its `stage` or its `goal`. Raises `JournalError`."""
        self._commit(sa.update(operations).where(operations.c.id == operation).values(values))

    def record_proof(self, operation: str, *, is_proven: bool) -> None:
        """Record the end of a proof. If `is_proven`, every observed step becomes verified."""
        self.update_operation(operation, stage="proof")
        if is_proven:
            self.step_log.apply_event(operation, StepEvent.PROVE, [StepState.OBSERVED])

    def store_plan(self, operation: str, planned_steps: Iterable[PlannedStep], goal: str) -> None:
        """Store the planned steps of an operation, and the goal unless it has one, before anything is sent."""
        is_this_operation = operations.c.id == operation
        with self.open_transaction() as connection:
            connection.execute(sa.update(operations).where(is_this_operation).values(stage="circuits"))
            lacks_goal = is_this_operation & (operations.c.goal == "")
            connection.execute(sa.update(operations).where(lacks_goal).values(goal=goal))
            self.step_log.insert_planned(connection, operation, planned_steps)

    def store_intent(self, operation: str, switch: str, ordinal: int, address: str, step: Step) -> None:
        """Store the intent of a step; it is on disk when this returns. Raises `JournalError`."""
        self.step_log.store_intents(operation, [PlannedStep.from_step(switch, ordinal, address, step)])

    def store_outcome(self, operation: str, switch: str, ordinal: int, outcome: Outcome) -> None:
        """Store what the device reported after a step."""
        self.step_log.store_outcome(operation, switch, ordinal, outcome)

    def _mark_killed_operations(self) -> None:
        """Mark `running` operations as killed if their process has ended."""
        query = sa.select(operations.c.id, operations.c.owner).where(operations.c.state == "running")
        with self._convert_errors(), self.database.open_reading() as connection:
            running_rows = connection.execute(query).all()
        for row in running_rows:
            if not is_running(row.owner):
                self.update_operation(
                    row.id, state="killed", finished=format_now(), reason="its process is gone"
                )

    def find_open_steps(self) -> tuple[OpenStep, ...]:
        """Return steps of switches with an intent but no outcome, whose operation has ended, oldest first."""
        query = (
            sa.select(
                steps, operations.c.lab, operations.c.owner, operations.c.state.label("operation_state")
            )
            .join(operations)
            .where(steps.c.outcome.is_(None), steps.c.intent_at != "", steps.c.change != ROUTES_CHANGE)
            .order_by(steps.c.intent_at, steps.c.switch, steps.c.ordinal)
        )
        with self._convert_errors(), self.database.open_reading() as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(
            _parse_open_step(dict(row))
            for row in rows
            if row["operation_state"] != "running" or not is_running(row["owner"])
        )

    def settle(self, lab: str, address: str, read_back: Snapshot) -> tuple[tuple[OpenStep, Status], ...]:
        """Store and return the outcome of a switch's unfinished steps, from the circuits that were read back.

        A step is done if its ports are in the state after it, failed if they are in the state before it, and otherwise
        unknown. Unknown steps are not judged again, because the next plan reads the switch anyway.
        """
        open_steps = [step for step in self.find_open_steps() if (step.lab, step.address) == (lab, address)]
        outcomes = tuple((step, _judge_step(step, read_back.connections)) for step in open_steps)
        for step, status in outcomes:
            key, read_text = (step.switch, step.ordinal), render_circuits(read_back.connections)
            self.step_log.store_outcomes(
                step.operation, {key: (status, read_text)}, reason=SETTLED_LATER_REASON
            )
        return outcomes

    def read_steps(self, operation: str) -> tuple[Mapping[str, Any], ...]:
        """Return the stored steps of an operation that have an intent, by switch and number."""
        query = (
            sa.select(steps)
            .where(steps.c.operation == operation, steps.c.intent_at != "")
            .order_by(steps.c.switch, steps.c.ordinal)
        )
        with self._convert_errors(), self.database.open_reading() as connection:
            return tuple(dict(row) for row in connection.execute(query).mappings())

    def read_state(self, operation: str) -> str:
        """Return `running`, `done`, `failed`, `interrupted` or `killed`. Raises `KeyError` for an unknown operation."""
        query = sa.select(operations.c.state).where(operations.c.id == operation)
        with self._convert_errors(), self.database.open_reading() as connection:
            state = connection.execute(query).scalar_one_or_none()
        if state is None:
            raise KeyError(operation)
        return str(state)

    def _commit(self, statement: sa.Executable) -> None:
        with self.open_transaction() as connection:
            connection.execute(statement)

    @contextmanager
    def open_transaction(self) -> Iterator[sa.Connection]:
        """Provide a connection that holds the write lock; on exit the changes are on disk. Raises `JournalError`."""
        with self._convert_errors(), self.database.open_transaction() as connection:
            yield connection


def open_journal(runs_dir: str | Path) -> Journal:
    """Return the journal of a runs directory. It shares its database with the results of the runs."""
    return Journal(get_database_address(runs_dir), runs_dir)


def _judge_step(step: OpenStep, current: CrossConnects) -> Status:
    """Return the outcome of a step from the ports that it changes. Other ports may have been patched since."""
    ports = {port for pair in step.before.pairs ^ step.after.pairs for port in pair}
    if current.touching(ports) == step.after.touching(ports):
        return Status.DONE
    return Status.FAILED if current.touching(ports) == step.before.touching(ports) else Status.UNKNOWN


def _parse_open_step(row: Mapping[str, Any]) -> OpenStep:
    copied_keys = ("operation", "lab", "switch", "ordinal", "address", "kind", "intent_at")
    return OpenStep(
        **{key: row[key] for key in copied_keys},
        before=parse_circuits(row["before"]),
        after=parse_circuits(row["after"]),
    )
