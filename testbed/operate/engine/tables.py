"""Tables of the journal: operations, their steps, and every change of a step's state in the order of commits."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

operations = sa.Table(
    "operations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("lab", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("started", sa.Text, nullable=False),
    sa.Column("finished", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, server_default="apply"),
    sa.Column("who", sa.Text, nullable=False, server_default=""),
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    sa.Column("stage", sa.Text, nullable=False, server_default=""),
    sa.Column("goal", sa.Text, nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
)
"""`stage` is what is under way or was last: circuits, routes, proof. `goal` are circuits by switch, as JSON."""

steps = sa.Table(
    "steps",
    metadata,
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), primary_key=True),
    sa.Column("switch", sa.Text, primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("before", sa.Text, nullable=False),
    sa.Column("after", sa.Text, nullable=False),
    sa.Column("intent_at", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("outcome_at", sa.Text),
    sa.Column("read_back", sa.Text),
    sa.Column("state", sa.Text, nullable=False, server_default=""),
    sa.Column("change", sa.Text, nullable=False, server_default="circuits"),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
)
"""`switch` is the device: a switch or a host. `intent_at` is empty until the intent is written; `outcome` is what was
judged after the step (done, failed, unknown), and `state` where it stands since. `change` is the kind of what is
changed: circuits, routes."""

transitions = sa.Table(
    "step_events",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("operation", sa.Text, nullable=False, index=True),
    sa.Column("switch", sa.Text, nullable=False),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
)
"""Events of steps, never changed: replayed, they give the states in `steps`."""


def create(connection: sa.Connection) -> None:
    """Create the tables, and add the columns that a file of an earlier release lacks."""
    metadata.create_all(connection)
    for table in (operations, steps):
        known = {row[1] for row in connection.exec_driver_sql(f"pragma table_info({table.name})")}
        for column in table.columns:
            if column.name not in known:
                default = column.server_default.arg if column.server_default is not None else ""  # type: ignore[attr-defined]
                connection.exec_driver_sql(
                    f"alter table {table.name} add column {column.name} text not null default '{default}'"
                )
