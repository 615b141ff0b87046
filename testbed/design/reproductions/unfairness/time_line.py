"""Figure 2: two DLRM jobs on one link. Their bursts overlap if it is shared 50/50, and move apart at 60/40."""

from __future__ import annotations

from sim.models.contention.job import Sharing, compute_then_send
from sim.models.contention.simulation import ContentionResult, Setting, simulate
from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Cell,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Table,
    make_series,
)
from testbed.design.reproductions.unfairness.setup import JOB_GROUPS, Scale

SHARES = {"50/50": (1.0, 1.0), "60/40": (1.5, 1.0)}
RATE_GBPS = 50.0
_PLOTTED_ITERATIONS = 5
_COLUMNS = ("shares", "job", "ms", "gbps", "iteration_ms")
_DLRM = JOB_GROUPS[1]


def _make_table(scale: Scale, progress: Progress) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for number, (shares, weights) in enumerate(SHARES.items(), 1):
        contention = _simulate(weights, _PLOTTED_ITERATIONS + 1, trace_rows=1000)
        long_means_ms = _simulate(weights, scale.iteration_count).compute_mean_ms(
            scale.warm_up_iteration_count
        )
        means_ms = [float(mean) for mean in long_means_ms]
        until_ms = (_PLOTTED_ITERATIONS - 0.3) * _DLRM.periods_ms[0] * (1 + _DLRM.burst_fractions[0])
        rows += [
            (shares, f"job {job_index + 1}", float(time), float(rate), means_ms[job_index])
            for job_index in range(len(means_ms))
            for time, rate in zip(contention.times_ms, contention.rates_gbps[:, job_index], strict=True)
            if time <= until_ms
        ]
        progress(number, len(SHARES), shares)
    return Table.from_rows(_COLUMNS, rows)


def _simulate(weights: tuple[float, ...], iterations: int, trace_rows: int = 0) -> ContentionResult:
    periods_and_fractions = zip(_DLRM.periods_ms, _DLRM.burst_fractions, strict=True)
    jobs = [
        compute_then_send(f"job {n}", *pair, RATE_GBPS) for n, pair in enumerate(periods_and_fractions, 1)
    ]
    return simulate(jobs, [RATE_GBPS], iterations, Sharing(weights), Setting(max_trace_rows=trace_rows))


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    lines = []
    for job, published in zip(("job 1", "job 2"), _DLRM.published_speed_ups, strict=True):
        fair_ms, unfair_ms = (
            table.select_rows(shares=shares, job=job).get_numbers("iteration_ms")[0] for shares in SHARES
        )
        published_speed_up = PublishedValue(f"{published:g} x", "S", published)
        lines.append(
            Comparison(
                f"{job}: 50/50 over 60/40", published_speed_up, fair_ms / unfair_ms, "calibrated", " x"
            )
        )
        lines.append(
            Comparison(
                f"{job}: iteration at 60/40", UNPUBLISHED, unfair_ms, "alone 183 ms, calibrated", " ms"
            )
        )
    return tuple(lines)


def _make_plot(table: Table) -> Plot:
    panels = tuple(
        Panel(
            f"bandwidth shared {shares}",
            "time (ms)",
            "rate (Gb/s)",
            make_series(table.select_rows(shares=shares), "job", "ms", "gbps"),
            "steps",
        )
        for shares in SHARES
    )
    return Plot("SIMULATED: two DLRM jobs on one link", panels, max_columns=1)


FIGURE = Figure(2, "Two jobs at 50/50 and 60/40", _make_table, _compare_with_paper, _make_plot)
