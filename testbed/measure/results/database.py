"""The database of results: its tables, and every statement that is sent to it.

All that is particular to SQLite in the storing of results is in this module: the address, the pragma, the order of
insertion (`rowid`), and the lock while tables are made. Errors of the database become `ResultsError`. The journal of
operations has tables of its own in the same file, and its own connection: nothing here touches them.

Tables are created where they do not exist, and never altered: a column that is added later also needs an
`ALTER TABLE` in `Database.create` for the files of earlier releases.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from testbed.database_file import BUSY_TIMEOUT_S, read_rows
from testbed.errors import ResultsError

Row: TypeAlias = sa.Row[tuple[Any, ...]]
"""A row of a table; columns are its attributes."""

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


@dataclass(frozen=True, slots=True)
class RowsOfRun:
    """Rows of one run by table, each in the order in which they are told apart, and the lab of the run."""

    lab_info: Mapping[str, object]
    environment: Sequence[Row]
    topologies: Sequence[Row]
    circuits: Sequence[Row]
    phases: Sequence[Row]


class Database:
    """One SQLite file, opened for each transaction, so that no connection outlives its use.

    All methods raise `ResultsError` when the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = sa.create_engine(
            f"sqlite:///{path}", poolclass=sa.NullPool, connect_args={"timeout": BUSY_TIMEOUT_S}
        )

    def create(self) -> None:
        """Create the file and the tables; one process at a time, so that two may start together."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f".{self.path.name}.lock").open("w") as lock, self._errors():
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self._engine.begin() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                for table in metadata.sorted_tables:
                    connection.execute(CreateTable(table, if_not_exists=True))

    def holds_runs(self) -> bool:
        """Return whether any run was ever begun here; the file may hold a journal alone."""
        if not self.path.exists():
            return False
        with self._reading() as connection:
            return sa.inspect(connection).has_table(runs.name)

    def insert_run(self, **values: object) -> None:
        """Put a run on record; values by column."""
        self._write(runs.insert().values(**values))

    def finish_run(self, run_id: str, **values: object) -> None:
        """Write how a run ended."""
        self._write(runs.update().where(runs.c.id == run_id).values(**values))

    def set_environment(self, run_id: str, name: str, value: object) -> None:
        """Write one fact of the environment of a run, in place of an earlier one of that name."""
        self._write(environment.insert().prefix_with("OR REPLACE").values(run=run_id, name=name, value=value))

    def append(self, table: sa.Table, run_id: str, **values: object) -> None:
        """Add a row behind those that a run has in a table."""
        ordinal = sa.select(sa.func.count()).where(table.c.run == run_id).scalar_subquery()
        self._write(table.insert().values(run=run_id, ordinal=ordinal, **values))

    def insert_circuits(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Add circuits of a topology; rows by column."""
        with self._writing() as connection:
            connection.execute(circuits.insert(), rows)

    def all_runs(self) -> Sequence[Row]:
        """Return the runs, the newest first; none when there is no database yet, or only a journal in it."""
        return self._read(runs.select().order_by(runs.c.id.desc())) if self.holds_runs() else ()

    def phases_of(self, lab: str, name: str) -> Sequence[tuple[str, dict[str, Any]]]:
        """Return time and figures of the phases of one name of all runs on a lab, the newest first.

        Needs no right to write: a repair looks at them on a disk that may be full.
        """
        query = (
            "select phases.at, phases.data from phases join runs on runs.id = phases.run "
            "where runs.lab = ? and phases.name = ? order by phases.at desc"
        )
        try:
            return [(row["at"], json.loads(row["data"])) for row in read_rows(self.path, query, (lab, name))]
        except (OSError, sqlite3.DatabaseError) as error:
            raise ResultsError(f"{self.path}: {error}. Make it readable, or move it away") from error

    def of_run(self, run_id: str) -> RowsOfRun:
        """Return all rows of a run, as they were when asked."""
        as_added: sa.ColumnElement[object] = sa.literal_column("rowid")
        orders = (
            (environment, environment.c.name),
            (topologies, topologies.c.ordinal),
            (circuits, as_added),
            (phases, phases.c.ordinal),
        )
        with self._reading() as connection:
            lab_info = connection.scalar(sa.select(runs.c.lab_info).where(runs.c.id == run_id))
            rows = [
                connection.execute(table.select().where(table.c.run == run_id).order_by(order)).all()
                for table, order in orders
            ]
        return RowsOfRun(cast("Mapping[str, object]", lab_info), *rows)

    def _write(self, statement: sa.Executable) -> None:
        with self._writing() as connection:
            connection.execute(statement)

    def _read(self, statement: sa.Executable) -> Sequence[Row]:
        with self._reading() as connection:
            return connection.execute(statement).all()

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Open a transaction that is committed at the end, or rolled back on an error."""
        with self._errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """Open a transaction that changes nothing."""
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
