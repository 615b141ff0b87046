"""SQL statements on the tables of results (`testbed.storage.schema`).

Reading needs no write permission and migrates nothing. Columns that a file of an earlier release lacks are empty.
Errors of the database become `ResultsError`.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlalchemy as sa

from testbed.errors import ResultsError, StorageError
from testbed.storage.address import Address
from testbed.storage.database import DATABASE_ERRORS
from testbed.storage.database import Database as Storage
from testbed.storage.reading import find_hint, get_database_message, is_database_error, read_rows
from testbed.storage.schema import circuits, environment, runs

Row: TypeAlias = Mapping[str, Any]
"""A row of a table, by column name."""


@dataclass(frozen=True, slots=True)
class RowsOfRun:
    """The lab of a run, and the rows of the run in each table, in order."""

    lab_info: Mapping[str, object]
    environment: Sequence[Row]
    topologies: Sequence[Row]
    circuits: Sequence[Row]
    phases: Sequence[Row]


class Database:
    """The tables of results. A connection is opened for each transaction and does not stay open.

    All methods raise `ResultsError` if the database cannot be read or written.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._storage = Storage(address, keep_open=False)

    def create(self) -> None:
        """Create the database, or migrate the database of an earlier release."""
        with self._convert_errors():
            self._storage.prepare()

    def insert_run(self, **values: object) -> None:
        """Insert a run. Pass values by column name."""
        self._write(runs.insert().values(machine=platform.node(), **values))

    def finish_run(self, run_id: str, **values: object) -> None:
        """Update a run at its end. Pass values by column name."""
        self._write(runs.update().where(runs.c.id == run_id).values(**values))

    def set_environment(self, run_id: str, name: str, value: object) -> None:
        """Set a fact of a run's environment. It replaces an earlier fact with that name."""
        deletion = environment.delete().where(environment.c.run == run_id, environment.c.name == name)
        self._write(deletion, environment.insert().values(run=run_id, name=name, value=value))

    def append_row(self, table: sa.Table, run_id: str, **values: object) -> None:
        """Append a row to a run's rows in a table."""
        ordinal = sa.select(sa.func.count()).where(table.c.run == run_id).scalar_subquery()
        self._write(table.insert().values(run=run_id, ordinal=ordinal, **values))

    def insert_circuits(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Insert the circuits of a topology. Each row maps column names to values."""
        with self._convert_errors(), self._storage.open_transaction() as connection:
            connection.execute(circuits.insert(), rows)

    def list_runs(self) -> Sequence[Row]:
        """Return all runs, newest first. A missing database, or one with only a journal, has none."""
        return self._read("select * from runs order by id desc")

    def read_run(self, run_id: str) -> Row:
        """Return the row of an existing run."""
        (row,) = self._read("select * from runs where id = ?", run_id)
        return row

    def list_phases(self, lab: str, name: str) -> Sequence[tuple[str, dict[str, Any]]]:
        """Return (time, data) of all phases of this name, over all runs on a lab, newest first."""
        query = (
            "select phases.at, phases.data from phases join runs on runs.id = phases.run "
            "where runs.lab = ? and phases.name = ? order by phases.at desc"
        )
        return [(row["at"], row["data"]) for row in self._read(query, lab, name, json_column="data")]

    def read_rows_of_run(self, run_id: str) -> RowsOfRun:
        """Return all rows of a run."""
        (run,) = self._read("select lab_info from runs where id = ?", run_id, json_column="lab_info")
        return RowsOfRun(
            run["lab_info"],
            self._read("select * from environment where run = ? order by name", run_id, json_column="value"),
            self._read(
                "select * from topologies where run = ? order by ordinal", run_id, json_column="topology"
            ),
            self._read("select * from circuits where run = ? order by ordinal", run_id),
            self._read("select * from phases where run = ? order by ordinal", run_id, json_column="data"),
        )

    def _write(self, *statements: sa.Executable) -> None:
        with self._convert_errors(), self._storage.open_transaction() as connection:
            for statement in statements:
                connection.execute(statement)

    def _read(self, query: str, *values: object, json_column: str = "") -> Sequence[Row]:
        """Return rows. Parse the JSON in the column `json_column`, unless the database server has already parsed it."""
        try:
            rows = read_rows(self.address, query, values)
        except Exception as error:
            if not is_database_error(error):
                raise
            hint = f"{find_hint(error)}: the files of each run beside it stay readable"
            raise ResultsError(f"{self._storage.name}: {get_database_message(error)}; {hint}") from error
        unparsed_flags = [json_column and isinstance(row[json_column], str) for row in rows]
        return [
            {**row, json_column: json.loads(row[json_column])} if is_unparsed else row
            for row, is_unparsed in zip(rows, unparsed_flags, strict=True)
        ]

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            raise ResultsError(str(error)) from error
        except DATABASE_ERRORS as error:
            hint = "the files of each run beside it stay readable"
            raise ResultsError(
                f"{self._storage.name}: {get_database_message(error)}; {find_hint(error)}: {hint}"
            ) from error
