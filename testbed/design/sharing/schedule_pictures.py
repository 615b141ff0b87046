"""The pictures of a schedule: circles and time line of its busiest link."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.models.contention.simulation import Contention, Setting
from testbed.design.sharing.cassini.prediction import groups, run_policy, shifted_setting
from testbed.design.sharing.cassini.schedule import LinkSchedule, Schedule, Scheduler
from testbed.design.sharing.jobs import placed_jobs
from testbed.design.sharing.pictures import TRACE_ROWS, DrawnLink, draw_circles, draw_time_line

TURNS = 6
_ITERATIONS = 40


def draw_schedule(scheduler: Scheduler, found: Schedule, folder: Path, ending: str) -> list[Path]:
    """Draw the busiest link that several jobs use into `folder`; none when no link is shared."""
    if not found.links:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    busiest = max(found.links, key=lambda link: _load(scheduler, link))
    by_name = {job.name: job for job in scheduler.jobs}
    jobs = [by_name[name].on((0,)) for name in busiest.jobs]
    starts = [found.starts_ms[name] for name in busiest.jobs]
    shown = DrawnLink(busiest.link, scheduler.links.rate_gbps, jobs, starts)
    quantum = scheduler.rounding.quantum_ms
    perimeter_ms = float(np.lcm.reduce([scheduler.rounding.period(job) for job in jobs])) * quantum
    before, after = _traces(scheduler, found, busiest)
    length_ms = max(starts) + TURNS * max(job.period_ms for job in jobs)
    return [
        draw_circles(shown, perimeter_ms, folder / f"circles.{ending}"),
        draw_time_line(shown, before, after, length_ms, folder / f"timeline.{ending}"),
    ]


def _load(scheduler: Scheduler, link: LinkSchedule) -> float:
    by_name = {job.name: job.on(()) for job in scheduler.jobs}
    return sum(by_name[name].volume_mbit / by_name[name].period_ms for name in link.jobs)


def _traces(scheduler: Scheduler, found: Schedule, link: LinkSchedule) -> tuple[Contention, Contention]:
    """Return rates in time of the link's jobs, among all that they are connected with: fair, and as scheduled."""
    users = scheduler.links.of(found.placement)
    capacities = [scheduler.links.rate_gbps] * len(users)
    all_jobs = placed_jobs(scheduler.jobs, users)
    group = next(group for group in groups(all_jobs) if any(job.name == link.jobs[0] for job in group))
    predicted = {one.job: one for one in found.predicted}
    stretch = predicted[link.jobs[0]].slot_ms / predicted[link.jobs[0]].solo_ms
    setting = shifted_setting(
        [found.starts_ms[job.name] for job in group],
        [predicted[job.name].solo_ms for job in group],
        stretch,
        TRACE_ROWS,
    )
    before = run_policy(group, capacities, setting=Setting(trace_rows=TRACE_ROWS), iterations=_ITERATIONS)
    after = run_policy(group, capacities, setting=setting, iterations=_ITERATIONS)
    places = [next(n for n, job in enumerate(group) if job.name == name) for name in link.jobs]
    return (_of_jobs(before, places), _of_jobs(after, places))


def _of_jobs(done: Contention, places: list[int]) -> Contention:
    return Contention(
        done.begins_ms[places], done.alignments[places], done.times_ms, done.rates_gbps[:, places]
    )
