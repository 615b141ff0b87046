"""The revision of a database: made new, migrated, or refused. Alembic is imported where there is something to migrate.

Whoever calls holds the lock of the writer; all of a migration is one transaction, on SQLite too.
"""

from __future__ import annotations

import sqlalchemy as sa

from testbed.errors import StorageError
from testbed.storage.schema import REVISION, metadata

_VERSION = "alembic_version"
FIRST = "1001"
"""The revision that all others follow."""


def is_up_to_date(connection: sa.Connection, name: str) -> bool:
    """Return whether a database is of today's schema. Raises `StorageError` for one of a later release."""
    return _revision_of(connection, name) == REVISION


def bring_up_to_date(connection: sa.Connection, name: str) -> None:
    """Create all tables, or migrate those of an earlier revision. Raises `StorageError` for one of a later release."""
    found = _revision_of(connection, name)
    if found == REVISION:
        return  # another process was faster
    if found is None and metadata.tables.keys().isdisjoint(sa.inspect(connection).get_table_names()):
        metadata.create_all(connection)
        connection.exec_driver_sql(f"create table {_VERSION} (version_num varchar(32) primary key not null)")
        connection.exec_driver_sql(f"insert into {_VERSION} values ('{REVISION}')")  # noqa: S608 - our own name
        return
    if found is None or found < FIRST:
        what = f"{name} was written by a version of lightbed from before its first release"
        raise StorageError(f"{what}; choose another --runs-dir or --database")
    migrate(connection)


def migrate(connection: sa.Connection) -> None:
    """Run the revisions that a database lacks."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "testbed.storage:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _revision_of(connection: sa.Connection, name: str) -> str | None:
    """Return the revision of a database, None where it has none. Raises `StorageError` for an unknown one."""
    if not sa.inspect(connection).has_table(_VERSION):
        return None
    found = connection.exec_driver_sql(f"select version_num from {_VERSION}").scalar()  # noqa: S608 - our own name
    if found is not None and found > REVISION:
        what = f"{name} was written by a later release of lightbed (revision {found}, known are those to {REVISION})"
        raise StorageError(f"{what}; install that release, or choose another --runs-dir or --database")
    return found
