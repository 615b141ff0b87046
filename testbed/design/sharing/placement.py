"""Candidate placements of jobs without fixed hosts, by two host schedulers.

A host scheduler is a function from a `PlacementRequest` to candidates, best first. Packages can add schedulers under
the entry point `testbed.host_schedulers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points

from testbed.design.sharing.jobs import LabLinks, Placement, SharedJob
from testbed.errors import WorkloadError

ENTRY_POINTS = "testbed.host_schedulers"
MAX_CANDIDATES = 10


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Jobs to place, of which some may have hosts, and the lab's links.

    `count` limits the candidates, and `jobs_per_host` the jobs per host. 0 means the smallest limit that fits all
    workers.
    """

    jobs: tuple[SharedJob, ...]
    links: LabLinks
    count: int = MAX_CANDIDATES
    jobs_per_host: int = 0

    @property
    def max_jobs_per_host(self) -> int:
        """Maximum number of jobs on a host."""
        workers = sum(len(job.hosts) or job.workers for job in self.jobs)
        return self.jobs_per_host or -(-workers // len(self.links.hosts))


HostScheduler = Callable[[PlacementRequest], Sequence[Placement]]


def find_candidates(scheduler: str, request: PlacementRequest) -> list[Placement]:
    """Return up to `count` distinct candidates of a host scheduler. If all hosts are fixed, return the only placement.

    Raises `WorkloadError` for an unknown scheduler, if it finds no placement, for jobs that need more hosts than the
    lab has, and for hosts that are not in the lab.
    """
    check_hosts(request)
    if all(job.hosts for job in request.jobs):
        return [{job.name: job.hosts for job in request.jobs}]
    distinct_placements: dict[tuple[tuple[str, ...], ...], Placement] = {}
    for placement in find_host_scheduler(scheduler)(request):
        distinct_placements.setdefault(tuple(placement[job.name] for job in request.jobs), placement)
    if not distinct_placements:
        raise WorkloadError(f"host scheduler {scheduler!r} found no placement: raise --jobs-per-host")
    return list(distinct_placements.values())[: request.count]


def find_host_scheduler(name: str) -> HostScheduler:
    """Return a host scheduler by name. For an unknown name, raises `WorkloadError` with all names."""
    if name in SCHEDULERS:
        return SCHEDULERS[name]
    entry_points_by_name = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if name not in entry_points_by_name:
        known_names = ", ".join(sorted({*SCHEDULERS, *entry_points_by_name}))
        raise WorkloadError(
            f"there is no host scheduler {name!r}: choose from {known_names}, "
            f"or install one that provides {ENTRY_POINTS}"
        )
    loaded: HostScheduler = entry_points_by_name[name].load()
    return loaded


def check_hosts(request: PlacementRequest) -> None:
    """Raise `WorkloadError` for hosts that are not in the lab, and for jobs that need more hosts than it has."""
    lab_hosts = request.links.hosts
    for job in request.jobs:
        missing_hosts = [host for host in (*job.hosts, *job.storage) if host not in lab_hosts]
        if missing_hosts:
            raise WorkloadError(
                f"job {job.name!r} should run on host {missing_hosts[0]!r}, which the lab does not have; its hosts "
                f"are {', '.join(lab_hosts)}"
            )
        needed_host_count = job.workers + len(job.storage)
        if needed_host_count > len(lab_hosts):
            raise WorkloadError(
                f"job {job.name!r} needs {needed_host_count} hosts, but the lab has {len(lab_hosts)}:"
                " give fewer workers"
            )


def compare_shared_to_ideal(
    job: SharedJob, placement: Placement, job_by_name: Mapping[str, SharedJob]
) -> float:
    """Return a job's iteration time with fairly shared links over its time alone: Themis' finish-time fairness.

    This is an estimate, which is exact for two identical jobs. It assumes that, on its worst link, a job waits for the
    communication of each other job, but at most as long as its own communication takes.
    """
    own_pairs = set(job.list_pairs(placement[job.name]))
    wait_by_pair = dict.fromkeys(own_pairs, 0.0)
    for name, hosts in placement.items():
        if name != job.name:
            for pair in own_pairs.intersection(job_by_name[name].list_pairs(hosts)):
                wait_by_pair[pair] += min(
                    _compute_busy_fraction(job), _compute_busy_fraction(job_by_name[name])
                )
    return 1.0 + max(wait_by_pair.values(), default=0.0)


def place_by_finish_time_fairness(request: PlacementRequest) -> list[Placement]:
    """Return placements that minimise the worst ratio of shared to ideal time, as Themis does."""
    return _place_greedily(request, lambda ratios: (max(ratios), sum(ratios)))


def place_by_goodput(request: PlacementRequest) -> list[Placement]:
    """Return placements that maximise the sum of the jobs' throughputs, as Pollux maximises goodput.

    Batch sizes do not change, so statistical efficiency is the same for all placements.
    """
    return _place_greedily(request, lambda ratios: (-sum(1 / ratio for ratio in ratios), max(ratios)))


SCHEDULERS: dict[str, HostScheduler] = {"themis": place_by_finish_time_fairness, "pollux": place_by_goodput}

CombineRatios = Callable[[Sequence[float]], tuple[float, float]]


def _place_greedily(request: PlacementRequest, combine_ratios: CombineRatios) -> list[Placement]:
    """Return placements that place one job after the other at the least cost, each starting from another host."""
    placements = (
        _place_all(request, combine_ratios, first_host) for first_host in range(len(request.links.hosts))
    )
    return [placement for placement in placements if placement]


def _place_all(request: PlacementRequest, combine_ratios: CombineRatios, first_host: int) -> Placement | None:
    job_by_name = {job.name: job for job in request.jobs}
    placement = {job.name: job.hosts for job in request.jobs if job.hosts}
    unplaced_jobs = sorted(
        (job for job in request.jobs if not job.hosts), key=lambda job: -_compute_busy_fraction(job)
    )
    for job in unplaced_jobs:
        hosts = request.links.hosts
        job_count_by_host = {
            host: sum(host in used_hosts for used_hosts in placement.values()) for host in hosts
        }
        host_rows = (
            tuple(hosts[(first_host + begin + step) % len(hosts)] for step in range(job.workers))
            for begin in range(len(hosts))
        )
        possible_host_rows = [
            host_row
            for host_row in host_rows
            if all(
                job_count_by_host[host] < request.max_jobs_per_host and host not in job.storage
                for host in host_row
            )
        ]
        if not possible_host_rows:
            return None
        price_hosts = partial(
            _price_placement,
            job=job,
            placement=placement,
            job_by_name=job_by_name,
            combine_ratios=combine_ratios,
        )
        placement[job.name] = min(possible_host_rows, key=price_hosts)
    return {job.name: placement[job.name] for job in request.jobs}


def _price_placement(
    hosts: tuple[str, ...],
    job: SharedJob,
    placement: Placement,
    job_by_name: Mapping[str, SharedJob],
    combine_ratios: CombineRatios,
) -> tuple[float, float]:
    trial = {**placement, job.name: hosts}
    return combine_ratios([compare_shared_to_ideal(job_by_name[name], trial, job_by_name) for name in trial])


def _compute_busy_fraction(job: SharedJob) -> float:
    return sum(burst.length_ms for burst in job.bursts) / job.period_ms
