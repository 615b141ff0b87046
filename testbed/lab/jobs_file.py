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
JOBS_EXAMPLE = (
    "jobs: [{name: a, period_ms: 300, bursts: [{start_ms: 150, length_ms: 150, gbps: 25}], hosts: [a, b]}]"
)
ReadMeasuredPhases = Callable[[str, str], tuple[float, tuple[Burst, ...]]]
"""Function that returns the measured period (ms) and bursts of a run and job, or raises `WorkloadError`."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """Facts that the file lacks: the rate of a link, which no burst may exceed, and the number of NICs of a host.

    `read_measured_phases` returns the phases of stored runs. It is None if no runs are available.
    """

    rate_gbps: float = 25.0
    read_measured_phases: ReadMeasuredPhases | None = None
    nics_per_host: int = 1


def read_jobs(path: Path, lab_facts: JobContext | None = None) -> tuple[SharedJob, ...]:
    """Read the jobs of a file. Raises `WorkloadError`, which starts with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise WorkloadError(f"{path}:1: cannot be read ({reason}); give a file with {JOBS_EXAMPLE}") from None
    return parse_jobs(path, text, lab_facts)


def parse_jobs(path: Path, text: str, lab_facts: JobContext | None = None) -> tuple[SharedJob, ...]:
    """Parse the text of a file of jobs. `path` names the file in errors. Raises `WorkloadError`."""
    try:
        document = parse_document(path, text)
        return _parse_jobs(document, lab_facts or JobContext())
    except LabFileError as error:
        raise WorkloadError(str(error)) from None


def _parse_jobs(document: Document, lab_facts: JobContext) -> tuple[SharedJob, ...]:
    entries = document.data.get("jobs")
    if not isinstance(entries, list) or not entries:
        raise document.make_error((), "the list of jobs is missing", f"write {JOBS_EXAMPLE}")
    jobs: list[SharedJob] = []
    for job_index, entry in enumerate(entries):
        job = _parse_job(document, ("jobs", job_index), entry, lab_facts)
        if job.name in {earlier_job.name for earlier_job in jobs}:
            raise document.make_error(
                ("jobs", job_index), f"job {job.name!r} appears twice", "give it another name"
            )
        jobs.append(job)
    return tuple(jobs)


def _parse_job(document: Document, location: Location, entry: Any, lab_facts: JobContext) -> SharedJob:
    source = next(
        (key for key in ("workload", "run", "checkpoint") if isinstance(entry, Mapping) and key in entry), ""
    )
    keys_by_source = {
        "workload": _WORKLOAD_KEYS,
        "run": {"run", "job"},
        "checkpoint": {"checkpoint", "storage"},
    }
    source_keys = keys_by_source.get(source, _PHASE_KEYS)
    common_keys = _COMMON_KEYS - {"traffic"} if source == "checkpoint" else _COMMON_KEYS
    _check_keys(document, location, entry, common_keys | source_keys)
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise document.make_error(location, "a job has no name", "add 'name: NAME'")
    hosts, worker_count = _parse_hosts(document, location, entry, name)
    traffic = entry.get("traffic", "")
    if traffic not in ("", "bulk", "allreduce"):
        raise document.make_error(
            (*location, "traffic"),
            f"traffic of job {name!r} is {traffic!r}",
            "give traffic: bulk or traffic: allreduce",
        )
    storage_hosts: tuple[str, ...] = ()
    if source == "checkpoint":
        storage_hosts = _parse_storage(document, location, entry, name)
        period_ms, job_bursts = _parse_checkpoint(
            document, location, entry, worker_count, len(storage_hosts), lab_facts
        )
    elif source:
        period_ms, job_bursts = _read_source_phases(
            document, location, entry, source, worker_count, lab_facts
        )
    else:
        bursts = entry.get("bursts")
        period_ms = _parse_number(
            document, (*location, "period_ms"), entry.get("period_ms"), f"period_ms of job {name!r}"
        )
        if not isinstance(bursts, list):
            raise document.make_error(
                (*location, "bursts"), f"job {name!r} has no list of bursts", f"write {JOBS_EXAMPLE}"
            )
        job_bursts = tuple(
            _parse_burst(document, (*location, "bursts", burst_index), burst, name)
            for burst_index, burst in enumerate(bursts)
        )
        _check_rates(document, (*location, "bursts"), name, job_bursts, lab_facts.rate_gbps)
    job = SharedJob(name, period_ms, job_bursts, hosts, worker_count, traffic, storage_hosts)
    try:
        job.place_on_links(())
    except ValueError as error:
        raise document.make_error(location, str(error), "correct period_ms and bursts") from None
    return job


def _check_rates(
    document: Document, location: Location, name: str, bursts: Sequence[Burst], rate_gbps: float
) -> None:
    for burst_index, burst in enumerate(bursts):
        if burst.gbps > rate_gbps:
            length_ms = burst.length_ms * burst.gbps / rate_gbps
            raise document.make_error(
                (*location, burst_index),
                (
                    f"a burst of job {name!r} has {burst.gbps:g} Gb/s, but a link of the lab carries only "
                    f"{rate_gbps:g}"
                ),
                f"give the rate on such a link, for example {rate_gbps:g} Gb/s for {length_ms:g} ms",
            )


def _read_source_phases(
    document: Document,
    location: Location,
    entry: Mapping[str, Any],
    source: str,
    worker_count: int,
    lab_facts: JobContext,
) -> tuple[float, tuple[Burst, ...]]:
    """Return the period (ms) and bursts of a workload or of a measured run."""
    try:
        if source == "run":
            if lab_facts.read_measured_phases is None:
                raise WorkloadError("stored runs cannot be read here")
            return lab_facts.read_measured_phases(str(entry["run"]), str(entry.get("job", entry["name"])))
        from testbed.design.sharing.workload_phases import simulate_phases
        from testbed.design.workloads.choice import WorkloadChoice

        settings = entry.get("settings") or {}
        if not isinstance(settings, Mapping):
            raise WorkloadError(f"settings are {settings!r}, not a mapping: write settings: {{batch: 64}}")
        choice = WorkloadChoice(
            str(entry["workload"]),
            str(entry.get("preset", "")),
            {str(key): str(value) for key, value in settings.items()},
            str(entry.get("device", "")),
        )
        phases = simulate_phases(
            choice, worker_count, lab_facts.rate_gbps, str(entry.get("strategy", "default"))
        )
        return phases.period_ms, phases.bursts
    except (TestbedError, OSError) as error:
        raise document.make_error(
            (*location, source), str(error), f"correct {source}, or write {JOBS_EXAMPLE}"
        ) from None


def _parse_checkpoint(
    document: Document,
    location: Location,
    entry: Mapping[str, Any],
    worker_count: int,
    storage_count: int,
    lab_facts: JobContext,
) -> tuple[float, tuple[Burst, ...]]:
    """Return the period (ms) and burst of a checkpoint. Each host writes an equal part to a storage host.

    The write is at the end of the period, because a training job computes first. A host writes at the rate of one
    link, or less if a storage host has more writers than NICs.
    """
    checkpoint_location, checkpoint = (*location, "checkpoint"), entry["checkpoint"]
    subject = f"of the checkpoint of job {entry['name']!r}"
    _check_keys(document, checkpoint_location, checkpoint, _CHECKPOINT_KEYS)
    size_bytes, every_s = (
        _parse_number(document, (*checkpoint_location, key), checkpoint.get(key), f"{key} {subject}")
        for key in ("bytes", "every_s")
    )
    max_gbps = lab_facts.rate_gbps * min(1.0, lab_facts.nics_per_host / -(-worker_count // storage_count))
    gbps = _parse_number(
        document, (*checkpoint_location, "gbps"), checkpoint.get("gbps", max_gbps), f"gbps {subject}"
    )
    for key, value in (("bytes", size_bytes), ("every_s", every_s), ("gbps", gbps)):
        if not (isfinite(value) and value > 0):
            raise document.make_error(
                (*checkpoint_location, key), f"{key} {subject} is {value:g}", "give a number above 0"
            )
    if gbps > max_gbps:
        raise document.make_error(
            (*checkpoint_location, "gbps"),
            f"gbps {subject} is {gbps:g}, but a host can write at {max_gbps:g}",
            f"give gbps: {max_gbps:g} or less",
        )
    write_s = size_bytes * 8e-9 / worker_count / gbps
    if write_s > every_s:
        raise document.make_error(
            checkpoint_location,
            f"a write {subject} takes {write_s:.3g} s at {gbps:g} Gb/s from each host, more than every_s",
            f"give every_s: {ceil(write_s)} or more",
        )
    return every_s * 1e3, (Burst((every_s - write_s) * 1e3, write_s * 1e3, gbps),)


def _parse_storage(
    document: Document, location: Location, entry: Mapping[str, Any], name: str
) -> tuple[str, ...]:
    storage_hosts, job_hosts = entry.get("storage"), entry.get("hosts") or []
    if (
        not isinstance(storage_hosts, list)
        or not storage_hosts
        or not all(isinstance(host, str) for host in storage_hosts)
        or len(set(storage_hosts)) < len(storage_hosts)
        or set(storage_hosts) & set(job_hosts)
    ):
        hint = "name storage hosts of the lab, each once, and none of the job's hosts: storage: [d]"
        raise document.make_error(
            (*location, "storage"), f"storage of job {name!r} is {storage_hosts!r}", hint
        )
    return tuple(storage_hosts)


def _parse_burst(document: Document, location: Location, entry: Any, name: str) -> Burst:
    _check_keys(document, location, entry, set(_BURST_KEYS))
    values = (
        _parse_number(document, (*location, key), entry.get(key), f"{key} of a burst of job {name!r}")
        for key in _BURST_KEYS
    )
    return Burst(*values)


def _parse_hosts(
    document: Document, location: Location, entry: Mapping[str, Any], name: str
) -> tuple[tuple[str, ...], int]:
    hosts, workers = entry.get("hosts"), entry.get("workers")
    if (hosts is None) == (workers is None):
        hint = "give hosts: [a, b] to fix the placement, or workers: 2 to leave it open"
        raise document.make_error(location, f"job {name!r} needs either hosts or workers", hint)
    if workers is not None:
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise document.make_error(
                (*location, "workers"), f"workers of job {name!r} is {workers!r}", "give 1 or more"
            )
        return (), workers
    if (
        not isinstance(hosts, list)
        or not hosts
        or not all(isinstance(host, str) for host in hosts)
        or len(set(hosts)) < len(hosts)
    ):
        hint = "name hosts of the lab, each only once"
        raise document.make_error((*location, "hosts"), f"hosts of job {name!r} are {hosts!r}", hint)
    return tuple(hosts), len(hosts)


def _parse_number(document: Document, location: Location, value: Any, subject: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise document.make_error(location, f"{subject} is {value!r}", "give a number")
    return float(value)


def _check_keys(document: Document, location: Location, entry: Any, known_keys: set[str]) -> None:
    if not isinstance(entry, Mapping):
        raise document.make_error(
            location, f"{entry!r} is not a mapping of keys to values", f"write {JOBS_EXAMPLE}"
        )
    unknown_keys = sorted(str(key) for key in entry if key not in known_keys)
    if unknown_keys:
        raise document.make_error(
            (*location, unknown_keys[0]),
            f"unknown key {unknown_keys[0]!r}",
            f"keys are {', '.join(sorted(known_keys))}",
        )
