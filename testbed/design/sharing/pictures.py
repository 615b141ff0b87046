"""Pictures of a schedule: a link's circles, and its timeline before and after. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightbed.output_file import save_figure
from lightbed.wording import describe_extra
from sim.models.contention.job import PeriodicJob
from sim.models.contention.simulation import ContentionResult, Floats, Setting
from testbed.design.sharing.cassini.prediction import group_by_links, make_shifted_setting, simulate_policy
from testbed.design.sharing.cassini.schedule import LinkSchedule, Schedule, Scheduler
from testbed.design.sharing.jobs import place_jobs

_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#8c8c8c", "#ccb974")
TRACE_ROWS = 4000

SHOWN_PERIODS = 6
_ITERATIONS = 40


@dataclass(frozen=True, slots=True)
class DrawnLink:
    """A link to draw, with its rate, its jobs and the starts of the jobs."""

    link: str
    rate_gbps: float
    jobs: Sequence[PeriodicJob]
    starts_ms: Sequence[float]


def draw_circles(drawn_link: DrawnLink, perimeter_ms: float, path: Path) -> Path:
    """Draw the bursts of each job around the unified circle, without and with shifts, and return `path`.

    Raises `ModuleNotFoundError` with a hint if matplotlib is missing.
    """
    figure = _make_figure(9.2, 5.4)
    figure.get_layout_engine().set(rect=(0, 0, 1, 0.93))  # the layout ignores titles of polar axes
    zero_starts = [0.0] * len(drawn_link.jobs)
    titles = ("all start at once", "shifted as scheduled")
    for column, (title, starts) in enumerate(
        zip(titles, (zero_starts, drawn_link.starts_ms), strict=True), 1
    ):
        axis = figure.add_subplot(1, 2, column, projection="polar")
        for number, (job, start) in enumerate(zip(drawn_link.jobs, starts, strict=True)):
            inner_radius, height = 1.0 + number, 0.86
            colour = _COLOURS[number % len(_COLOURS)]
            axis.bar(np.pi, height, 2 * np.pi, inner_radius, color=colour, alpha=0.12)
            max_gbps = max((burst.gbps for burst in job.bursts), default=1.0)
            label: str | None = f"{job.name}, {job.period_ms:g} ms"
            for period_index in range(round(perimeter_ms / job.period_ms)):
                for burst in job.bursts:
                    width = 2 * np.pi * burst.length_ms / perimeter_ms
                    middle = (
                        2 * np.pi * (period_index * job.period_ms + start + burst.start_ms) / perimeter_ms
                        + width / 2
                    )
                    axis.bar(
                        middle, height * burst.gbps / max_gbps, width, inner_radius, color=colour, label=label
                    )
                    label = None
            axis.set_ylim(0, len(drawn_link.jobs) + 1.2)
        axis.set_theta_zero_location("N")
        axis.set_theta_direction(-1)
        axis.set_yticks([])
        axis.grid(visible=False)
        angles = np.arange(0, 360, 45)
        axis.set_thetagrids(angles, [f"{perimeter_ms * angle / 360:g}" for angle in angles])
        axis.set_title(f"link {drawn_link.link}: {title}\n({perimeter_ms:g} ms around)", fontsize=9)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False)
    return _save_figure(figure, path)


def draw_time_line(
    drawn_link: DrawnLink,
    fair_contention: ContentionResult,
    shifted_contention: ContentionResult,
    length_ms: float,
    path: Path,
) -> Path:
    """Draw the link's modelled rates up to `length_ms`, with fair sharing and as scheduled, and return `path`."""
    figure = _make_figure(9.2, 4.6)
    axes = figure.subplots(2, 1, sharex=True)
    for axis, contention, title in zip(
        axes, (fair_contention, shifted_contention), ("fair, all start at once", "as scheduled"), strict=True
    ):
        shown_times = contention.times_ms <= length_ms
        times: Floats = np.append(contention.times_ms[shown_times], length_ms)
        bottom = np.zeros(len(times))
        for number, job in enumerate(drawn_link.jobs):
            rates = np.append(contention.rates_gbps[shown_times, number], 0.0)
            colour = _COLOURS[number % len(_COLOURS)]
            axis.fill_between(
                times, bottom, bottom + rates, step="post", color=colour, label=job.name, linewidth=0
            )
            bottom = bottom + rates
        axis.set(ylabel="Gb/s", title=f"SIMULATED: link {drawn_link.link}, {title}", xlim=(0, length_ms))
        axis.set_ylim(0, drawn_link.rate_gbps * 1.08)
        axis.axhline(drawn_link.rate_gbps, color="black", linewidth=0.6, linestyle=":")
    axes[1].set_xlabel("ms")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False)
    return _save_figure(figure, path)


def _make_figure(width_in: float, height_in: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"drawing needs matplotlib: {describe_extra('testbed')}", name=error.name
        ) from error
    return Figure(figsize=(width_in, height_in), layout="constrained")


def _save_figure(figure: Any, path: Path) -> Path:
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "lightbed"}):
        save_figure(figure, path)
    return path


def draw_schedule(scheduler: Scheduler, schedule: Schedule, folder: Path, ending: str) -> list[Path]:
    """Draw the busiest shared link into `folder`, and return the paths of the pictures; none without a shared link."""
    if not schedule.links:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    busiest_link = max(schedule.links, key=lambda link: _compute_load(scheduler, link))
    job_by_name = {job.name: job for job in scheduler.jobs}
    jobs = [job_by_name[name].place_on_links((0,)) for name in busiest_link.jobs]
    starts = [schedule.starts_ms[name] for name in busiest_link.jobs]
    drawn_link = DrawnLink(busiest_link.link, scheduler.links.rate_gbps, jobs, starts)
    quantum_ms = scheduler.rounding.quantum_ms
    perimeter_ms = (
        float(np.lcm.reduce([scheduler.rounding.count_period_quanta(job) for job in jobs])) * quantum_ms
    )
    fair_contention, shifted_contention = _simulate_before_and_after(scheduler, schedule, busiest_link)
    length_ms = max(starts) + SHOWN_PERIODS * max(job.period_ms for job in jobs)
    return [
        draw_circles(drawn_link, perimeter_ms, folder / f"circles.{ending}"),
        draw_time_line(
            drawn_link, fair_contention, shifted_contention, length_ms, folder / f"timeline.{ending}"
        ),
    ]


def _compute_load(scheduler: Scheduler, link: LinkSchedule) -> float:
    job_by_name = {job.name: job.place_on_links(()) for job in scheduler.jobs}
    return sum(job_by_name[name].volume_mbit / job_by_name[name].period_ms for name in link.jobs)


def _simulate_before_and_after(
    scheduler: Scheduler, schedule: Schedule, link: LinkSchedule
) -> tuple[ContentionResult, ContentionResult]:
    """Simulate a link's jobs and all connected jobs, fair and as scheduled, and return the link's rates over time."""
    jobs_by_link = scheduler.links.find_jobs_by_link(schedule.placement, scheduler.jobs)
    capacities = [scheduler.links.rate_gbps] * len(jobs_by_link)
    all_jobs = place_jobs(scheduler.jobs, jobs_by_link)
    group = next(
        group for group in group_by_links(all_jobs) if any(job.name == link.jobs[0] for job in group)
    )
    prediction_by_job = {entry.job: entry for entry in schedule.predicted}
    stretch = prediction_by_job[link.jobs[0]].slot_ms / prediction_by_job[link.jobs[0]].solo_ms
    setting = make_shifted_setting(
        [schedule.starts_ms[job.name] for job in group],
        [prediction_by_job[job.name].solo_ms for job in group],
        stretch,
        TRACE_ROWS,
    )
    fair_contention = simulate_policy(
        group, capacities, setting=Setting(max_trace_rows=TRACE_ROWS), iterations=_ITERATIONS
    )
    shifted_contention = simulate_policy(group, capacities, setting=setting, iterations=_ITERATIONS)
    job_indices = [
        next(job_index for job_index, job in enumerate(group) if job.name == name) for name in link.jobs
    ]
    return (_select_jobs(fair_contention, job_indices), _select_jobs(shifted_contention, job_indices))


def _select_jobs(contention: ContentionResult, job_indices: list[int]) -> ContentionResult:
    return ContentionResult(
        contention.begins_ms[job_indices],
        contention.alignments[job_indices],
        contention.times_ms,
        contention.rates_gbps[:, job_indices],
    )
