"""The file of jobs that are to share a lab (`JOBS.yaml`), read with the line of every mistake.

jobs:
- name: bert
period_ms: 155
bursts: [{start_ms: 54, length_ms: 101, gbps: 25}]
hosts: [a, b]      # or `workers: 2`, which leaves the placement open
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.design.sharing.jobs import Burst, SharedJob
from testbed.errors import LabFileError, WorkloadError
from testbed.lab.document import Document, Location, parse_document

_JOB_KEYS = {"name", "period_ms", "bursts", "hosts", "workers"}
_BURST_KEYS = ("start_ms", "length_ms", "gbps")
EXAMPLE = (
    "jobs: [{name: a, period_ms: 300, bursts: [{start_ms: 150, length_ms: 150, gbps: 25}], hosts: [a, b]}]"
)


def read_jobs(path: Path) -> tuple[SharedJob, ...]:
    """Return the jobs. Raises `WorkloadError` that begins with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise WorkloadError(f"{path}:1: cannot be read ({reason}); give a file with {EXAMPLE}") from None
    return parse_jobs(path, text)


def parse_jobs(path: Path, text: str) -> tuple[SharedJob, ...]:
    """Return the same from text already read; `path` only names the file in errors."""
    try:
        document = parse_document(path, text)
        return _jobs(document)
    except LabFileError as error:
        raise WorkloadError(str(error)) from None


def _jobs(document: Document) -> tuple[SharedJob, ...]:
    rows = document.data.get("jobs")
    if not isinstance(rows, list) or not rows:
        raise document.error((), "there is no list of jobs", f"write {EXAMPLE}")
    jobs: list[SharedJob] = []
    for number, row in enumerate(rows):
        job = _job(document, ("jobs", number), row)
        if job.name in {other.name for other in jobs}:
            raise document.error(("jobs", number), f"job {job.name!r} is there twice", "give it another name")
        jobs.append(job)
    return tuple(jobs)


def _job(document: Document, where: Location, row: Any) -> SharedJob:
    _check_keys(document, where, row, _JOB_KEYS)
    name, bursts = row.get("name"), row.get("bursts")
    if not isinstance(name, str) or not name:
        raise document.error(where, "a job has no name", "add name: a word")
    period_ms = _number(document, (*where, "period_ms"), row.get("period_ms"), f"period_ms of job {name!r}")
    if not isinstance(bursts, list):
        raise document.error((*where, "bursts"), f"job {name!r} has no list of bursts", f"write {EXAMPLE}")
    found = tuple(_burst(document, (*where, "bursts", n), one, name) for n, one in enumerate(bursts))
    hosts, workers = _hosts(document, where, row, name)
    job = SharedJob(name, period_ms, found, hosts, workers)
    try:
        job.on(())
    except ValueError as error:
        raise document.error(where, str(error), "correct the phases") from None
    return job


def _burst(document: Document, where: Location, row: Any, name: str) -> Burst:
    _check_keys(document, where, row, set(_BURST_KEYS))
    values = (
        _number(document, (*where, key), row.get(key), f"{key} of a burst of job {name!r}")
        for key in _BURST_KEYS
    )
    return Burst(*values)


def _hosts(
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
    if not isinstance(hosts, list) or not _are_names(hosts) or len(set(hosts)) < len(hosts):
        hint = "give different names of hosts of the lab"
        raise document.error((*where, "hosts"), f"hosts of job {name!r} are {hosts!r}", hint)
    return tuple(hosts), len(hosts)


def _are_names(hosts: list[Any]) -> bool:
    return bool(hosts) and all(isinstance(host, str) for host in hosts)


def _number(document: Document, where: Location, value: Any, what: str) -> float:
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
