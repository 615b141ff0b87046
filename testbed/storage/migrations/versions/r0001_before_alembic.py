"""The tables of the releases that wrote no revision; a file of theirs may lack any of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TABLES: dict[str, str] = {
    "runs": """
        id text primary key not null, lab text not null, lab_info json not null, status text not null,
        error text default '' not null, started text not null, finished text, simulated boolean not null,
        hosts text not null""",
    "environment": """
        run text not null references runs (id), name text not null, value json not null,
        primary key (run, name)""",
    "topologies": """
        run text not null references runs (id), ordinal integer not null, topology json not null,
        primary key (run, ordinal)""",
    "circuits": """
        run text not null references runs (id), topology text not null, ordinal integer not null,
        source text not null, target text not null, switch text not null,
        input_port integer not null, output_port integer not null, primary key (run, topology, ordinal)""",
    "phases": """
        run text not null references runs (id), ordinal integer not null, name text not null, at text not null,
        data json not null, primary key (run, ordinal)""",
    "operations": """
        id text primary key not null, lab text not null, owner text not null, started text not null,
        finished text, state text not null""",
    "steps": """
        operation text not null references operations (id), switch text not null, ordinal integer not null,
        address text not null, kind text not null, "before" text not null, "after" text not null,
        intent_at text not null, outcome text, outcome_at text, read_back text,
        primary key (operation, switch, ordinal)""",
    "intents": """
        lab text not null, epoch integer not null, state text not null, operation text not null,
        owner text not null, lab_file text not null, revision text not null, name text not null,
        topology text not null, hosts text not null, words text not null, plan_text text, repairs integer,
        intended_at text not null, applied_at text, ended_at text, error text default '' not null,
        primary key (lab, epoch)""",
    "discoveries": """
        id text primary key not null, lab text not null, owner text not null, started text not null,
        state text not null, problem text not null, down text not null, circuits text not null,
        rounds text not null""",
    "losses": """
        lab text not null, place text not null, taken_s float not null, loss_db float not null,
        intent_db float not null, power_dbm float not null, primary key (lab, place, taken_s)""",
}


def upgrade() -> None:
    """Create the tables that do not exist."""
    there = set(sa.inspect(op.get_bind()).get_table_names())
    for name, columns in _TABLES.items():
        if name not in there:
            op.execute(f"create table {name} ({columns})")
