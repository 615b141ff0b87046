"""The handle of a run, which stores each result immediately, so that results survive a crash.

Secrets on command lines and in environments are redacted. A run that ends also writes its record as Parquet files:
`run.parquet` with one row, and `phases.parquet` with one row per phase. So the run's directory is complete without the
database.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from lightbed.output_file import replace_file
from testbed.log_context import about, logger
from testbed.measure.model import FlowFigures, LinkFigures, NicBytes, RankFigures, Timing
from testbed.measure.results.database import Database
from testbed.measure.results.parquet import find_version, write_rows
from testbed.measure.results.records import (
    INFERENCE,
    REPATCH,
    Inference,
    Json,
    Repatch,
    StoredCircuit,
    StoredTopology,
)
from testbed.storage.schema import phases, topologies

_SECRET_PATTERN = re.compile(r"pass(word|phrase|wd)?|token|secret|key|credential|auth", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"-.*(pass(word|phrase|wd)?|token|secret|api-?key|credential)", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_KEPT_VARIABLES = re.compile(r"(NCCL|CUDA|UCX|OMPI_MCA|GLOO|OMP)_\w*")
RUN_FILE = "run.parquet"
PHASES_FILE = "phases.parquet"
RANKS_FILE = "ranks.parquet"
FLOWS_FILE = "flows.parquet"
LINKS_FILE = "links.parquet"
FinalStatus = Literal["done", "failed", "interrupted"]


class Run:
    """The handle of a run. Add results as soon as they are known, so that they survive a crash.

    As a context manager it finishes the run, also after an error.
    """

    def __init__(self, database: Database, directory: Path, *, simulated: bool, lock: int) -> None:
        self.run_id = directory.name
        self.directory = directory
        self.simulated = simulated
        self._database = database
        self._lock_descriptor: int | None = lock
        self._timings: list[Timing] = []
        self._nic_bytes: list[NicBytes] = []
        self._ranks: list[RankFigures] = []
        self._flows: list[FlowFigures] = []
        self._links: list[LinkFigures] = []
        self._log_context = ExitStack()

    def __enter__(self) -> Self:
        self._log_context.enter_context(about(run=self.run_id))
        logger.info("run started")
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._log_context:
            if error is None:
                self.finish("done")
            elif isinstance(error, Exception):
                self.finish("failed", error=f"{type(error).__name__}: {error}")
            else:
                self.finish("interrupted", error=type(error).__name__)

    def add_environment(self, name: str, value: Json) -> None:
        """Record a fact of the environment (versions, seeds, kernel settings). It replaces an earlier value."""
        self._database.set_environment(self.run_id, name, value)

    def add_versions(self, versions: Mapping[str, str]) -> None:
        """Record the versions of the software on the hosts, together with our own."""
        self.add_environment("versions", {**read_own_versions(), **versions})

    def add_topology(self, topology: StoredTopology) -> None:
        """Record a topology. Add topologies in the order of use."""
        self._database.append_row(topologies, self.run_id, topology=asdict(topology))

    def add_circuits(self, topology_name: str, rows: Iterable[StoredCircuit]) -> None:
        """Record the circuits of the topology with that name."""
        values = [
            {"run": self.run_id, "topology": topology_name, "ordinal": ordinal, **asdict(row)}
            for ordinal, row in enumerate(rows)
        ]
        if values:
            self._database.insert_circuits(values)

    def add_phase(self, name: str, data: Mapping[str, Json]) -> None:
        """Record an event of the run: a name, and JSON data whose keys end in units."""
        recorded_at, document = datetime.now(UTC).isoformat(), dict(data)
        self._database.append_row(phases, self.run_id, name=name, at=recorded_at, data=document)

    def add_repatch(self, repatch: Repatch) -> None:
        """Record a change of topology, which gets its own section in the report."""
        self.add_phase(REPATCH, repatch.to_json())

    def add_inference(self, inference: Inference) -> None:
        """Record a trial of a board, which gets its own section in the report."""
        self.add_phase(INFERENCE, inference.to_json())

    def add_timings(self, rows: Iterable[Timing]) -> None:
        """Add rows to `timings.parquet`. Raise `ValueError` if their `run_id` or `simulated` differ from the run's."""
        rows = tuple(rows)
        for row in rows:
            if (row.run_id, row.simulated) != (self.run_id, self.simulated):
                raise ValueError(
                    f"a timing of run {row.run_id!r} (simulated: {row.simulated}) was given to run {self.run_id!r} "
                    f"(simulated: {self.simulated})"
                )
        self._timings.extend(rows)
        write_rows(self.directory / "timings.parquet", Timing, self._timings, simulated=self.simulated)

    def add_nic_bytes(self, rows: Iterable[NicBytes]) -> None:
        """Add rows to `nic_bytes.parquet`."""
        self._nic_bytes.extend(rows)
        write_rows(self.directory / "nic_bytes.parquet", NicBytes, self._nic_bytes, simulated=self.simulated)

    def add_rank_figures(
        self, ranks: Iterable[RankFigures], flows: Iterable[FlowFigures], links: Iterable[LinkFigures]
    ) -> None:
        """Add rows to `ranks.parquet`, `flows.parquet` and `links.parquet`. Modelled hosts have no rows."""
        self._ranks.extend(ranks)
        self._flows.extend(flows)
        self._links.extend(links)
        if self._ranks:
            write_rows(self.directory / RANKS_FILE, RankFigures, self._ranks, simulated=self.simulated)
            write_rows(self.directory / FLOWS_FILE, FlowFigures, self._flows, simulated=self.simulated)
            write_rows(self.directory / LINKS_FILE, LinkFigures, self._links, simulated=self.simulated)

    def add_nccl(self, name: str, document: Mapping[str, object]) -> Path:
        """Write a document of nccl-tests, without the secrets in its environment, to `nccl/<name>.json`."""
        path = self.directory / "nccl" / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.json"
        path.parent.mkdir(exist_ok=True)
        with replace_file(path) as file:
            file.write(f"{json.dumps(redact_document(document), indent=1)}\n".encode())
        return path

    def finish(self, status: FinalStatus, *, error: str = "") -> None:
        """Record how the run ended, write its files, and release its lock. Later calls do nothing."""
        if self._lock_descriptor is None:
            return
        finished_at = datetime.now(UTC).isoformat()
        logger.info("run ended: %s%s", status, f" ({error})" if error else "")
        self._database.finish_run(self.run_id, status=status, error=error, finished=finished_at)
        try:
            row = self._database.read_run(self.run_id)
            rows = self._database.read_rows_of_run(self.run_id)
            environment = {fact["name"]: fact["value"] for fact in rows.environment}
            write_run_files(self.directory, make_run_row(row, environment), rows.phases)
        finally:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None


def read_own_versions() -> dict[str, str]:
    """Return the versions of lightbed and of Python."""
    return {"lightbed": find_version(), "python": platform.python_version()}


def take_lock(directory: Path) -> int:
    """Lock the directory of a run and return the open file descriptor. Closing it or ending this process unlocks."""
    descriptor = os.open(directory / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_locked(directory: Path) -> bool:
    """Return whether the process of a run is alive. The kernel releases the lock when the process ends."""
    try:
        with (directory / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return a command line without secrets: values of options such as `--password`, and credentials in URLs.

    >>> redact_arguments(["testbed", "--password", "x", "--token=y", "polatis+tl1://u:p@sw:3082"])
    ('testbed', '--password', '***', '--token=***', 'polatis+tl1://***@sw:3082')
    """
    redacted_arguments: list[str] = []
    secret_follows = False
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        is_secret = _SECRET_OPTION.match(option) is not None
        if secret_follows:
            redacted_arguments.append("***")
        elif is_secret and equals:
            redacted_arguments.append(f"{option}=***")
        else:
            redacted_arguments.append(_SECRET_IN_URL.sub("***@", argument))
        secret_follows = is_secret and not equals and not secret_follows
    return tuple(redacted_arguments)


def redact_document(document: Mapping[str, object]) -> dict[str, object]:
    """Return the document with an `env` that keeps only communication settings, without secrets.

    >>> redact_document({"env": ["HOME=/root", "NCCL_ALGO=Ring", "NCCL_TOKEN=x"]})
    {'env': ['NCCL_ALGO=Ring']}
    """
    redacted_document = dict(document)
    if "env" in redacted_document:
        redacted_document["env"] = _redact_environment(redacted_document["env"])
    return redacted_document


def _redact_environment(environment: object) -> list[str]:
    if isinstance(environment, Mapping):
        environment = [f"{key}={value}" for key, value in environment.items()]
    entries = (
        [entry for entry in environment if isinstance(entry, str)]
        if isinstance(environment, list | tuple)
        else []
    )
    name_by_entry = {entry: entry.partition("=")[0] for entry in entries}
    return [
        entry
        for entry, name in name_by_entry.items()
        if _KEPT_VARIABLES.fullmatch(name) and not _SECRET_PATTERN.search(name)
    ]


@dataclass(frozen=True, slots=True)
class RunRow:
    """The row of `run.parquet`. Times are ISO 8601 in UTC, `environment` is JSON."""

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
    """One row of `phases.parquet`. `data` is JSON whose keys end in units."""

    run_id: str
    ordinal: int
    name: str
    at: str
    data: str


def make_run_row(row: Mapping[str, Any], environment: Mapping[str, object]) -> RunRow:
    """Return the row of a run from its row in the database."""
    same_columns = {name: row[name] for name in ("lab", "status", "started", "hosts", "error")}
    return RunRow(
        run_id=row["id"],
        finished=row["finished"] or "",
        simulated=bool(row["simulated"]),
        environment=json.dumps(environment, sort_keys=True),
        **same_columns,
    )


def write_run_files(directory: Path, run: RunRow, phase_rows: Iterable[Mapping[str, Any]]) -> None:
    """Write `run.parquet` and `phases.parquet`, each atomically."""
    rows = [
        PhaseRow(run.run_id, row["ordinal"], row["name"], row["at"], json.dumps(row["data"]))
        for row in phase_rows
    ]
    write_rows(directory / PHASES_FILE, PhaseRow, rows, simulated=run.simulated)
    write_rows(directory / RUN_FILE, RunRow, [run], simulated=run.simulated)
