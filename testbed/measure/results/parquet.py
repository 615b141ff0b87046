"""Parquet files of the rows of a frozen dataclass, which defines the schema.

The metadata of a file holds `lightbed.version`, `lightbed.rows` (the name of the dataclass) and, for simulated runs,
`SIMULATED` = `true`. So a copy elsewhere still shows its origin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from testbed.errors import ResultsError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")

_COLUMN_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def find_version() -> str:
    """Return the installed version of lightbed, or `not installed` if the code runs from a checkout."""
    try:
        return version("lightbed")
    except PackageNotFoundError:
        return "not installed"


def make_row_schema(row_type: type[Row], *, simulated: bool) -> pa.Schema:
    """Return the Parquet schema of a dataclass of str, int, float and bool fields, in field order."""
    hints = get_type_hints(row_type)
    columns = [pa.field(field.name, _COLUMN_TYPES[hints[field.name]]) for field in fields(row_type)]
    metadata = {"lightbed.version": find_version(), "lightbed.rows": row_type.__name__}
    if simulated:
        metadata["SIMULATED"] = "true"
    return pa.schema(columns, metadata=metadata)


def write_rows(path: Path, row_type: type[Row], rows: Iterable[Row], *, simulated: bool) -> None:
    """Write the rows to a file, atomically."""
    schema = make_row_schema(row_type, simulated=simulated)
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=schema)
    unfinished_path = path.with_suffix(".unfinished")
    pq.write_table(table, unfinished_path, compression="zstd")
    unfinished_path.replace(path)


def read_rows(path: Path, row_type: type[Row]) -> tuple[Row, ...]:
    """Return the rows of a file in the order written, or () if the file does not exist. Extra columns are ignored.

    Columns that earlier versions did not write have a default in the dataclass. Raises `ResultsError` if the file is
    not a Parquet file or lacks a column without default.
    """
    if not path.exists():
        return ()
    try:
        column_names = set(pq.read_schema(path).names)
        missing_columns = [
            field.name
            for field in fields(row_type)
            if field.name not in column_names
            and field.default is MISSING
            and field.default_factory is MISSING
        ]
        if missing_columns:
            raise ResultsError(
                f"{path}: no column {', '.join(missing_columns)}; the file was written by another version of lightbed. "
                f"Read it with the version named in its metadata, or measure again"
            )
        table = pq.read_table(
            path, columns=[field.name for field in fields(row_type) if field.name in column_names]
        )
    except pa.ArrowException as error:
        raise ResultsError(
            f"{path}: not a readable Parquet file ({error}). Restore it from a copy, or remove it"
        ) from error
    return tuple(row_type(**row) for row in table.to_pylist())
