"""The record of a run as Parquet beside SQL: `run.parquet` with one row, `phases.parquet` with one a phase.

They are written when the run ends, so that a directory of a run says all that it was without the database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.measure.results.parquet import write_rows

RUN_FILE = "run.parquet"
PHASES_FILE = "phases.parquet"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One row of `run.parquet`; times are ISO 8601 in UTC, `environment` is JSON."""

    run_id: str
    lab: str
    status: str
    started: str
    finished: str
    simulated: bool
    hosts: str
    error: str
    environment: str = "{}"


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One row of `phases.parquet`; `data` is JSON with units in its keys."""

    run_id: str
    ordinal: int
    name: str
    at: str
    data: str


def run_row(row: Mapping[str, Any], environment: Mapping[str, object]) -> RunRow:
    """Return the row of a run from its row in the database."""
    same = {name: row[name] for name in ("lab", "status", "started", "hosts", "error")}
    return RunRow(
        run_id=row["id"],
        finished=row["finished"] or "",
        simulated=bool(row["simulated"]),
        environment=json.dumps(environment, sort_keys=True),
        **same,
    )


def write_run_files(directory: Path, run: RunRow, phases: Iterable[Mapping[str, Any]]) -> None:
    """Write both files; each appears whole or not at all."""
    rows = [
        PhaseRow(run.run_id, row["ordinal"], row["name"], row["at"], json.dumps(row["data"]))
        for row in phases
    ]
    write_rows(directory / PHASES_FILE, PhaseRow, rows, simulated=run.simulated)
    write_rows(directory / RUN_FILE, RunRow, [run], simulated=run.simulated)
