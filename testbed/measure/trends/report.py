"""Changes of all series, which of them are regressions, and the changes of the lab that came before each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from testbed.measure.trends.change_points import DEFAULT_RATE, LEAST_VALUES, ChangePoint, change_points
from testbed.measure.trends.series import UNITS, Point, Quantity, Series
from testbed.operate.recovery.history import history_of

LEAST_LOSS = {"bandwidth": 0.01, "power": 0.2}
"""What a regression is: this share of the bandwidth, or so many dB, less than before."""


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """A change of level of a series: `last` is of the level before, `first` of the one after.

    `epochs` are the changes of the lab between the two, the newest first, as `testbed history` lists them.
    """

    series: Series
    point: ChangePoint
    last: Point
    first: Point
    epochs: tuple[Mapping[str, Any], ...]

    @property
    def difference(self) -> float:
        """Level after less level before, in the unit of the series."""
        return self.point.after - self.point.before

    @property
    def is_regression(self) -> bool:
        """True if so much is lost that it matters."""
        lost = -self.difference
        if self.series.quantity == "bandwidth":
            lost /= abs(self.point.before) or 1.0
        return lost >= LEAST_LOSS[self.series.quantity]

    def as_json(self) -> dict[str, Any]:
        """Return one entry of `changes` in `testbed runs trend --json`."""
        return {
            "quantity": self.series.quantity,
            "lab": self.series.lab,
            "simulated": self.series.simulated,
            "series": self.series.name,
            "unit": UNITS[self.series.quantity],
            "run": self.first.run_id,
            "at": self.first.at,
            "last_run_before": self.last.run_id,
            "before": round(self.point.before, 4),
            "after": round(self.point.after, 4),
            "confidence": round(self.point.confidence, 5),
            "regression": self.is_regression,
            "epochs": [
                {key: one[key] for key in ("id", "kind", "state", "at", "who", "why")} for one in self.epochs
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yield the change for people."""
        unit = UNITS[self.series.quantity]
        word = "fell" if self.difference < 0 else "rose"
        run = f"run {self.first.run_id}" if self.first.run_id else f"the reading of {self.first.at}"
        yield (
            f"{'REGRESSION ' if self.is_regression else ''}{self.series.quantity} of lab {self.series.lab}, "
            f"{self.series.name}: {word} from {self.point.before:.4g} to {self.point.after:.4g} {unit} with {run}, "
            f"confidence {self.point.confidence:.1%}"
        )
        if not self.epochs:
            yield "    no change of the lab was applied between it and the one before"
        for one in self.epochs:
            yield f"    after epoch {one['id']} ({one['kind']}, {one['at'][:16].replace('T', ' ')} UTC): {one['why']}"


@dataclass(frozen=True, slots=True)
class TrendReport:
    """Changes of all series; `short` are series of too few values to be judged, `rate` that of the whole report."""

    series: tuple[Series, ...]
    changes: tuple[SeriesChange, ...]
    rate: float

    @property
    def short(self) -> int:
        """Series that have too few values."""
        return sum(len(one.points) < LEAST_VALUES for one in self.series)

    @property
    def regressions(self) -> tuple[SeriesChange, ...]:
        """Changes by which something is lost."""
        return tuple(change for change in self.changes if change.is_regression)

    def as_json(self) -> dict[str, Any]:
        """Return what `testbed runs trend --json` prints."""
        return {
            "series": len(self.series),
            "too_short": self.short,
            "rate": self.rate,
            "regressions": len(self.regressions),
            "changes": [change.as_json() for change in self.changes],
        }


def find_trends(runs_dir: str | Path, series: Sequence[Series], rate: float = DEFAULT_RATE) -> TrendReport:
    """Return the changes of series, those that lose something first. Raises `JournalError`.

    The rate of false alarms holds for the whole report: each series is tested at its share (Bonferroni).
    """
    judged = [one for one in series if len(one.points) >= LEAST_VALUES]
    histories: dict[str, list[dict[str, Any]]] = {}
    changes = []
    for one in judged:
        for point in change_points(one.values, rate=rate / len(judged)):
            if one.lab not in histories:
                histories[one.lab] = history_of(runs_dir, one.lab)
            last, first = one.points[point.index - 1], one.points[point.index]
            changes.append(SeriesChange(one, point, last, first, _between(histories[one.lab], last, first)))
    changes.sort(key=lambda change: (not change.is_regression, change.first.at))
    return TrendReport(tuple(series), tuple(changes), rate)


def _between(epochs: Sequence[Mapping[str, Any]], last: Point, first: Point) -> tuple[Mapping[str, Any], ...]:
    begin, end = datetime.fromisoformat(last.at), datetime.fromisoformat(first.at)
    return tuple(one for one in epochs if begin < datetime.fromisoformat(one["at"]) <= end)


def only(series: Sequence[Series], lab: str, quantity: Quantity | None) -> tuple[Series, ...]:
    """Return the series of one lab (empty: of all) and of one quantity."""
    return tuple(one for one in series if lab in ("", one.lab) and quantity in (None, one.quantity))
