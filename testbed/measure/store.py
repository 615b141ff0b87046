"""Where results are kept: `runs/lightbed.sqlite` for what a run was, `runs/<id>/` for what it measured.

    runs/lightbed.sqlite          runs, environment, topologies, circuits, phases (WAL; other tables may live there)
    runs/<id>/timings.parquet     one row a size and configuration (`Timing`)
    runs/<id>/nic_bytes.parquet   byte counters that prove the rings (`NicBytes`)
    runs/<id>/nccl/*.json         the same timings as documents of nccl-tests

A run is on record before it does anything, and holds a lock on its directory while its process lives:
a run that never finished and whose lock is free was interrupted. Several processes may write at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, cast

import sqlalchemy as sa

from testbed.errors import ResultsError
from testbed.lab.model import Lab
from testbed.measure import database
from testbed.measure.database import Database
from testbed.measure.model import NicBytes, Timing
from testbed.measure.nccl_json import redact_document
from testbed.measure.parquet import lightbed_version, read_rows, write_rows
from testbed.measure.records import (
    REPATCH,
    Json,
    LabInfo,
    Repatch,
    RunSummary,
    StoredCircuit,
    StoredPhase,
    StoredRun,
    StoredTopology,
)

DATABASE = "lightbed.sqlite"
FinalStatus = Literal["done", "failed", "interrupted"]

_SECRET_WORD = re.compile(r"(pass(word|phrase)?|token|secret|api-?key|credential)", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line without its secrets: values of options such as `--password`, names in URLs.

    >>> redact_arguments(["testbed", "--password", "x", "--token=y", "polatis+tl1://u:p@sw:3082"])
    ('testbed', '--password', '***', '--token=***', 'polatis+tl1://***@sw:3082')
    """
    shown: list[str] = []
    secret_follows = False
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        is_secret = option.startswith("-") and _SECRET_WORD.search(option) is not None
        if secret_follows:
            shown.append("***")
        elif is_secret and equals:
            shown.append(f"{option}=***")
        else:
            shown.append(_SECRET_IN_URL.sub("***@", argument))
        secret_follows = is_secret and not equals and not secret_follows
    return tuple(shown)


class RunStore:
    """The results of a laboratory: a directory with one database and one directory a run.

    Nothing is created before the first `begin`. All methods raise `ResultsError` when the database or
    a file cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._database = Database(self.path / DATABASE)

    @property
    def database(self) -> Path:
        """The SQLite file; the journal of operations may live in it too."""
        return self._database.path

    def begin(
        self,
        lab: Lab | LabInfo,
        simulated: bool,
        hosts: str,
        seeds: Mapping[str, int],
        arguments: Sequence[str] | None = None,
    ) -> Run:
        """Put a new run on record, before it does anything, and return the handle to add to it.

        `hosts` is `kernel`, `model` or `real`; `arguments` default to this process's own (redacted).
        """
        self._database.create()
        info = lab if isinstance(lab, LabInfo) else LabInfo.of(lab)
        started, directory = self._new_directory()
        lock = _take_lock(directory)
        run = Run(self._database, directory, simulated=simulated, lock=lock)
        with self._database.writing() as connection:
            connection.execute(
                database.runs.insert().values(
                    id=run.run_id,
                    lab=info.name,
                    lab_info=asdict(info),
                    status="running",
                    started=started.isoformat(),
                    simulated=simulated,
                    hosts=hosts,
                )
            )
        run.add_environment("seeds", dict(seeds))
        run.add_environment("arguments", redact_arguments(sys.argv if arguments is None else arguments))
        run.add_environment("versions", own_versions())
        run.add_environment("machine", {"processors": os.cpu_count() or 0, "system": platform.platform()})
        return run

    def list_runs(self) -> tuple[RunSummary, ...]:
        """All runs, the newest first; none when there is no database yet."""
        if not self.database.exists():
            return ()
        with self._database.reading() as connection:
            rows = connection.execute(database.runs.select().order_by(database.runs.c.id.desc())).all()
        return tuple(self._summary(row) for row in rows)

    def load(self, run_id: str) -> StoredRun:
        """Everything of one run, named by its id, by the unambiguous beginning of it, or by `last`."""
        summary = self._find(run_id)
        of_run = summary.run_id
        with self._database.reading() as connection:
            info = connection.scalar(sa.select(database.runs.c.lab_info).where(database.runs.c.id == of_run))
            environment = _select(connection, database.environment, of_run, database.environment.c.name)
            topologies = _select(connection, database.topologies, of_run, database.topologies.c.ordinal)
            circuits = _select(
                connection,
                database.circuits,
                of_run,
                database.circuits.c.topology,
                database.circuits.c.ordinal,
            )
            phases = _select(connection, database.phases, of_run, database.phases.c.ordinal)
        return StoredRun(
            summary=summary,
            lab=_lab_info(cast("Mapping[str, object]", info)),
            environment={row.name: row.value for row in environment},
            topologies=tuple(_topology(row.topology) for row in topologies),
            circuits=_circuits_by_topology(circuits),
            phases=tuple(StoredPhase(row.name, datetime.fromisoformat(row.at), row.data) for row in phases),
            timings=read_rows(summary.directory / "timings.parquet", Timing),
            nic_bytes=read_rows(summary.directory / "nic_bytes.parquet", NicBytes),
        )

    def _find(self, run_id: str) -> RunSummary:
        runs = self.list_runs()
        found = runs[:1] if run_id == "last" else [run for run in runs if run.run_id == run_id]
        found = found or [run for run in runs if run_id and run.run_id.startswith(run_id)]
        if len(found) == 1:
            return found[0]
        what = f"{len(found)} runs begin with {run_id!r}" if found else f"no run {run_id!r}"
        names = ", ".join(run.run_id for run in (found or runs)[:5]) or "none"
        raise ResultsError(f"{what} in {self.path}; it holds: {names}. List all with `testbed runs`")

    def _summary(self, row: sa.Row[tuple[object, ...]]) -> RunSummary:
        directory = self.path / row.id
        interrupted = row.status == "running" and not _is_locked(directory)
        return RunSummary(
            run_id=row.id,
            directory=directory,
            lab=row.lab,
            status="interrupted" if interrupted else row.status,
            started=datetime.fromisoformat(row.started),
            finished=datetime.fromisoformat(row.finished) if row.finished else None,
            simulated=row.simulated,
            hosts=row.hosts,
            error=row.error,
        )

    def _new_directory(self) -> tuple[datetime, Path]:
        """Make a directory named by the time to the microsecond; `mkdir` decides between two processes."""
        started = datetime.now(UTC)
        while True:
            directory = self.path / started.strftime("%Y%m%dT%H%M%S-%f")
            try:
                directory.mkdir()
            except FileExistsError:
                started += timedelta(microseconds=1)
            else:
                return started, directory


class Run:
    """The handle to add to one run. As a context manager it finishes the run, also on an error.

    Add what is known as soon as it is known: what was added survives a crash.
    """

    def __init__(self, database: Database, directory: Path, *, simulated: bool, lock: int) -> None:
        self.run_id = directory.name
        self.directory = directory
        self.simulated = simulated
        self._database = database
        self._lock: int | None = lock
        self._timings: list[Timing] = []
        self._nic_bytes: list[NicBytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is None:
            return
        if error is None:
            self.finish("done")
        elif isinstance(error, Exception):
            self.finish("failed", error=f"{type(error).__name__}: {error}")
        else:
            self.finish("interrupted", error=type(error).__name__)

    def add_environment(self, name: str, value: Json) -> None:
        """Keep one fact of the environment (versions, seeds, kernel settings); the last one said counts."""
        with self._database.writing() as connection:
            connection.execute(
                database.environment.insert()
                .prefix_with("OR REPLACE")
                .values(run=self.run_id, name=name, value=value)
            )

    def add_versions(self, versions: Mapping[str, str]) -> None:
        """Keep what ran on the hosts beside our own versions."""
        self.add_environment("versions", {**own_versions(), **versions})

    def add_topology(self, topology: StoredTopology) -> None:
        """Keep a topology, in the order it was used."""
        self._append(database.topologies, topology=asdict(topology))

    def add_circuits(self, topology: str, rows: Iterable[StoredCircuit]) -> None:
        """Keep the circuits that carry the topology of that name."""
        values = [
            {"run": self.run_id, "topology": topology, "ordinal": ordinal, **asdict(row)}
            for ordinal, row in enumerate(rows)
        ]
        if values:
            with self._database.writing() as connection:
                connection.execute(database.circuits.insert(), values)

    def add_phase(self, name: str, data: Mapping[str, Json]) -> None:
        """Keep the figures of something that happened: a name and JSON with units in its keys."""
        self._append(database.phases, name=name, at=datetime.now(UTC).isoformat(), data=data)

    def add_repatch(self, repatch: Repatch) -> None:
        """Keep a change of topology; the report gives it a section of its own."""
        self.add_phase(REPATCH, repatch.to_json())

    def add_timings(self, rows: Iterable[Timing]) -> None:
        """Add rows to `timings.parquet`; `run_id` and `simulated` of the rows must be those of the run."""
        rows = tuple(rows)
        for row in rows:
            if (row.run_id, row.simulated) != (self.run_id, self.simulated):
                raise ValueError(
                    f"a timing of run {row.run_id!r} (simulated: {row.simulated}) given to run "
                    f"{self.run_id!r} (simulated: {self.simulated})"
                )
        self._timings.extend(rows)
        write_rows(self.directory / "timings.parquet", Timing, self._timings, simulated=self.simulated)

    def add_nic_bytes(self, rows: Iterable[NicBytes]) -> None:
        """Add rows to `nic_bytes.parquet`."""
        self._nic_bytes.extend(rows)
        write_rows(self.directory / "nic_bytes.parquet", NicBytes, self._nic_bytes, simulated=self.simulated)

    def add_nccl(self, name: str, document: Mapping[str, object]) -> Path:
        """Write `nccl/<name>.json`, a document of nccl-tests, without the secrets of its environment."""
        path = self.directory / "nccl" / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.json"
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(redact_document(document), indent=1) + "\n")
        unfinished.replace(path)
        return path

    def finish(self, status: FinalStatus, *, error: str = "") -> None:
        """Say how the run ended and let go of its lock; the first word counts."""
        if self._lock is None:
            return
        with self._database.writing() as connection:
            connection.execute(
                database.runs.update()
                .where(database.runs.c.id == self.run_id)
                .values(status=status, error=error, finished=datetime.now(UTC).isoformat())
            )
        os.close(self._lock)
        self._lock = None

    def _append(self, table: sa.Table, **values: object) -> None:
        ordinal = sa.select(sa.func.count()).where(table.c.run == self.run_id).scalar_subquery()
        with self._database.writing() as connection:
            connection.execute(table.insert().values(run=self.run_id, ordinal=ordinal, **values))


def own_versions() -> dict[str, str]:
    """Versions of lightbed and of the interpreter that runs it."""
    return {"lightbed": lightbed_version(), "python": platform.python_version()}


def _take_lock(directory: Path) -> int:
    descriptor = os.open(directory / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _is_locked(directory: Path) -> bool:
    try:
        with (directory / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _select(
    connection: sa.Connection, table: sa.Table, run_id: str, *order: sa.ColumnElement[object]
) -> Sequence[sa.Row[tuple[object, ...]]]:
    return connection.execute(table.select().where(table.c.run == run_id).order_by(*order)).all()


def _lab_info(data: Mapping[str, object]) -> LabInfo:
    lists = {name: tuple(cast("Sequence[object]", data[name])) for name in ("host_names", "nics", "switches")}
    return LabInfo(**{**data, **lists})  # type: ignore[arg-type]


def _topology(data: Mapping[str, object]) -> StoredTopology:
    strides = tuple(cast("Sequence[int]", data["strides"]))
    links = tuple((a, b) for a, b in cast("Sequence[Sequence[int]]", data["links"]))
    return StoredTopology(**{**data, "strides": strides, "links": links})  # type: ignore[arg-type]


def _circuits_by_topology(
    rows: Sequence[sa.Row[tuple[object, ...]]],
) -> Mapping[str, tuple[StoredCircuit, ...]]:
    found: dict[str, list[StoredCircuit]] = {}
    for row in rows:
        circuit = StoredCircuit(row.source, row.target, row.switch, row.input_port, row.output_port)
        found.setdefault(row.topology, []).append(circuit)
    return {name: tuple(circuits) for name, circuits in found.items()}
