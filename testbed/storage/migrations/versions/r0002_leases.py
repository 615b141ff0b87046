"""Leases, reservations and maintenance; the machine of a run, since several hosts may share one database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_TABLES: dict[str, str] = {
    "leases": """
        id text primary key not null, lab text not null, owner text not null, process text not null,
        state text not null, arrival bigint not null unique, token bigint unique, priority integer not null,
        resources json not null, parts json not null, allowed json not null, is_implicit boolean not null,
        ttl_s float not null, requested_s float not null, expires_s float not null, starts_s float,
        granted_s float, ended_s float, operation text,
        reason text default '' not null""",
    "lease_parts": """
        lab text not null, part text not null, lease text not null references leases (id),
        primary key (lab, part)""",
    "reservations": """
        lease text not null references leases (id), part text not null, lab text not null,
        starts_s float not null, ends_s float not null, primary key (lease, part)""",
    "maintenance": """
        lab text primary key not null, owner text not null, reason text not null, since_s float not null""",
    "part_checks": """
        lab text not null, part text not null, checked_s float not null, fault text default '' not null,
        primary key (lab, part)""",
    "counters": "name text primary key not null, value bigint not null",
}


def upgrade() -> None:
    """Add the tables and the column."""
    op.add_column("runs", sa.Column("machine", sa.Text, nullable=False, server_default=sa.text("''")))
    on_server = op.get_bind().dialect.name == "postgresql"
    if on_server:
        op.execute("create extension if not exists btree_gist")
    for name, columns in _TABLES.items():
        op.execute(f"create table {name} ({columns})")
    if on_server:
        op.execute(
            "alter table reservations add constraint reservations_do_not_overlap exclude using gist "
            "(lab with =, part with =, numrange(starts_s::numeric, ends_s::numeric) with &&)"
        )
