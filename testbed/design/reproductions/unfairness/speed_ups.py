"""Figure 1: the table of speed-ups. A group of jobs is compatible if each of them gets faster."""

from __future__ import annotations

from sim.models.contention.simulation import sweep
from testbed.design.reproductions.figure import (
    Cell,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Series,
    Table,
)
from testbed.design.reproductions.unfairness.setup import JOB_GROUPS, JobGroup, Scale

_COLUMNS = ("jobs", "job", "model", "length", "fair_ms", "unfair_ms", "speed_up")
_DRIFT_TOLERANCE = 0.01


def _make_table(scale: Scale, progress: Progress) -> Table:
    rows: list[tuple[Cell, ...]] = []
    lengths = {"main": scale.iteration_count, "check": scale.check_iteration_count}
    for number, job_group in enumerate(JOB_GROUPS, 1):
        for run_length, iterations in lengths.items():
            weights = [[1.0] * len(job_group.models), job_group.weights]
            fair_means_ms, unfair_means_ms = sweep(
                job_group.periods_ms,
                job_group.burst_fractions,
                weights,
                iterations=iterations,
                warm_up_count=scale.warm_up_iteration_count,
            )
            rows += [
                (
                    job_group.name,
                    job_number,
                    model,
                    run_length,
                    float(fair_ms),
                    float(unfair_ms),
                    float(fair_ms / unfair_ms),
                )
                for job_number, (model, fair_ms, unfair_ms) in enumerate(
                    zip(job_group.models, fair_means_ms, unfair_means_ms, strict=True), 1
                )
            ]
        progress(number, len(JOB_GROUPS), job_group.name)
    return Table.from_rows(_COLUMNS, rows)


def compute_speed_ups(table: Table, job_group: JobGroup, run_length: str = "main") -> tuple[float, ...]:
    """Return the speed-up of each job of a row, from the run of this length."""
    return table.select_rows(jobs=job_group.name, length=run_length).get_numbers("speed_up")


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    return tuple(line for job_group in JOB_GROUPS for line in _compare_row(table, job_group))


def _compare_row(table: Table, job_group: JobGroup) -> list[Comparison]:
    our_speed_ups = compute_speed_ups(table, job_group)
    check_speed_ups = compute_speed_ups(table, job_group, "check")
    lines = []
    for job_index, (model, published) in enumerate(
        zip(job_group.models, job_group.published_speed_ups, strict=True)
    ):
        note = f"calibrated; a longer run gives {check_speed_ups[job_index]:.3f}"
        if abs(check_speed_ups[job_index] - our_speed_ups[job_index]) > _DRIFT_TOLERANCE:
            note += ", so phases still drift"
        quantity = f"{job_group.name}: speed-up of job {job_index + 1}, {model}"
        lines.append(
            Comparison(
                quantity,
                PublishedValue(f"{published:g} x", "S", published),
                our_speed_ups[job_index],
                note,
                " x",
            )
        )
    published_compatibility = PublishedValue(
        "yes" if job_group.is_compatible else "no", "S", float(job_group.is_compatible) or None
    )
    our_compatibility = float(all(speed_up > 1 for speed_up in our_speed_ups))
    return [
        *lines,
        Comparison(
            f"{job_group.name}: compatible",
            published_compatibility,
            our_compatibility,
            "1: each job is faster, 0: not",
        ),
    ]


def _make_plot(table: Table) -> Plot:
    panels = tuple(
        Panel(job_group.name, "job", "speed-up", _make_bars(table, job_group), "bars")
        for job_group in JOB_GROUPS
    )
    return Plot("SIMULATED: speed-up when the link is shared unfairly", panels, max_columns=2)


def _make_bars(table: Table, job_group: JobGroup) -> tuple[Series, ...]:
    names = tuple(f"{job_number} {model}" for job_number, model in enumerate(job_group.models, 1))
    return Series("published", names, job_group.published_speed_ups), Series(
        "ours", names, compute_speed_ups(table, job_group)
    )


FIGURE = Figure(1, "Speed-up from unfairness", _make_table, _compare_with_paper, _make_plot)
