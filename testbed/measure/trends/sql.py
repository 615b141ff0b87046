"""SQL over the runs with DuckDB. Its tables are in memory, filled from the Parquet files of all runs and the database.

A statement can access only these tables: no files, network or settings. Its changes are discarded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lightbed.wording import describe_extra
from testbed.errors import ResultsError
from testbed.measure.model import FlowFigures, LinkFigures, NicBytes, RankFigures, Timing
from testbed.measure.results.parquet import make_row_schema
from testbed.measure.results.records import RunSummary
from testbed.measure.results.run import (
    FLOWS_FILE,
    LINKS_FILE,
    PHASES_FILE,
    RANKS_FILE,
    RUN_FILE,
    PhaseRow,
    RunRow,
    make_run_row,
)
from testbed.measure.results.store import RunStore
from testbed.operate.recovery.records import load_history
from testbed.storage.reading import read_rows

if TYPE_CHECKING:
    import duckdb

_DUCKDB_TYPES = {pa.string(): "varchar", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}
TABLES_HINT = "see `testbed runs query --help` for the tables"
MAX_QUERY_S, MAX_MEMORY_MB, MAX_ROWS = 30.0, 1024, 100_000
"""Limits of a statement on time, memory and rows, because others use the machine too."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result of a statement: column names and rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def query_runs(runs_dir: str | Path, statement: str) -> QueryResult:
    """Run a SQL statement on the tables of all runs, `epochs` and `losses`, and return its result.

    Raises `ResultsError` if DuckDB is not installed, for a file that cannot be read, for invalid SQL, and for a
    statement that exceeds a limit.
    """
    duckdb = _import_duckdb()
    with duckdb.connect(":memory:") as connection:
        try:
            store = RunStore(runs_dir)
            runs = store.list_runs()
            _create_from_files(connection, "timings", Timing, runs, "timings.parquet")
            _create_from_files(connection, "phases", PhaseRow, runs, PHASES_FILE)
            _create_from_files(
                connection, "nic_bytes", NicBytes, runs, "nic_bytes.parquet", has_run_columns=True
            )
            _create_from_files(connection, "ranks", RankFigures, runs, RANKS_FILE, has_run_columns=True)
            _create_from_files(connection, "flows", FlowFigures, runs, FLOWS_FILE, has_run_columns=True)
            _create_from_files(connection, "links", LinkFigures, runs, LINKS_FILE, has_run_columns=True)
            _create_from_files(connection, "runs", RunRow, runs, RUN_FILE)
            _add_rows(
                connection, "runs", make_row_schema(RunRow, simulated=False), _make_rows_without_file(runs)
            )
            labs = sorted(
                {run.lab for run in runs}
                | {row["lab"] for row in _read_database(store, "select lab from intents")}
            )
            epochs = [{"lab": lab, **epoch} for lab in labs for epoch in load_history(store.path, lab)]
            _create_from_rows(connection, "epochs", _EPOCH_SCHEMA, epochs)
            _create_from_rows(
                connection, "losses", _LOSS_SCHEMA, _read_database(store, "select * from losses")
            )
            connection.execute(f"set memory_limit = '{MAX_MEMORY_MB}MB'")
            connection.execute(f"set max_temp_directory_size = '{MAX_MEMORY_MB}MB'")
            # The files are loaded now: the user's statement must neither read files nor undo these limits.
            connection.execute("set enable_external_access = false")
            connection.execute("set lock_configuration = true")
        except duckdb.Error as error:
            raise ResultsError(
                f"the runs in {runs_dir} cannot be read: {error}. Move away the file that it names"
            ) from error
        timer = threading.Timer(MAX_QUERY_S, connection.interrupt)
        timer.start()
        try:
            result = connection.execute(statement)
            columns = tuple(column[0] for column in result.description or ())
            rows = result.fetchmany(MAX_ROWS + 1)
        except duckdb.InterruptException as error:
            raise ResultsError(
                f"the statement took longer than {MAX_QUERY_S:g} s and was stopped; {TABLES_HINT}"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise ResultsError(
                f"the statement needs more than the {MAX_MEMORY_MB} MB that it may use; {TABLES_HINT}"
            ) from error
        except duckdb.Error as error:
            raise ResultsError(f"{str(error).strip()}; {TABLES_HINT}") from error
        finally:
            timer.cancel()
    if len(rows) > MAX_ROWS:
        raise ResultsError(
            f"the statement has more than {MAX_ROWS:,} rows: end it with `limit`, or aggregate"
        )
    return QueryResult(columns, tuple(rows))


def _import_duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise ResultsError(f"SQL over runs needs DuckDB: {describe_extra('results')}") from error
    return duckdb


_TEXT_TYPE, _NUMBER_TYPE = pa.string(), pa.float64()
_EPOCH_SCHEMA = pa.schema(
    {"lab": _TEXT_TYPE, "id": pa.int64(), "verified": pa.bool_()}
    | dict.fromkeys(("operation", "kind", "state", "at", "who", "why"), _TEXT_TYPE)
)
_LOSS_SCHEMA = pa.schema(
    {"lab": _TEXT_TYPE, "place": _TEXT_TYPE}
    | dict.fromkeys(("taken_s", "loss_db", "intent_db", "power_dbm"), _NUMBER_TYPE)
)
_RUN_ID = pa.field("run_id", _TEXT_TYPE)


def _read_database(store: RunStore, query: str) -> Sequence[Mapping[str, Any]]:
    return read_rows(store.database, query)


def _make_rows_without_file(runs: Iterable[RunSummary]) -> list[dict[str, Any]]:
    """Return the rows of the runs without `run.parquet`, which are running or were killed."""
    rows = []
    for run in runs:
        if not (run.directory / RUN_FILE).exists():
            finished = run.finished.isoformat() if run.finished else None
            row = asdict(run) | {"id": run.run_id, "started": run.started.isoformat(), "finished": finished}
            rows.append(asdict(make_run_row(row, {})))
    return rows


def _create_from_files(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    row_type: type[Any],
    runs: Iterable[RunSummary],
    file_name: str,
    *,
    has_run_columns: bool = False,
) -> None:
    """Create a table from the file `file_name` of every run. The table is empty if no run has the file."""
    file_paths = [str(path) for run in runs if (path := run.directory / file_name).exists()]
    run_id_column = "regexp_extract(filename, '([^/]+)/[^/]+$', 1) as run_id, " if has_run_columns else ""
    if not file_paths:
        schema = make_row_schema(row_type, simulated=False)
        _create_from_rows(connection, table, schema.insert(0, _RUN_ID) if has_run_columns else schema, [])
        return
    connection.execute(
        f"create table {table} as select {run_id_column}* exclude (filename) "  # noqa: S608  names of ours
        "from read_parquet($1, union_by_name = true, filename = true)",
        [file_paths],
    )


def _create_from_rows(
    connection: duckdb.DuckDBPyConnection, table: str, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]
) -> None:
    columns = ", ".join(f'"{field.name}" {_DUCKDB_TYPES[field.type]}' for field in schema)
    connection.execute(f"create table {table} ({columns})")
    _add_rows(connection, table, schema, rows)


def _add_rows(
    connection: duckdb.DuckDBPyConnection, table: str, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]
) -> None:
    new_rows = pa.Table.from_pylist(
        [{name: row.get(name) for name in schema.names} for row in rows], schema=schema
    )
    connection.register("rows_at_hand", new_rows)
    connection.execute(f"insert into {table} by name select * from rows_at_hand")  # noqa: S608  names of ours
    connection.unregister("rows_at_hand")
