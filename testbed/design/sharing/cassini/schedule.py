"""Scheduler: scores candidate placements by their shared links, and schedules the best.

The affinity graph connects jobs with their shared links. The weight of an edge is the shift of the job on the link. If
the graph has no loop, a walk from any job of a component gives every job one start that agrees with the shifts on all
its links (Cassini's Algorithm 1).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sim.models.contention.job import PeriodicJob
from testbed.design.sharing.cassini.circle import Circle, Rounding, make_circle
from testbed.design.sharing.cassini.prediction import Prediction, predict_iteration_times
from testbed.design.sharing.cassini.rotation import TIME_LIMIT_S, find_best_rotation
from testbed.design.sharing.jobs import LabLinks, Placement, SharedJob, place_jobs
from testbed.errors import WorkloadError

SEARCH_TIME_S = 3.0
"""Time budget for the searches of all links. Once it is spent, each remaining search gets `MIN_SEARCH_TIME_S`."""
MIN_SEARCH_TIME_S = 0.005
MIN_LINKS_TO_SHARE_TIME = 8
"""The search of a link gets at most the remaining time divided by this."""
LOOP_REASON = "loop in the affinity graph"

Shifts = Mapping[str, Mapping[str, int]]
"""Shift of each job on each link, by the names of link and job."""


@dataclass(frozen=True, slots=True)
class LinkSchedule:
    """Jobs of a link, the score of their best shifts, and these shifts in quanta.

    `is_approximate` tells whether times were rounded, or the starts of a spanning forest do not keep the best shifts.
    """

    link: str
    jobs: tuple[str, ...]
    score: float
    is_proven: bool
    is_approximate: bool
    shifts: Mapping[str, int]

    @property
    def clamped_score(self) -> float:
        """Score limited to the range 0 to 1."""
        return min(max(self.score, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement and its score, the mean over its shared links. `dropped` is the reason if it was dropped, or ""."""

    placement: Placement
    score: float
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Hosts and start of each job, the shared links, all candidates, and the model's predictions."""

    placement: Placement
    starts_ms: Mapping[str, float]
    links: tuple[LinkSchedule, ...]
    candidates: tuple[Candidate, ...]
    predicted: tuple[Prediction, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Scheduler:
    """Scheduler of jobs on a lab. Results are cached by the set of jobs on a link."""

    jobs: Sequence[SharedJob]
    links: LabLinks
    rounding: Rounding = field(default_factory=Rounding)
    time_limit_s: float = TIME_LIMIT_S
    search_time_s: float = SEARCH_TIME_S
    _cache: dict[tuple[str, ...], LinkSchedule] = field(default_factory=dict)

    def schedule(self, placements: Sequence[Placement]) -> Schedule:
        """Return the schedule of the best candidate.

        If every candidate has a loop, the best candidate is scheduled by a spanning forest of its graph, and a note
        tells so. Raises `WorkloadError` for periods that do not fit on a circle, and for invalid jobs.
        """
        candidates = [self._score_placement(placement) for placement in placements]
        loop_free_candidates = [entry for entry in candidates if not entry.dropped]
        best_candidate = max(loop_free_candidates or candidates, key=lambda entry: entry.score)
        jobs_by_link = self._find_contended_links(best_candidate.placement)
        schedule_by_link = {link: self._solve_link(jobs) for link, jobs in jobs_by_link.items()}
        notes = []
        shifts_by_link = {link: result.shifts for link, result in schedule_by_link.items()}
        if not loop_free_candidates:
            notes.append(
                "every candidate has a loop in its affinity graph: shifts follow its best spanning forest, "
                "and the scores are those of the starts that come out"
            )
            gain_by_link = {
                link: result.score - self._score_unshifted(result.jobs)
                for link, result in schedule_by_link.items()
            }
            forest = build_spanning_forest(jobs_by_link, gain_by_link)
            shifts_by_link = {
                link: {job: schedule_by_link[link].shifts[job] for job in jobs}
                for link, jobs in forest.items()
            }
        start_by_job = compute_starts(
            shifts_by_link,
            {job.name: self.rounding.count_period_quanta(_detach_from_links(job)) for job in self.jobs},
        )
        if not loop_free_candidates:
            # A link outside the forest does not get its best shifts: compute the scores from the starts.
            schedule_by_link = {
                link: self._apply_starts(entry, start_by_job) for link, entry in schedule_by_link.items()
            }
        starts_ms = {name: count * self.rounding.quantum_ms for name, count in start_by_job.items()}
        all_jobs_by_link = self.links.find_jobs_by_link(best_candidate.placement, self.jobs)
        jobs = place_jobs(self.jobs, all_jobs_by_link)
        return Schedule(
            best_candidate.placement,
            starts_ms,
            tuple(
                self._make_link_schedule(link, jobs, schedule_by_link)
                for link, jobs in self._find_shared_links(best_candidate.placement).items()
            ),
            tuple(candidates),
            tuple(predict_iteration_times(jobs, [self.links.rate_gbps] * len(all_jobs_by_link), starts_ms)),
            tuple(notes),
        )

    def _score_placement(self, placement: Placement) -> Candidate:
        jobs_by_contended_link = self._find_contended_links(placement)
        scores = [self._solve_link(jobs).score for jobs in jobs_by_contended_link.values()]
        drop_reason = LOOP_REASON if has_loop(jobs_by_contended_link) else ""
        return Candidate(placement, sum(scores) / len(scores) if scores else 1.0, drop_reason)

    def _find_shared_links(self, placement: Placement) -> dict[str, tuple[str, ...]]:
        jobs_by_link = self.links.find_jobs_by_link(placement, self.jobs)
        return {link: jobs for link, jobs in jobs_by_link.items() if len(jobs) > 1}

    def _find_contended_links(self, placement: Placement) -> dict[str, tuple[str, ...]]:
        """Return one shared link for each set of jobs: the same jobs have the same best shifts on every link."""
        return {str(jobs): jobs for jobs in map(_sort_names, self._find_shared_links(placement).values())}

    def _make_link_schedule(
        self, link: str, jobs: tuple[str, ...], schedule_by_link: Mapping[str, LinkSchedule]
    ) -> LinkSchedule:
        result = schedule_by_link[str(_sort_names(jobs))]
        return LinkSchedule(link, jobs, result.score, result.is_proven, result.is_approximate, result.shifts)

    def _make_circle(self, names: Sequence[str]) -> Circle:
        job_by_name = {job.name: job for job in self.jobs}
        return make_circle(
            [_detach_from_links(job_by_name[name]) for name in names], self.links.rate_gbps, self.rounding
        )

    def _solve_link(self, names: tuple[str, ...]) -> LinkSchedule:
        if names not in self._cache:
            circle = self._make_circle(names)
            begin_s = time.process_time()
            limit_s = max(
                min(self.time_limit_s, self.search_time_s / MIN_LINKS_TO_SHARE_TIME), MIN_SEARCH_TIME_S
            )
            rotation = find_best_rotation(circle, limit_s, time.process_time)
            self.search_time_s -= time.process_time() - begin_s
            shifts = dict(
                zip(names, (round(shift_ticks * circle.tick) for shift_ticks in rotation.shifts), strict=True)
            )
            score = circle.compute_score(rotation.excess)
            self._cache[names] = LinkSchedule(
                "", names, score, rotation.is_proven, circle.is_approximate, shifts
            )
        return self._cache[names]

    def _score_unshifted(self, names: Sequence[str]) -> float:
        circle = self._make_circle(names)
        return circle.compute_score(circle.compute_excess([0] * len(names)))

    def _apply_starts(self, entry: LinkSchedule, start_by_job: Mapping[str, int]) -> LinkSchedule:
        circle = self._make_circle(entry.jobs)
        score = circle.compute_score(
            circle.compute_excess([round(start_by_job[name] / circle.tick) for name in entry.jobs])
        )
        is_worse = score < entry.score - 1e-9
        shifts = {name: start_by_job[name] for name in entry.jobs}
        return LinkSchedule(
            "", entry.jobs, score, entry.is_proven and not is_worse, entry.is_approximate or is_worse, shifts
        )


def _sort_names(jobs: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(jobs))


def _detach_from_links(job: SharedJob) -> PeriodicJob:
    try:
        return job.place_on_links((0,))
    except ValueError as error:
        raise WorkloadError(str(error)) from error


@dataclass(slots=True)
class Forest:
    """Disjoint sets of connected jobs and links. `join` reports edges that close a loop."""

    parents: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def find_root(self, node: tuple[str, str]) -> tuple[str, str]:
        """Return the representative of all nodes that are connected with `node`."""
        while (parent := self.parents.setdefault(node, node)) != node:
            self.parents[node] = self.parents[parent]
            node = parent
        return node

    def join(self, job: str, link: str) -> bool:
        """Connect a job and a link, and return whether they were not connected before."""
        job_root, link_root = self.find_root(("job", job)), self.find_root(("link", link))
        self.parents[job_root] = link_root
        return job_root != link_root


def has_loop(jobs_by_link: Mapping[str, Sequence[str]]) -> bool:
    """Return whether the graph of links and their jobs has a loop."""
    forest = Forest()
    return not all(forest.join(job, link) for link, jobs in jobs_by_link.items() for job in jobs)


def build_spanning_forest(
    jobs_by_link: Mapping[str, Sequence[str]], gain_by_link: Mapping[str, float]
) -> dict[str, tuple[str, ...]]:
    """Return the links without the jobs that close a loop. Links with the largest gain keep their jobs first."""
    forest = Forest()
    order = sorted(jobs_by_link, key=lambda link: -gain_by_link[link])
    forest_jobs_by_link = {
        link: tuple(job for job in jobs_by_link[link] if forest.join(job, link)) for link in order
    }
    return {link: forest_jobs_by_link[link] for link in jobs_by_link}


def compute_starts(shifts_by_link: Shifts, period_by_job: Mapping[str, int]) -> dict[str, int]:
    """Return the start of each job by Algorithm 1, in the unit of `shifts_by_link` and `period_by_job`.

    >>> compute_starts({"l": {"a": 0, "b": 10}, "m": {"b": 5, "c": 35}}, {"a": 40, "b": 60, "c": 60})
    {'a': 0, 'b': 10, 'c': 40}
    """
    # Breadth-first search of the affinity graph. The first job of each component starts at 0.
    links_by_job: dict[str, list[str]] = {job: [] for job in period_by_job}
    for link, jobs in shifts_by_link.items():
        for job in jobs:
            links_by_job[job].append(link)
    start_by_job: dict[str, int] = {}
    for root in period_by_job:
        if root in start_by_job:
            continue
        start_by_job[root] = 0
        queue = deque([root])
        while queue:
            job = queue.popleft()
            for link in links_by_job[job]:
                for other_job, shift in shifts_by_link[link].items():
                    if other_job not in start_by_job:
                        start_by_job[other_job] = (
                            start_by_job[job] - shifts_by_link[link][job] + shift
                        ) % period_by_job[other_job]
                        queue.append(other_job)
    return {job: start_by_job[job] for job in period_by_job}
