"""Series over the runs of labs: bus bandwidth of configurations, optical power at the ends of stretches of glass."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from testbed.errors import ResultsError
from testbed.measure.model import Timing
from testbed.measure.results.parquet import read_rows
from testbed.measure.results.records import RunSummary
from testbed.measure.units import size_text
from testbed.storage.address import address_in
from testbed.storage.looking import is_database_error, why_unreadable
from testbed.storage.looking import read_rows as read_database

Quantity = Literal["bandwidth", "power"]
UNITS: Mapping[Quantity, str] = {"bandwidth": "Mbit/s", "power": "dBm"}


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a series: the run that it is of, and when that began (ISO 8601, UTC)."""

    run_id: str
    at: str
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity of one lab in the order of time; `name` says of what. A larger value is a better one."""

    quantity: Quantity
    lab: str
    name: str
    points: tuple[Point, ...]
    simulated: bool

    @property
    def values(self) -> tuple[float, ...]:
        """Values alone."""
        return tuple(point.value for point in self.points)


def bandwidth_series(runs: Iterable[RunSummary], *, every_size: bool = False) -> tuple[Series, ...]:
    """Return the bus bandwidth of every configuration, at the largest size that its newest run measured.

    With `every_size` each size is a series of its own. Runs that failed or were interrupted count as far as they came.
    Raises `ResultsError` for a file that cannot be read.
    """
    found: dict[tuple[Any, ...], dict[int, list[Point]]] = {}
    for run in sorted(runs, key=lambda one: one.started):
        measured: dict[tuple[Any, ...], list[float]] = {}
        for row in read_rows(run.directory / "timings.parquet", Timing):
            measured.setdefault((_key(run, row), row.size_bytes), []).append(row.busbw_mbps)
        for (key, size), values in measured.items():
            point = Point(run.run_id, run.started.isoformat(), fmean(values))
            found.setdefault(key, {}).setdefault(size, []).append(point)
    return tuple(
        Series("bandwidth", key[0], f"{key[3]}, {size_text(size)}", tuple(points), key[1])
        for key, sizes in found.items()
        for size, points in sorted(sizes.items())
        if every_size or size == _largest_of_newest(sizes)
    )


def _key(run: RunSummary, row: Timing) -> tuple[Any, ...]:
    name = f"{row.collective} {row.configuration} ({row.topology}, {row.ranks} ranks, {row.rings} rings, {row.hosts})"
    return run.lab, row.simulated, row.hosts, name


def _largest_of_newest(sizes: Mapping[int, Sequence[Point]]) -> int:
    newest = max(points[-1].at for points in sizes.values())
    return max(size for size, points in sizes.items() if points[-1].at == newest)


def power_series(runs_dir: str | Path, runs: Iterable[RunSummary]) -> tuple[Series, ...]:
    """Return the power at the end of every stretch of glass: for each run the median of the readings up to its end.

    Readings are those that `testbed drift` keeps; each counts for the first run of its lab that ended after it. Of a
    lab without runs every reading is a point of its own. Raises `ResultsError`.
    """
    by_lab: dict[str, list[RunSummary]] = {}
    for run in sorted(runs, key=lambda one: one.finished or one.started):
        by_lab.setdefault(run.lab, []).append(run)
    readings: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in _losses(runs_dir):
        readings.setdefault((row["lab"], row["place"]), []).append((row["taken_s"], row["power_dbm"]))
    return tuple(
        Series("power", lab, place, points, any(run.simulated for run in by_lab.get(lab, ())))
        for (lab, place), taken in readings.items()
        if (points := _at_runs(taken, by_lab.get(lab, [])))
    )


def _at_runs(taken: Sequence[tuple[float, float]], runs: Sequence[RunSummary]) -> tuple[Point, ...]:
    from testbed.operate.drift.report import time_text

    if not runs:
        return tuple(Point("", time_text(at_s), power) for at_s, power in taken)
    ends = [(run.finished or run.started).timestamp() for run in runs]
    by_run: dict[int, list[float]] = {}
    for at_s, power in taken:
        if (index := bisect_left(ends, at_s)) < len(runs):
            by_run.setdefault(index, []).append(power)
    return tuple(
        Point(runs[index].run_id, runs[index].started.isoformat(), median(powers))
        for index, powers in sorted(by_run.items())
    )


def _losses(runs_dir: str | Path) -> Sequence[Mapping[str, Any]]:
    address = address_in(runs_dir)
    query = "select lab, place, taken_s, power_dbm from losses order by lab, place, taken_s"
    try:
        return read_database(address, query)
    except Exception as error:
        if not is_database_error(error):
            raise
        raise ResultsError(f"optical power is not known: {why_unreadable(address, error)}") from error
