"""Trends over runs: when a measured quantity changed, whether it got worse, and what was applied to the lab before.

A series holds the bus bandwidth of a configuration, or the optical power at the end of a fibre section.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from testbed.errors import ResultsError
from testbed.measure.model import Timing
from testbed.measure.results.parquet import read_rows
from testbed.measure.results.records import RunSummary
from testbed.measure.trends.change_points import (
    DEFAULT_FALSE_ALARM_RATE,
    MIN_SERIES_LENGTH,
    ChangePoint,
    find_change_points,
)
from testbed.measure.units import format_size
from testbed.operate.recovery.records import load_history
from testbed.storage.address import get_database_address
from testbed.storage.reading import explain_unreadable, is_database_error
from testbed.storage.reading import read_rows as read_database

Quantity = Literal["bandwidth", "power"]
UNITS: Mapping[Quantity, str] = {"bandwidth": "Mbit/s", "power": "dBm"}


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a series, with its run and the start of that run (ISO 8601, UTC).

    In a lab without runs, `run_id` is "" and `start_time` is the time of the reading.
    """

    run_id: str
    start_time: str
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one quantity in one lab, in order of time. `name` is its configuration or place. Larger is better."""

    quantity: Quantity
    lab: str
    name: str
    points: tuple[Point, ...]
    is_simulated: bool

    @property
    def values(self) -> tuple[float, ...]:
        """The values, without runs and times."""
        return tuple(point.value for point in self.points)


def read_bandwidth_series(runs: Iterable[RunSummary], *, every_size: bool = False) -> tuple[Series, ...]:
    """Return the bus bandwidth of every configuration, at the largest size that its newest run measured.

    With `every_size`, each size is its own series. Rows of failed and interrupted runs count too. Raises `ResultsError`
    for a file that cannot be read.
    """
    points_by_series: dict[tuple[Any, ...], dict[int, list[Point]]] = {}
    for run in sorted(runs, key=lambda summary: summary.started):
        bandwidths: dict[tuple[Any, ...], list[float]] = {}
        for row in read_rows(run.directory / "timings.parquet", Timing):
            name = (
                f"{row.collective} {row.configuration} "
                f"({row.topology}, {row.ranks} ranks, {row.rings} rings, {row.hosts})"
            )
            bandwidths.setdefault(((run.lab, row.simulated, row.hosts, name), row.size_bytes), []).append(
                row.busbw_mbps
            )
        for (key, size), values in bandwidths.items():
            point = Point(run.run_id, run.started.isoformat(), fmean(values))
            points_by_series.setdefault(key, {}).setdefault(size, []).append(point)
    return tuple(
        Series("bandwidth", key[0], f"{key[3]}, {format_size(size)}", tuple(points), key[1])
        for key, points_by_size in points_by_series.items()
        for size, points in sorted(points_by_size.items())
        if every_size or size == _find_largest_size(points_by_size)
    )


def _find_largest_size(points_by_size: Mapping[int, Sequence[Point]]) -> int:
    newest_time = max(points[-1].start_time for points in points_by_size.values())
    return max(size for size, points in points_by_size.items() if points[-1].start_time == newest_time)


def read_power_series(runs_dir: str | Path, runs: Iterable[RunSummary]) -> tuple[Series, ...]:
    """Return the power at the end of every fibre section. A run has the median of its readings as its value.

    `testbed drift` stores the readings. A reading belongs to the first run of its lab that ended after it. In a lab
    without runs, every reading is its own point. Raises `ResultsError`.
    """
    runs_by_lab: dict[str, list[RunSummary]] = {}
    for run in sorted(runs, key=lambda summary: summary.finished or summary.started):
        runs_by_lab.setdefault(run.lab, []).append(run)
    readings_by_place: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in _read_power_rows(runs_dir):
        readings_by_place.setdefault((row["lab"], row["place"]), []).append(
            (row["taken_s"], row["power_dbm"])
        )
    return tuple(
        Series("power", lab, place, points, any(run.simulated for run in runs_by_lab.get(lab, ())))
        for (lab, place), place_readings in readings_by_place.items()
        if (points := _make_points(place_readings, runs_by_lab.get(lab, [])))
    )


def _make_points(readings: Sequence[tuple[float, float]], runs: Sequence[RunSummary]) -> tuple[Point, ...]:
    from testbed.operate.drift.report import format_time

    if not runs:
        return tuple(Point("", format_time(time_s), power) for time_s, power in readings)
    end_times = [(run.finished or run.started).timestamp() for run in runs]
    powers_by_run: dict[int, list[float]] = {}
    for time_s, power in readings:
        if (index := bisect_left(end_times, time_s)) < len(runs):
            powers_by_run.setdefault(index, []).append(power)
    return tuple(
        Point(runs[index].run_id, runs[index].started.isoformat(), median(powers))
        for index, powers in sorted(powers_by_run.items())
    )


def _read_power_rows(runs_dir: str | Path) -> Sequence[Mapping[str, Any]]:
    address = get_database_address(runs_dir)
    query = "select lab, place, taken_s, power_dbm from losses order by lab, place, taken_s"
    try:
        return read_database(address, query)
    except Exception as error:
        if not is_database_error(error):
            raise
        raise ResultsError(f"optical power is not known: {explain_unreadable(address, error)}") from error


MIN_DECLINE = {"bandwidth": 0.01, "power": 0.2}
"""Smallest loss that counts as a regression: a fraction of the bandwidth, or dB of power."""


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """A change of level of a series.

    `last_old_point` is the last point of the old level, `first_new_point` the next point.

    `epochs` are the epochs of the lab between these points, newest first, as `testbed history` lists them.
    """

    series: Series
    change_point: ChangePoint
    last_old_point: Point
    first_new_point: Point
    epochs: tuple[Mapping[str, Any], ...]

    @property
    def difference(self) -> float:
        """New level minus old level, in the unit of the series."""
        return self.change_point.after - self.change_point.before

    @property
    def is_regression(self) -> bool:
        """True if the loss is at least `MIN_DECLINE`."""
        decline = -self.difference
        if self.series.quantity == "bandwidth":
            decline /= abs(self.change_point.before) or 1.0
        return decline >= MIN_DECLINE[self.series.quantity]

    def as_json(self) -> dict[str, Any]:
        """Return one entry of `changes` in `testbed runs trend --json`."""
        return {
            "quantity": self.series.quantity,
            "lab": self.series.lab,
            "simulated": self.series.is_simulated,
            "series": self.series.name,
            "unit": UNITS[self.series.quantity],
            "run": self.first_new_point.run_id,
            "at": self.first_new_point.start_time,
            "last_run_before": self.last_old_point.run_id,
            "before": round(self.change_point.before, 4),
            "after": round(self.change_point.after, 4),
            "confidence": round(self.change_point.confidence, 5),
            "regression": self.is_regression,
            "epochs": [
                {key: epoch[key] for key in ("id", "kind", "state", "at", "who", "why")}
                for epoch in self.epochs
            ],
        }

    def format_lines(self) -> Iterator[str]:
        """Yield lines of text that describe the change."""
        unit = UNITS[self.series.quantity]
        verb = "fell" if self.difference < 0 else "rose"
        run_text = (
            f"run {self.first_new_point.run_id}"
            if self.first_new_point.run_id
            else f"the reading of {self.first_new_point.start_time}"
        )
        yield (
            f"{'REGRESSION ' if self.is_regression else ''}{self.series.quantity} of lab {self.series.lab}, "
            f"{self.series.name}: {verb} from {self.change_point.before:.4g} to {self.change_point.after:.4g} {unit}"
            " with "
            f"{run_text}, confidence {self.change_point.confidence:.1%}"
        )
        if not self.epochs:
            yield "    no change of the lab was applied between this value and the one before"
        for epoch in self.epochs:
            yield (
                f"    after epoch {epoch['id']} ({epoch['kind']}, {epoch['at'][:16].replace('T', ' ')} UTC): "
                f"{epoch['why']}"
            )


@dataclass(frozen=True, slots=True)
class TrendReport:
    """The changes of all series. `false_alarm_rate` is the probability of a false alarm in the whole report."""

    series: tuple[Series, ...]
    changes: tuple[SeriesChange, ...]
    false_alarm_rate: float

    @property
    def short_series_count(self) -> int:
        """Number of series with too few values for a test."""
        return sum(len(series.points) < MIN_SERIES_LENGTH for series in self.series)

    @property
    def regressions(self) -> tuple[SeriesChange, ...]:
        """Changes that are regressions."""
        return tuple(change for change in self.changes if change.is_regression)

    def as_json(self) -> dict[str, Any]:
        """Return the output of `testbed runs trend --json`."""
        return {
            "series": len(self.series),
            "too_short": self.short_series_count,
            "rate": self.false_alarm_rate,
            "regressions": len(self.regressions),
            "changes": [change.as_json() for change in self.changes],
        }


def find_trends(
    runs_dir: str | Path, all_series: Sequence[Series], false_alarm_rate: float = DEFAULT_FALSE_ALARM_RATE
) -> TrendReport:
    """Return a report of the changes of the series, regressions first. Raises `JournalError`.

    `false_alarm_rate` is the probability of a false alarm in the whole report. It is divided equally among the series
    (Bonferroni).
    """
    tested_series = [series for series in all_series if len(series.points) >= MIN_SERIES_LENGTH]
    history_by_lab: dict[str, list[dict[str, Any]]] = {}
    changes = []
    for series in tested_series:
        for point in find_change_points(
            series.values, false_alarm_rate=false_alarm_rate / len(tested_series)
        ):
            if series.lab not in history_by_lab:
                history_by_lab[series.lab] = load_history(runs_dir, series.lab)
            last_point, first_point = series.points[point.index - 1], series.points[point.index]
            start_time, end_time = (
                datetime.fromisoformat(last_point.start_time),
                datetime.fromisoformat(first_point.start_time),
            )
            epochs = tuple(
                epoch
                for epoch in history_by_lab[series.lab]
                if start_time < datetime.fromisoformat(epoch["at"]) <= end_time
            )
            changes.append(SeriesChange(series, point, last_point, first_point, epochs))
    changes.sort(key=lambda change: (not change.is_regression, change.first_new_point.start_time))
    return TrendReport(tuple(all_series), tuple(changes), false_alarm_rate)


def select_series(all_series: Sequence[Series], lab: str, quantity: Quantity | None) -> tuple[Series, ...]:
    """Return the series of a lab ("" for all labs) and of a quantity (None for both)."""
    return tuple(
        series for series in all_series if lab in ("", series.lab) and quantity in (None, series.quantity)
    )
