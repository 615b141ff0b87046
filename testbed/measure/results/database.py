"""The database of results: its tables, and transactions that turn its errors into `ResultsError`.

Other tables may live in the same file (the journal of operations does): nothing here touches them.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from testbed.errors import ResultsError

_LOCK_TIMEOUT_S = 30.0

metadata = sa.MetaData()

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("lab", sa.Text, nullable=False),
    sa.Column("lab_info", sa.JSON, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("started", sa.Text, nullable=False),
    sa.Column("finished", sa.Text),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("hosts", sa.Text, nullable=False),
)
environment = sa.Table(
    "environment",
    metadata,
    sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.JSON, nullable=False),
)
topologies = sa.Table(
    "topologies",
    metadata,
    sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("topology", sa.JSON, nullable=False),
)
circuits = sa.Table(
    "circuits",
    metadata,
    sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
    sa.Column("topology", sa.Text, primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("switch", sa.Text, nullable=False),
    sa.Column("input_port", sa.Integer, nullable=False),
    sa.Column("output_port", sa.Integer, nullable=False),
)
phases = sa.Table(
    "phases",
    metadata,
    sa.Column("run", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
)


class Database:
    """One SQLite file, opened anew for each transaction, so that no connection outlives its use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = sa.create_engine(
            f"sqlite:///{path}", poolclass=sa.NullPool, connect_args={"timeout": _LOCK_TIMEOUT_S}
        )

    def create(self) -> None:
        """Make the file and the tables; one process at a time, so that two may start together."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f".{self.path.name}.lock").open("w") as lock, self._errors():
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self._engine.begin() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                for table in metadata.sorted_tables:
                    connection.execute(CreateTable(table, if_not_exists=True))

    def holds_runs(self) -> bool:
        """Whether any run was ever begun here; the file may hold a journal alone."""
        if not self.path.exists():
            return False
        with self.reading() as connection:
            return sa.inspect(connection).has_table(runs.name)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that is committed at the end, or rolled back on an error."""
        with self._errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that changes nothing."""
        with self._errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DatabaseError as error:
            raise ResultsError(
                f"{self.path}: {error.orig}. If another program holds it, wait; "
                f"if the file is damaged, move it away: the files of each run beside it stay readable"
            ) from error
