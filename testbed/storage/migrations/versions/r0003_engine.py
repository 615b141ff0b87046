"""States of steps and their events, the kind, stage and goal of operations, confirmations of applies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_COLUMNS = {
    "operations": ("kind", "who", "why", "stage", "goal", "reason"),
    "steps": ("state", "change", "reason"),
}


def upgrade() -> None:
    """Add the columns and tables; steps of earlier releases get the state that their outcome tells."""
    for table, names in _COLUMNS.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.Text, nullable=False, server_default=sa.text("''")))
    op.execute("update operations set kind = 'apply'")
    op.execute(
        "update steps set change = 'circuits', state = case when outcome is null then 'intent' "
        "when outcome = 'done' then 'observed' else outcome end"
    )
    number = "serial" if op.get_bind().dialect.name == "postgresql" else "integer"
    op.execute(
        f"create table step_events (number {number} not null primary key, operation text not null, "
        "switch text not null, ordinal integer not null, event text not null, at text not null)"
    )
    op.execute("create index ix_step_events_operation on step_events (operation)")
    op.execute(
        "create table confirmations (lab text not null, epoch integer not null, back_to integer not null, "
        "within_s float not null, state text not null, who text not null, requested_at text not null, "
        "watcher text default '' not null, due_at text default '' not null, ended_at text default '' not null, "
        "reason text default '' not null, primary key (lab, epoch))"
    )
