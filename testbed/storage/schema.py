"""The tables of a laboratory: runs and results, operations and steps, epochs, discoveries, losses, leases, the service.

A change of these tables needs a revision in `migrations/versions`, and its name in `REVISION`.
"""

from __future__ import annotations

import sqlalchemy as sa

REVISION = "1001"
"""Newest revision of the schema."""

metadata = sa.MetaData()


def _text_column(name: str, *, is_key: bool = False, may_be_empty: bool = False) -> sa.Column[str]:
    """Return a text column that is never null. With `may_be_empty`, its default is an empty text."""
    return sa.Column(
        name,
        sa.Text,
        primary_key=is_key,
        nullable=False,
        server_default=sa.text("''") if may_be_empty else None,
    )


def _run_column() -> sa.Column[str]:
    return sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), primary_key=True)


def _ordinal_column() -> sa.Column[int]:
    return sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False)


runs = sa.Table(
    "runs",
    metadata,
    _text_column("id", is_key=True),
    _text_column("lab"),
    sa.Column("lab_info", sa.JSON, nullable=False),
    _text_column("status"),
    _text_column("error", may_be_empty=True),
    _text_column("started"),
    sa.Column("finished", sa.Text),
    sa.Column("simulated", sa.Boolean, nullable=False),
    _text_column("hosts"),
    _text_column("machine", may_be_empty=True),
)
environment = sa.Table(
    "environment",
    metadata,
    _run_column(),
    _text_column("name", is_key=True),
    sa.Column("value", sa.JSON, nullable=False),
)
topologies = sa.Table(
    "topologies",
    metadata,
    _run_column(),
    _ordinal_column(),
    sa.Column("topology", sa.JSON, nullable=False),
)
circuits = sa.Table(
    "circuits",
    metadata,
    _run_column(),
    _text_column("topology", is_key=True),
    _ordinal_column(),
    _text_column("source"),
    _text_column("target"),
    _text_column("switch"),
    sa.Column("input_port", sa.Integer, nullable=False),
    sa.Column("output_port", sa.Integer, nullable=False),
)
phases = sa.Table(
    "phases",
    metadata,
    _run_column(),
    _ordinal_column(),
    _text_column("name"),
    _text_column("at"),
    sa.Column("data", sa.JSON, nullable=False),
)

operations = sa.Table(
    "operations",
    metadata,
    _text_column("id", is_key=True),
    _text_column("lab"),
    _text_column("owner"),
    _text_column("started"),
    sa.Column("finished", sa.Text),
    _text_column("state"),
    *(
        _text_column(name, may_be_empty=True)
        for name in ("kind", "who", "why", "stage", "goal", "reason", "run")
    ),
)
"""`run` is the run of the service that the operation belongs to, empty without one. `stage` is the current or last
stage: circuits, routes, proof. `goal` holds circuits by switch, as JSON."""
steps = sa.Table(
    "steps",
    metadata,
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), primary_key=True),
    _text_column("switch", is_key=True),
    _ordinal_column(),
    _text_column("address"),
    _text_column("kind"),
    _text_column("before"),
    _text_column("after"),
    _text_column("intent_at"),
    sa.Column("outcome", sa.Text),
    sa.Column("outcome_at", sa.Text),
    sa.Column("read_back", sa.Text),
    *(_text_column(name, may_be_empty=True) for name in ("state", "change", "reason")),
)
"""`switch` is the device, a switch or a host; `change` is circuits or routes. `intent_at` is empty until the intent is
written; `outcome` is the result determined after the step, `state` the current state."""
step_events = sa.Table(
    "step_events",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("operation", sa.Text, nullable=False, index=True),
    _text_column("switch"),
    sa.Column("ordinal", sa.Integer, nullable=False),
    _text_column("event"),
    _text_column("at"),
    *(_text_column(name, may_be_empty=True) for name in ("lab", "run", "data")),
)
"""Events, never changed. The events of an operation, in order, give the states in `steps`. Events without an operation
belong to runs of the service and name their lab. `number` counts all events in the order of commits."""
submitted_runs = sa.Table(
    "submitted_runs",
    metadata,
    _text_column("id", is_key=True),
    *(_text_column(name) for name in ("lab", "command", "request", "who", "state", "submitted")),
    *(
        _text_column(name, may_be_empty=True)
        for name in ("why", "owner", "started", "finished", "output", "messages")
    ),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("exit_code", sa.Integer),
    sa.Column("idempotency_key", sa.Text, unique=True),
)
"""Commands submitted to the service; `owner` is the process that executes the run."""
tokens = sa.Table(
    "tokens",
    metadata,
    _text_column("id", is_key=True),
    *(_text_column(name) for name in ("hash", "name", "role", "scopes", "labs", "created", "expires")),
    _text_column("revoked", may_be_empty=True),
)
"""Bearer tokens, of which only hashes are stored; `scopes` and `labs` limit a token further."""
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    *(_text_column(name) for name in ("at", "who", "role", "action", "lab", "why", "plan", "outcome")),
    *(_text_column(name) for name in ("previous", "hash")),
)
"""Lines of the audit log, never changed; each holds the hash of the line before it."""
confirmations = sa.Table(
    "confirmations",
    metadata,
    _text_column("lab", is_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("back_to", sa.Integer, nullable=False),
    sa.Column("within_s", sa.Float, nullable=False),
    *(_text_column(name) for name in ("state", "who", "requested_at")),
    *(_text_column(name, may_be_empty=True) for name in ("watcher", "due_at", "ended_at", "reason")),
)
"""Applies that are rolled back unless confirmed; `watcher` is the process that rolls back."""
intents = sa.Table(
    "intents",
    metadata,
    _text_column("lab", is_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True, autoincrement=False),
    _text_column("state"),
    _text_column("operation"),
    _text_column("owner"),
    _text_column("lab_file"),
    _text_column("revision"),
    _text_column("name"),
    _text_column("topology"),
    _text_column("hosts"),
    _text_column("words"),
    sa.Column("plan_text", sa.Text),
    sa.Column("repairs", sa.Integer),
    _text_column("intended_at"),
    sa.Column("applied_at", sa.Text),
    sa.Column("ended_at", sa.Text),
    _text_column("error", may_be_empty=True),
)
discoveries = sa.Table(
    "discoveries",
    metadata,
    _text_column("id", is_key=True),
    *(
        _text_column(name)
        for name in ("lab", "owner", "started", "state", "problem", "down", "circuits", "rounds")
    ),
)
losses = sa.Table(
    "losses",
    metadata,
    _text_column("lab", is_key=True),
    _text_column("place", is_key=True),
    sa.Column("taken_s", sa.Float, primary_key=True),
    *(sa.Column(name, sa.Float, nullable=False) for name in ("loss_db", "intent_db", "power_dbm")),
)

leases = sa.Table(
    "leases",
    metadata,
    _text_column("id", is_key=True),
    _text_column("lab"),
    _text_column("owner"),
    _text_column("process"),
    _text_column("state"),
    sa.Column("arrival", sa.BigInteger, nullable=False, unique=True),
    sa.Column("token", sa.BigInteger, unique=True),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("resources", sa.JSON, nullable=False),
    sa.Column("parts", sa.JSON, nullable=False),
    sa.Column("allowed", sa.JSON, nullable=False),
    sa.Column("is_implicit", sa.Boolean, nullable=False),
    sa.Column("ttl_s", sa.Float, nullable=False),
    sa.Column("requested_s", sa.Float, nullable=False),
    sa.Column("expires_s", sa.Float, nullable=False),
    sa.Column("starts_s", sa.Float),
    sa.Column("granted_s", sa.Float),
    sa.Column("ended_s", sa.Float),
    sa.Column("operation", sa.Text),
    _text_column("reason", may_be_empty=True),
)
lease_parts = sa.Table(
    "lease_parts",
    metadata,
    _text_column("lab", is_key=True),
    _text_column("part", is_key=True),
    sa.Column("lease", sa.Text, sa.ForeignKey("leases.id"), nullable=False),
)
"""Leased parts; the primary key ensures that no part is leased twice."""

reservations = sa.Table(
    "reservations",
    metadata,
    sa.Column("lease", sa.Text, sa.ForeignKey("leases.id"), primary_key=True),
    _text_column("part", is_key=True),
    _text_column("lab"),
    sa.Column("starts_s", sa.Float, nullable=False),
    sa.Column("ends_s", sa.Float, nullable=False),
)
NO_OVERLAP = (
    "alter table reservations add constraint reservations_do_not_overlap exclude using gist "
    "(lab with =, part with =, numrange(starts_s::numeric, ends_s::numeric) with &&)"
)
"""Constraint by which PostgreSQL refuses overlapping reservations. On SQLite, the writing transaction checks first."""


def _on_server(sql: str) -> sa.DDL:
    statement: sa.DDL = sa.DDL(sql)  # type: ignore[no-untyped-call]
    return statement.execute_if(dialect="postgresql")


sa.event.listen(reservations, "before_create", _on_server("create extension if not exists btree_gist"))
sa.event.listen(reservations, "after_create", _on_server(NO_OVERLAP))

maintenance = sa.Table(
    "maintenance",
    metadata,
    _text_column("lab", is_key=True),
    _text_column("owner"),
    _text_column("reason"),
    sa.Column("since_s", sa.Float, nullable=False),
)
part_checks = sa.Table(
    "part_checks",
    metadata,
    _text_column("lab", is_key=True),
    _text_column("part", is_key=True),
    sa.Column("checked_s", sa.Float, nullable=False),
    _text_column("fault", may_be_empty=True),
)
"""The last check of each part; an empty `fault` is a part that passed."""

counters = sa.Table(
    "counters",
    metadata,
    _text_column("name", is_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
"""Numbers that never decrease: the newest token, the newest arrival, the newest time in milliseconds."""
