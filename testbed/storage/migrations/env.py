"""Migrations as Alembic runs them: on an open connection, inside its transaction.

For `alembic revision --autogenerate`, a developer gives a URL instead of the connection.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context

from testbed.storage.schema import metadata


def run() -> None:
    """Run the requested migrations."""
    connection = context.config.attributes.get("connection")
    if connection is None:
        engine = sa.create_engine(context.config.get_main_option("sqlalchemy.url") or "sqlite://")
        with engine.begin() as new_connection:
            _run_on(new_connection)
        engine.dispose()
    else:
        _run_on(connection)


def _run_on(connection: sa.Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


run()
