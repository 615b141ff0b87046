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
from testbed.design.reproductions.unfairness.setup import ROWS, Row, Scale

_COLUMNS = ("jobs", "job", "model", "length", "fair_ms", "unfair_ms", "speed_up")
_DRIFT_TOLERANCE = 0.01


def _make_table(scale: Scale, progress: Progress) -> Table:
    rows: list[tuple[Cell, ...]] = []
    lengths = {"main": scale.iterations, "check": scale.check_iterations}
    for number, row in enumerate(ROWS, 1):
        for length, iterations in lengths.items():
            weights = [[1.0] * len(row.models), row.weights]
            fair, unfair = sweep(
                row.periods_ms, row.fractions, weights, iterations=iterations, warm_up=scale.warm_up
            )
            rows += [
                (row.name, job_number, model, length, float(even), float(uneven), float(even / uneven))
                for job_number, (model, even, uneven) in enumerate(
                    zip(row.models, fair, unfair, strict=True), 1
                )
            ]
        progress(number, len(ROWS), row.name)
    return Table.from_rows(_COLUMNS, rows)


def compute_speed_ups(table: Table, row: Row, length: str = "main") -> tuple[float, ...]:
    """Return the speed-up of each job of a row, from the run of this length."""
    return table.select_rows(jobs=row.name, length=length).get_numbers("speed_up")


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    return tuple(line for row in ROWS for line in _compare_row(table, row))


def _compare_row(table: Table, row: Row) -> list[Comparison]:
    ours = compute_speed_ups(table, row)
    check = compute_speed_ups(table, row, "check")
    lines = []
    for job_index, (model, published) in enumerate(zip(row.models, row.published, strict=True)):
        note = f"calibrated; a longer run gives {check[job_index]:.3f}"
        if abs(check[job_index] - ours[job_index]) > _DRIFT_TOLERANCE:
            note += ", so phases still drift"
        quantity = f"{row.name}: speed-up of job {job_index + 1}, {model}"
        lines.append(
            Comparison(
                quantity, PublishedValue(f"{published:g} x", "S", published), ours[job_index], note, " x"
            )
        )
    compatibility = PublishedValue("yes" if row.compatible else "no", "S", float(row.compatible) or None)
    compatible = float(all(speed_up > 1 for speed_up in ours))
    return [
        *lines,
        Comparison(f"{row.name}: compatible", compatibility, compatible, "1: each job is faster, 0: not"),
    ]


def _make_plot(table: Table) -> Plot:
    panels = tuple(Panel(row.name, "job", "speed-up", _make_bars(table, row), "bars") for row in ROWS)
    return Plot("SIMULATED: speed-up when the link is shared unfairly", panels, max_columns=2)


def _make_bars(table: Table, row: Row) -> tuple[Series, ...]:
    names = tuple(f"{job_number} {model}" for job_number, model in enumerate(row.models, 1))
    return Series("published", names, row.published), Series("ours", names, compute_speed_ups(table, row))


FIGURE = Figure(1, "Speed-up from unfairness", _make_table, _compare_with_paper, _make_plot)
