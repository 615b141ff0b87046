"""Candidate placements scored by the links that several jobs share, and the best of them scheduled."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sim.models.contention.job import PeriodicJob
from testbed.design.sharing.cassini.affinity import has_loop, spanning_forest, starts
from testbed.design.sharing.cassini.circle import Circle, Rounding, unified_circle
from testbed.design.sharing.cassini.prediction import Prediction, predict
from testbed.design.sharing.cassini.rotation import TIME_LIMIT_S, best_rotation
from testbed.design.sharing.jobs import LabLinks, Placement, SharedJob, placed_jobs
from testbed.errors import WorkloadError

SEARCH_S = 3.0
"""Time for the searches of all links together; then each gets `LEAST_S`."""
LEAST_S = 0.005
SHARE_OF_ONE = 8
"""One link gets at most this part of the time that is left."""
CYCLIC = "loop in the affinity graph"


@dataclass(frozen=True, slots=True)
class LinkSchedule:
    """Jobs of a link, the score of their best shifts, and these shifts in quanta.

    `approximate` is set where times were rounded or, in a spanning forest, where not every job keeps its shift.
    """

    link: str
    jobs: tuple[str, ...]
    score: float
    proven: bool
    approximate: bool
    shifts: Mapping[str, int]

    @property
    def score_clamped(self) -> float:
        """Score within 0 and 1."""
        return min(max(self.score, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement, its score (mean over the links that are shared), and why it was dropped, if it was."""

    placement: Placement
    score: float
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Hosts and start of each job, the shared links, all candidates and what the model predicts."""

    placement: Placement
    starts_ms: Mapping[str, float]
    links: tuple[LinkSchedule, ...]
    candidates: tuple[Candidate, ...]
    predicted: tuple[Prediction, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Scheduler:
    """Scores candidates and schedules the best; a link's result is kept for other candidates with the same jobs."""

    jobs: Sequence[SharedJob]
    links: LabLinks
    rounding: Rounding = field(default_factory=Rounding)
    time_limit_s: float = TIME_LIMIT_S
    search_s: float = SEARCH_S
    _known: dict[tuple[str, ...], LinkSchedule] = field(default_factory=dict)

    def schedule(self, placements: Sequence[Placement]) -> Schedule:
        """Return the schedule of the best candidate.

        When every candidate has a loop, the best is scheduled on a spanning forest of its graph, and a note says so.
        Raises `WorkloadError` for periods that do not fit on a circle.
        """
        scored = [self._score(placement) for placement in placements]
        kept = [one for one in scored if not one.dropped]
        best = max(kept or scored, key=lambda one: one.score)
        contended = self._contended(best.placement)
        results = {link: self._solved(jobs) for link, jobs in contended.items()}
        notes = []
        graph = {link: result.shifts for link, result in results.items()}
        if not kept:
            notes.append(
                "every candidate has a loop in its affinity graph: shifts follow its best spanning forest, "
                "and the scores are those of the starts that come out"
            )
            gains = {link: result.score - self._unshifted(result.jobs) for link, result in results.items()}
            forest = spanning_forest(contended, gains)
            graph = {link: {job: results[link].shifts[job] for job in jobs} for link, jobs in forest.items()}
        quanta = starts(graph, {job.name: self.rounding.period(_alone(job)) for job in self.jobs})
        if not kept:
            results = {link: self._at_starts(one, quanta) for link, one in results.items()}
        starts_ms = {name: count * self.rounding.quantum_ms for name, count in quanta.items()}
        return Schedule(
            best.placement,
            starts_ms,
            tuple(self._of_link(link, jobs, results) for link, jobs in self._shared(best.placement).items()),
            tuple(scored),
            tuple(self._predict(best.placement, starts_ms)),
            tuple(notes),
        )

    def _score(self, placement: Placement) -> Candidate:
        contended = self._contended(placement)
        scores = [self._solved(jobs).score for jobs in contended.values()]
        dropped = CYCLIC if has_loop(contended) else ""
        return Candidate(placement, sum(scores) / len(scores) if scores else 1.0, dropped)

    def _shared(self, placement: Placement) -> dict[str, tuple[str, ...]]:
        return {link: jobs for link, jobs in self.links.of(placement).items() if len(jobs) > 1}

    def _contended(self, placement: Placement) -> dict[str, tuple[str, ...]]:
        """Return shared links; of those with the same jobs one, for the same shifts are best on all of them."""
        return {str(jobs): jobs for jobs in map(_sorted, self._shared(placement).values())}

    def _of_link(self, link: str, jobs: tuple[str, ...], results: Mapping[str, LinkSchedule]) -> LinkSchedule:
        found = results[str(_sorted(jobs))]
        return LinkSchedule(link, jobs, found.score, found.proven, found.approximate, found.shifts)

    def _circle(self, names: Sequence[str]) -> Circle:
        by_name = {job.name: job for job in self.jobs}
        return unified_circle([_alone(by_name[name]) for name in names], self.links.rate_gbps, self.rounding)

    def _solved(self, names: tuple[str, ...]) -> LinkSchedule:
        if names not in self._known:
            circle = self._circle(names)
            begin = time.process_time()
            limit_s = max(min(self.time_limit_s, self.search_s / SHARE_OF_ONE), LEAST_S)
            found = best_rotation(circle, limit_s, time.process_time)
            self.search_s -= time.process_time() - begin
            shifts = dict(zip(names, (round(turn * circle.tick) for turn in found.turns), strict=True))
            score = circle.score(found.excess)
            self._known[names] = LinkSchedule("", names, score, found.proven, circle.approximate, shifts)
        return self._known[names]

    def _unshifted(self, names: Sequence[str]) -> float:
        circle = self._circle(names)
        return circle.score(circle.excess([0] * len(names)))

    def _at_starts(self, one: LinkSchedule, quanta: Mapping[str, int]) -> LinkSchedule:
        circle = self._circle(one.jobs)
        score = circle.score(circle.excess([round(quanta[name] / circle.tick) for name in one.jobs]))
        worse = score < one.score - 1e-9
        shifts = {name: quanta[name] for name in one.jobs}
        return LinkSchedule("", one.jobs, score, one.proven and not worse, one.approximate or worse, shifts)

    def _predict(self, placement: Placement, starts_ms: Mapping[str, float]) -> list[Prediction]:
        users = self.links.of(placement)
        jobs = placed_jobs(self.jobs, users)
        return predict(jobs, [self.links.rate_gbps] * len(users), starts_ms)


def _sorted(jobs: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(jobs))


def _alone(job: SharedJob) -> PeriodicJob:
    try:
        return job.on((0,))
    except ValueError as error:
        raise WorkloadError(str(error)) from error
