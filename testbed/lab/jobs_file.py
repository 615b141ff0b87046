"""The file of jobs that share a lab (`JOBS.yaml`); errors name the line.

An example:

    jobs:
      - name: bert
        period_ms: 155
        bursts: [{start_ms: 54, length_ms: 101, gbps: 25}]
        hosts: [a, b]      # or `workers: 2`, which leaves the placement open
        traffic: bulk      # or allreduce; default: bulk between two hosts, allreduce among more
      - name: dlrm
        workload: dlrm     # instead of period and bursts: one iteration is simulated on the ring of its hosts
        settings: {batch: 64}
        workers: 3
      - name: save
        checkpoint: {bytes: 12_000_000_000, every_s: 30}   # a write of all hosts together, every 30 s
        hosts: [a, b]
        storage: [d]       # host i writes to storage host i modulo their number
      - name: measured
        run: 20261123T101500-281678   # instead of period and bursts: the phases of this job in a measured run
        hosts: [c, d]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from testbed.design.sharing.jobs import Burst, SharedJob
from testbed.errors import LabFileError, TestbedError, WorkloadError
from testbed.lab.document import Document, Location, parse_document

_COMMON_KEYS = {"name", "hosts", "workers", "traffic"}
_PHASE_KEYS = {"period_ms", "bursts"}
_WORKLOAD_KEYS = {"workload", "preset", "settings", "device", "strategy"}
_CHECKPOINT_KEYS = {"bytes", "every_s", "gbps"}
_BURST_KEYS = ("start_ms", "length_ms", "gbps")
EXAMPLE = (
    "jobs: [{name: a, period_ms: 300, bursts: [{start_ms: 150, length_ms: 150, gbps: 25}], hosts: [a, b]}]"
)
MeasuredPhases = Callable[[str, str], tuple[float, tuple[Burst, ...]]]
"""Function that returns the measured period (ms) and bursts of a run and job, or raises `WorkloadError`."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """Facts that the file lacks: the rate of a link, which no burst may exceed, and the number of NICs of a host.

    `measured` returns the phases of stored runs. It is None if no runs are available.
    """

    rate_gbps: float = 25.0
    measured: MeasuredPhases | None = None
    nics: int = 1


def read_jobs(path: Path, context: JobContext | None = None) -> tuple[SharedJob, ...]:
    """Read the jobs of a file. Raises `WorkloadError`, which starts with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise WorkloadError(f"{path}:1: cannot be read ({reason}); give a file with {EXAMPLE}") from None
    return parse_jobs(path, text, context)


def parse_jobs(path: Path, text: str, context: JobContext | None = None) -> tuple[SharedJob, ...]:
    """Parse the text of a file of jobs. `path` names the file in errors. Raises `WorkloadError`."""
    try:
        document = parse_document(path, text)
        return _parse_jobs(document, context or JobContext())
    except LabFileError as error:
        raise WorkloadError(str(error)) from None


def _parse_jobs(document: Document, context: JobContext) -> tuple[SharedJob, ...]:
    rows = document.data.get("jobs")
    if not isinstance(rows, list) or not rows:
        raise document.error((), "the list of jobs is missing", f"write {EXAMPLE}")
    jobs: list[SharedJob] = []
    for number, row in enumerate(rows):
        job = _parse_job(document, ("jobs", number), row, context)
        if job.name in {other.name for other in jobs}:
            raise document.error(("jobs", number), f"job {job.name!r} appears twice", "give it another name")
        jobs.append(job)
    return tuple(jobs)


def _parse_job(document: Document, where: Location, row: Any, context: JobContext) -> SharedJob:
    source = next(
        (key for key in ("workload", "run", "checkpoint") if isinstance(row, Mapping) and key in row), ""
    )
    keys = {"workload": _WORKLOAD_KEYS, "run": {"run", "job"}, "checkpoint": {"checkpoint", "storage"}}
    own = keys.get(source, _PHASE_KEYS)
    common = _COMMON_KEYS - {"traffic"} if source == "checkpoint" else _COMMON_KEYS
    _check_keys(document, where, row, common | own)
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise document.error(where, "a job has no name", "add 'name: NAME'")
    hosts, workers = _parse_hosts(document, where, row, name)
    traffic = row.get("traffic", "")
    if traffic not in ("", "bulk", "allreduce"):
        raise document.error(
            (*where, "traffic"),
            f"traffic of job {name!r} is {traffic!r}",
            "give traffic: bulk or traffic: allreduce",
        )
    storage: tuple[str, ...] = ()
    if source == "checkpoint":
        storage = _parse_storage(document, where, row, name)
        period_ms, phases = _parse_checkpoint(document, where, row, workers, len(storage), context)
    elif source:
        period_ms, phases = _read_source_phases(document, where, row, source, workers, context)
    else:
        bursts = row.get("bursts")
        period_ms = _parse_number(
            document, (*where, "period_ms"), row.get("period_ms"), f"period_ms of job {name!r}"
        )
        if not isinstance(bursts, list):
            raise document.error(
                (*where, "bursts"), f"job {name!r} has no list of bursts", f"write {EXAMPLE}"
            )
        phases = tuple(
            _parse_burst(document, (*where, "bursts", n), burst, name) for n, burst in enumerate(bursts)
        )
        _check_rates(document, (*where, "bursts"), name, phases, context.rate_gbps)
    job = SharedJob(name, period_ms, phases, hosts, workers, traffic, storage)
    try:
        job.on(())
    except ValueError as error:
        raise document.error(where, str(error), "correct period_ms and bursts") from None
    return job


def _check_rates(
    document: Document, where: Location, name: str, bursts: Sequence[Burst], rate_gbps: float
) -> None:
    for number, burst in enumerate(bursts):
        if burst.gbps > rate_gbps:
            length_ms = burst.length_ms * burst.gbps / rate_gbps
            raise document.error(
                (*where, number),
                (
                    f"a burst of job {name!r} has {burst.gbps:g} Gb/s, but a link of the lab carries only "
                    f"{rate_gbps:g}"
                ),
                f"give the rate on such a link, for example {rate_gbps:g} Gb/s for {length_ms:g} ms",
            )


def _read_source_phases(
    document: Document,
    where: Location,
    row: Mapping[str, Any],
    source: str,
    workers: int,
    context: JobContext,
) -> tuple[float, tuple[Burst, ...]]:
    """Return the period (ms) and bursts of a workload or of a measured run."""
    try:
        if source == "run":
            if context.measured is None:
                raise WorkloadError("no stored runs are available here")
            return context.measured(str(row["run"]), str(row.get("job", row["name"])))
        from testbed.design.sharing.workload_phases import simulate_phases
        from testbed.design.workloads.choice import WorkloadChoice

        settings = row.get("settings") or {}
        if not isinstance(settings, Mapping):
            raise WorkloadError(f"settings are {settings!r}, not a mapping: write settings: {{batch: 64}}")
        choice = WorkloadChoice(
            str(row["workload"]),
            str(row.get("preset", "")),
            {str(key): str(value) for key, value in settings.items()},
            str(row.get("device", "")),
        )
        phases = simulate_phases(choice, workers, context.rate_gbps, str(row.get("strategy", "default")))
        return phases.period_ms, phases.bursts
    except (TestbedError, OSError) as error:
        raise document.error((*where, source), str(error), f"correct {source}, or write {EXAMPLE}") from None


def _parse_checkpoint(
    document: Document,
    where: Location,
    row: Mapping[str, Any],
    workers: int,
    storage: int,
    context: JobContext,
) -> tuple[float, tuple[Burst, ...]]:
    """Return the period (ms) and burst of a checkpoint. Each host writes an equal part to a storage host.

    The write is at the end of the period, because a training job computes first. A host writes at the rate of one
    link, or less if a storage host has more writers than NICs.
    """
    location, checkpoint = (*where, "checkpoint"), row["checkpoint"]
    what = f"of the checkpoint of job {row['name']!r}"
    _check_keys(document, location, checkpoint, _CHECKPOINT_KEYS)
    size_bytes, every_s = (
        _parse_number(document, (*location, key), checkpoint.get(key), f"{key} {what}")
        for key in ("bytes", "every_s")
    )
    max_gbps = context.rate_gbps * min(1.0, context.nics / -(-workers // storage))
    gbps = _parse_number(document, (*location, "gbps"), checkpoint.get("gbps", max_gbps), f"gbps {what}")
    for key, value in (("bytes", size_bytes), ("every_s", every_s), ("gbps", gbps)):
        if not (isfinite(value) and value > 0):
            raise document.error((*location, key), f"{key} {what} is {value:g}", "give a number above 0")
    if gbps > max_gbps:
        raise document.error(
            (*location, "gbps"), f"gbps {what} is {gbps:g}, but a host can write at {max_gbps:g}", "give less"
        )
    write_s = size_bytes * 8e-9 / workers / gbps
    if write_s > every_s:
        raise document.error(
            location,
            f"a write {what} takes {write_s:.3g} s at {gbps:g} Gb/s from each host, more than every_s",
            f"give every_s: {ceil(write_s)} or more",
        )
    return every_s * 1e3, (Burst((every_s - write_s) * 1e3, write_s * 1e3, gbps),)


def _parse_storage(document: Document, where: Location, row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    storage, hosts = row.get("storage"), row.get("hosts") or []
    if (
        not isinstance(storage, list)
        or not storage
        or not all(isinstance(host, str) for host in storage)
        or len(set(storage)) < len(storage)
        or set(storage) & set(hosts)
    ):
        hint = "name storage hosts of the lab, each once, and none of the job's hosts: storage: [d]"
        raise document.error((*where, "storage"), f"storage of job {name!r} is {storage!r}", hint)
    return tuple(storage)


def _parse_burst(document: Document, where: Location, row: Any, name: str) -> Burst:
    _check_keys(document, where, row, set(_BURST_KEYS))
    values = (
        _parse_number(document, (*where, key), row.get(key), f"{key} of a burst of job {name!r}")
        for key in _BURST_KEYS
    )
    return Burst(*values)


def _parse_hosts(
    document: Document, where: Location, row: Mapping[str, Any], name: str
) -> tuple[tuple[str, ...], int]:
    hosts, workers = row.get("hosts"), row.get("workers")
    if (hosts is None) == (workers is None):
        hint = "give hosts: [a, b] to fix the placement, or workers: 2 to leave it open"
        raise document.error(where, f"job {name!r} needs either hosts or workers", hint)
    if workers is not None:
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise document.error(
                (*where, "workers"), f"workers of job {name!r} is {workers!r}", "give 1 or more"
            )
        return (), workers
    if (
        not isinstance(hosts, list)
        or not hosts
        or not all(isinstance(host, str) for host in hosts)
        or len(set(hosts)) < len(hosts)
    ):
        hint = "name hosts of the lab, each only once"
        raise document.error((*where, "hosts"), f"hosts of job {name!r} are {hosts!r}", hint)
    return tuple(hosts), len(hosts)


def _parse_number(document: Document, where: Location, value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise document.error(where, f"{what} is {value!r}", "give a number")
    return float(value)


def _check_keys(document: Document, where: Location, row: Any, known: set[str]) -> None:
    if not isinstance(row, Mapping):
        raise document.error(where, f"{row!r} is not a mapping of keys to values", f"write {EXAMPLE}")
    unknown = sorted(str(key) for key in row if key not in known)
    if unknown:
        raise document.error(
            (*where, unknown[0]), f"unknown key {unknown[0]!r}", f"keys are {', '.join(sorted(known))}"
        )
