"""Runs that the service was asked for, their events in the sequence of the journal, tokens, the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_COLUMNS = {"operations": ("run",), "step_events": ("lab", "run", "data")}
_TABLES: dict[str, str] = {
    "submitted_runs": """
        id text primary key not null, lab text not null, command text not null, request text not null,
        who text not null, state text not null, submitted text not null, why text default '' not null,
        owner text default '' not null, started text default '' not null, finished text default '' not null,
        output text default '' not null, messages text default '' not null, attempts integer not null,
        exit_code integer, idempotency_key text unique""",
    "tokens": """
        id text primary key not null, hash text not null, name text not null, role text not null,
        scopes text not null, labs text not null, created text not null, expires text not null,
        revoked text default '' not null""",
    "audit": """
        number integer primary key not null, at text not null, who text not null, role text not null,
        action text not null, lab text not null, why text not null, plan text not null,
        outcome text not null, previous text not null, hash text not null""",
}


def upgrade() -> None:
    """Add the columns and the tables."""
    for table, names in _COLUMNS.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.Text, nullable=False, server_default=sa.text("''")))
    for name, columns in _TABLES.items():
        op.execute(f"create table {name} ({columns})")
