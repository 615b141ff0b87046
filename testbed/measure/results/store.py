"""Store of results: `runs/lightbed.sqlite` for records of runs, `runs/<id>/` for their measurements.

    runs/lightbed.sqlite          runs, environment, topologies, circuits, phases (WAL; the journal adds its tables)
    runs/<id>/run.parquet         the row of a run that has ended (`RunRow`)
    runs/<id>/phases.parquet      one row per phase of a run that has ended (`PhaseRow`)
    runs/<id>/timings.parquet     one row per size and configuration (`Timing`)
    runs/<id>/nic_bytes.parquet   byte counters that prove the routes (`NicBytes`)
    runs/<id>/ranks.parquet       what each rank measured about itself in each iteration (`RankFigures`)
    runs/<id>/flows.parquet       what each rank measured about its connections (`FlowFigures`)
    runs/<id>/links.parquet       what each rank measured about its links (`LinkFigures`)
    runs/<id>/nccl/*.json         the same timings as documents of nccl-tests

A run is recorded before it does anything, and its process holds a lock on its directory. A run that has not finished
but whose lock is free was interrupted. Several processes may write at once.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from testbed.errors import ResultsError
from testbed.lab.model import Lab
from testbed.measure.model import FlowFigures, LinkFigures, NicBytes, RankFigures, Timing
from testbed.measure.results.database import Database, Row
from testbed.measure.results.parquet import read_rows
from testbed.measure.results.records import (
    Json,
    LabInfo,
    RunSummary,
    StoredCircuit,
    StoredPhase,
    StoredRun,
    StoredTopology,
)
from testbed.measure.results.run import (
    FLOWS_FILE,
    LINKS_FILE,
    RANKS_FILE,
    Run,
    is_locked,
    read_own_versions,
    redact_arguments,
    take_lock,
)
from testbed.storage.address import Address, get_database_address


class RunStore:
    """The stored results: a directory with one database, and one directory per run.

    The first `begin_run` creates them. All methods raise `ResultsError` if the database or a file cannot be read. `now`
    returns the time in UTC.
    """

    def __init__(self, path: Path | str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = Path(path)
        self._now = now
        self._database = Database(get_database_address(self.path))

    @property
    def database(self) -> Address:
        """The SQLite file or the database server. It also holds the journal of operations."""
        return self._database.address

    def begin_run(
        self,
        lab: Lab | LabInfo,
        is_simulated: bool,
        host_kind: str,
        seeds: Mapping[str, int],
        arguments: Sequence[str] | None = None,
    ) -> Run:
        """Record a new run and return its handle. Call it before the run does anything.

        `host_kind` is `kernel`, `model` or `real`. `arguments` default to this process's arguments; they are redacted.
        """
        self._database.create()
        self.path.mkdir(parents=True, exist_ok=True)
        info = lab if isinstance(lab, LabInfo) else LabInfo.from_lab(lab)
        start_time, directory = self._make_run_directory()
        lock_descriptor = take_lock(directory)
        run = Run(self._database, directory, simulated=is_simulated, lock=lock_descriptor)
        self._database.insert_run(
            id=run.run_id,
            lab=info.name,
            lab_info=asdict(info),
            status="running",
            started=start_time.isoformat(),
            simulated=is_simulated,
            hosts=host_kind,
        )
        run.add_environment("seeds", dict(seeds))
        run.add_environment("arguments", redact_arguments(sys.argv if arguments is None else arguments))
        run.add_environment("versions", read_own_versions())
        run.add_environment("machine", {"processors": os.cpu_count() or 0, "system": platform.platform()})
        return run

    def close_killed_run(self, run_id: str, error: str) -> None:
        """Mark a run whose process was killed as interrupted, with this error. Do nothing if the run has ended."""
        summary = self._find_run(run_id)
        if summary.finished is None:
            lock_descriptor = take_lock(summary.directory)
            run = Run(self._database, summary.directory, simulated=summary.simulated, lock=lock_descriptor)
            run.finish("interrupted", error=error)

    def list_runs(self) -> tuple[RunSummary, ...]:
        """Return all runs, newest first. A missing database, or one with only a journal, has none."""
        return tuple(self._summarise(row) for row in self._database.list_runs())

    def load_run(self, run_id: str) -> StoredRun:
        """Return all records of a run. `run_id` is the id of the run, an unambiguous prefix of the id, or `last`."""
        summary = self._find_run(run_id)
        rows = self._database.read_rows_of_run(summary.run_id)
        list_fields = {
            name: tuple(cast("Sequence[object]", rows.lab_info[name]))
            for name in ("host_names", "nics", "switches")
        }
        return StoredRun(
            summary=summary,
            lab=LabInfo(**{**rows.lab_info, **list_fields}),  # type: ignore[arg-type]
            environment={row["name"]: row["value"] for row in rows.environment},
            topologies=tuple(_parse_topology(row["topology"]) for row in rows.topologies),
            circuits=_group_circuits(rows.topologies, rows.circuits),
            phases=tuple(_parse_phase(row["name"], row["at"], row["data"]) for row in rows.phases),
            timings=read_rows(summary.directory / "timings.parquet", Timing),
            nic_bytes=read_rows(summary.directory / "nic_bytes.parquet", NicBytes),
            ranks=read_rows(summary.directory / RANKS_FILE, RankFigures),
            flows=read_rows(summary.directory / FLOWS_FILE, FlowFigures),
            links=read_rows(summary.directory / LINKS_FILE, LinkFigures),
        )

    def list_phases(self, lab: str, name: str) -> tuple[StoredPhase, ...]:
        """Return all phases of this name, over all runs on a lab, newest first."""
        return tuple(
            _parse_phase(name, recorded_at, data)
            for recorded_at, data in self._database.list_phases(lab, name)
        )

    def _find_run(self, run_id: str) -> RunSummary:
        runs = self.list_runs()
        matches = runs[:1] if run_id == "last" else [run for run in runs if run.run_id == run_id]
        matches = matches or [run for run in runs if run_id and run.run_id.startswith(run_id)]
        if len(matches) == 1:
            return matches[0]
        problem = f"{len(matches)} runs begin with {run_id!r}" if matches else f"no run {run_id!r}"
        names = ", ".join(run.run_id for run in (matches or runs)[:5]) or "none"
        raise ResultsError(f"{problem} in {self.path}; it holds: {names}. List all with `testbed runs`")

    def _summarise(self, row: Row) -> RunSummary:
        directory = self.path / row["id"]
        is_own_machine = row.get("machine") in (
            None,
            "",
            platform.node(),
        )  # another machine's lock cannot be checked here
        is_interrupted = row["status"] == "running" and is_own_machine and not is_locked(directory)
        return RunSummary(
            run_id=row["id"],
            directory=directory,
            lab=row["lab"],
            status="interrupted" if is_interrupted else row["status"],
            started=datetime.fromisoformat(row["started"]),
            finished=datetime.fromisoformat(row["finished"]) if row["finished"] else None,
            simulated=bool(row["simulated"]),
            hosts=row["hosts"],
            error=row["error"],
        )

    def _make_run_directory(self) -> tuple[datetime, Path]:
        """Create a directory named by the time in microseconds. `mkdir` makes the name unique among processes."""
        start_time = self._now()
        while True:
            directory = self.path / start_time.strftime("%Y%m%dT%H%M%S-%f")
            try:
                directory.mkdir()
            except FileExistsError:
                start_time += timedelta(microseconds=1)
            else:
                return start_time, directory


def _parse_phase(name: str, recorded_at: str, data: Mapping[str, Json]) -> StoredPhase:
    return StoredPhase(name, datetime.fromisoformat(recorded_at), data)


def _parse_topology(data: Mapping[str, object]) -> StoredTopology:
    strides = tuple(cast("Sequence[int]", data["strides"]))
    links = tuple((a, b) for a, b in cast("Sequence[Sequence[int]]", data["links"]))
    return StoredTopology(**{**data, "strides": strides, "links": links})  # type: ignore[arg-type]


def _group_circuits(
    topologies: Sequence[Row], circuits: Sequence[Row]
) -> Mapping[str, tuple[StoredCircuit, ...]]:
    circuits_by_topology: dict[str, list[StoredCircuit]] = {row["topology"]["name"]: [] for row in topologies}
    for row in circuits:
        columns = (row[key] for key in ("source", "target", "switch", "input_port", "output_port"))
        circuits_by_topology.setdefault(row["topology"], []).append(StoredCircuit(*columns))
    return {name: tuple(circuits) for name, circuits in circuits_by_topology.items() if circuits}
