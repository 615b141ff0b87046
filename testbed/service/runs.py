r"""Runs in the database. A change of a run and its event are one transaction. Requests also write the audit log.

    queued -> running -> done | failed | interrupted
         \__ cancelled

A run whose process is gone stays `running` until a worker starts it again (see `testbed.service.workers`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from testbed.operate.engine.planned import format_now
from testbed.service.access import Identity
from testbed.service_errors import KeyReused, NotFound, RunEnded, TooManyRuns
from testbed.storage.audit import AuditEntry, append_entry
from testbed.storage.database import Database
from testbed.storage.owner import get_current_process, is_running
from testbed.storage.schema import step_events, submitted_runs

MAX_QUEUED_RUNS = 8
"""Default number of runs of a user that may wait at the same time."""
ENDED_STATES = ("done", "failed", "interrupted", "cancelled")
_MAX_MESSAGES_LENGTH = 20_000
_STATE_BY_EXIT_CODE = {0: "done", 2: "done", 130: "interrupted"}


@dataclass(frozen=True, slots=True)
class Run:
    """A run: its command, who submitted it, its state and its outcome."""

    id: str
    lab: str
    command: str
    request: str
    who: str
    why: str
    state: str
    owner: str
    attempts: int
    submitted: str
    started: str
    finished: str
    exit_code: int | None
    output: str
    messages: str

    @property
    def has_ended(self) -> bool:
        """True if the state is final."""
        return self.state in ENDED_STATES

    def json(self) -> dict[str, Any]:
        """Return the run as a JSON document. `result` is the document that the command printed, or None for text."""
        copied_keys = (
            "id",
            "lab",
            "command",
            "who",
            "why",
            "state",
            "attempts",
            "submitted",
            "started",
            "finished",
        )
        document = {name: getattr(self, name) for name in copied_keys}
        document |= {
            "request": json.loads(self.request),
            "exit_code": self.exit_code,
            "result": self.parse_result(),
        }
        return document | {"output": self.output, "messages": self.messages}

    def make_summary(self) -> dict[str, Any]:
        """Return the run as a JSON document without its output."""
        return {
            key: value for key, value in self.json().items() if key not in ("result", "output", "messages")
        }

    def parse_result(self) -> dict[str, Any] | None:
        """Return the document that the command printed, or None for text."""
        lines = self.output.splitlines()
        try:
            document = json.loads(lines[-1]) if lines else None
        except ValueError:
            return None
        return document if isinstance(document, dict) else None


class RunStore:
    """The runs in a database. Methods raise `StorageError` and the errors of the database."""

    def __init__(self, database: Database, max_queued_runs: int = MAX_QUEUED_RUNS) -> None:
        self.database = database
        self._max_queued_runs = max_queued_runs

    def submit(
        self,
        identity: Identity,
        lab: str,
        command: str,
        request: str,
        *,
        reason: str = "",
        plan: str = "",
        idempotency_key: str = "",
    ) -> tuple[Run, bool]:
        """Store a queued run. Return it, and whether it is new.

        A repeated `idempotency_key` returns the run of its first use.

        Raises `KeyReused` if the key was used for another request, `TooManyRuns` if too many runs of the user wait.
        """
        user_key = f"{identity.name} {idempotency_key}" if idempotency_key else None
        with self.database.open_transaction() as connection:
            earlier_run = _find_by_key(connection, user_key) if user_key else None
            if earlier_run is not None and earlier_run.request != request:
                raise KeyReused(
                    f"Idempotency-Key {idempotency_key!r} was used for another request, run {earlier_run.id}"
                )
            if earlier_run is not None:
                return earlier_run, False
            conditions = submitted_runs.c.who == identity.name, submitted_runs.c.state == "queued"
            queued_count: int = connection.execute(sa.select(sa.func.count()).where(*conditions)).scalar_one()
            if queued_count >= self._max_queued_runs:
                raise TooManyRuns(
                    f"{self._max_queued_runs} runs of {identity.name} are already waiting: wait for them, or cancel"
                    " some"
                )
            row: dict[str, Any] = {
                "id": f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}",
                "lab": lab,
                "command": command,
                "request": request,
                "who": identity.name,
                "why": reason,
                "state": "queued",
                "submitted": format_now(),
                "attempts": 0,
                "idempotency_key": user_key,
            }
            connection.execute(submitted_runs.insert().values(row))
            append_entry(
                connection, AuditEntry(identity, f"run {command}", lab, reason, plan, f"run {row['id']}")
            )
            _append_event(
                connection, row, "queued", {"command": command, "who": identity.name, "why": reason}
            )
            return _make_run(_read_row(connection, str(row["id"]))), True

    def get(self, run_id: str) -> Run:
        """Return a run. Raises `NotFound`."""
        with self.database.open_reading() as connection:
            return _make_run(_read_row(connection, run_id))

    def list_runs(
        self,
        *,
        lab: str = "",
        state: str = "",
        command: str = "",
        limit: int = 100,
        labs: Collection[str] = (),
    ) -> tuple[Run, ...]:
        """Return at most `limit` runs, newest first. With `labs`, return only runs of these labs."""
        query = sa.select(submitted_runs).order_by(submitted_runs.c.submitted.desc()).limit(limit)
        query = query.where(submitted_runs.c.lab.in_(labs)) if labs else query
        for column, value in (("lab", lab), ("state", state), ("command", command)):
            query = query.where(submitted_runs.c[column] == value) if value else query
        with self.database.open_reading() as connection:
            return tuple(_make_run(dict(row)) for row in connection.execute(query).mappings())

    def find_unfinished(self, excluded: Collection[str] = ()) -> tuple[Run, ...]:
        """Return the runs to execute: runs that an earlier process left, then waiting runs, each oldest first."""
        query = (
            sa.select(submitted_runs)
            .where(submitted_runs.c.state.in_(("running", "queued")), submitted_runs.c.id.not_in(excluded))
            .order_by(submitted_runs.c.state.desc(), submitted_runs.c.submitted)
        )
        with self.database.open_reading() as connection:
            return tuple(_make_run(dict(row)) for row in connection.execute(query).mappings())

    def claim_run(self, run_id: str) -> Run | None:
        """Claim a run for this process and return it. Return None if it has ended or a live process executes it."""
        with self.database.open_transaction() as connection:
            run = _make_run(_read_row(connection, run_id))
            if run.has_ended or (run.state == "running" and is_running(run.owner)):
                return None
            claim_values = {"state": "running", "owner": get_current_process(), "attempts": run.attempts + 1}
            claim_values["started"] = run.started or format_now()
            _update_row(connection, run_id, claim_values)
            row = _read_row(connection, run_id)
            _append_event(
                connection, row, "resumed" if run.attempts else "started", {"attempt": run.attempts + 1}
            )
            return _make_run(row)

    def store_finished(self, run_id: str, exit_code: int, output: str, messages: str) -> Run:
        """Store the outcome of a run."""
        return self._store_outcome(
            run_id, _STATE_BY_EXIT_CODE.get(exit_code, "failed"), exit_code, output, messages
        )

    def store_failed(self, run_id: str, reason: str) -> Run:
        """Store that a run could not be executed, and why."""
        error = {"error": {"code": "service", "who": "ourselves", "message": reason}}
        return self._store_outcome(run_id, "failed", 1, f"{json.dumps(error)}\n", reason)

    def _store_outcome(self, run_id: str, state: str, exit_code: int, output: str, messages: str) -> Run:
        with self.database.open_transaction() as connection:
            outcome: dict[str, Any] = {"state": state, "exit_code": exit_code, "output": output}
            outcome |= {"finished": format_now(), "messages": messages[-_MAX_MESSAGES_LENGTH:]}
            _update_row(connection, run_id, outcome)
            row = _read_row(connection, run_id)
            _append_event(connection, row, state, {"exit_code": exit_code})
            return _make_run(row)

    def cancel(self, identity: Identity, run_id: str) -> Run:
        """Withdraw a waiting run, or return a running one unchanged. Raises `NotFound` and `RunEnded`."""
        with self.database.open_transaction() as connection:
            row = _read_row(connection, run_id)
            if row["state"] in ENDED_STATES:
                raise RunEnded(f"run {run_id} is already {row['state']}")
            append_entry(connection, AuditEntry(identity, "cancel run", row["lab"], outcome=f"run {run_id}"))
            if row["state"] == "queued":
                _update_row(connection, run_id, {"state": "cancelled", "finished": format_now()})
                row = _read_row(connection, run_id)
                _append_event(connection, row, "cancelled", {"who": identity.name})
            return _make_run(row)


def _find_by_key(connection: sa.Connection, user_key: str) -> Run | None:
    query = sa.select(submitted_runs).where(submitted_runs.c.idempotency_key == user_key)
    row = connection.execute(query).mappings().first()
    return _make_run(dict(row)) if row else None


def _read_row(connection: sa.Connection, run_id: str) -> Mapping[str, Any]:
    row = (
        connection.execute(sa.select(submitted_runs).where(submitted_runs.c.id == run_id)).mappings().first()
    )
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    return dict(row)


def _make_run(row: Mapping[str, Any]) -> Run:
    return Run(**{name: row[name] for name in Run.__slots__})


def _update_row(connection: sa.Connection, run_id: str, values: Mapping[str, Any]) -> None:
    connection.execute(submitted_runs.update().where(submitted_runs.c.id == run_id).values(**values))


def _append_event(
    connection: sa.Connection, run: Mapping[str, Any], event: str, data: Mapping[str, Any]
) -> None:
    """Append an event of a run to the events of the journal."""
    row = {"operation": "", "switch": "", "ordinal": 0, "event": event, "at": format_now()}
    row |= {"lab": run["lab"], "run": run["id"], "data": json.dumps(data)}
    connection.execute(step_events.insert().values(row))
