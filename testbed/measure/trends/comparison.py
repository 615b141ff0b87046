"""Comparison of two runs: the rows that both measured, and the facts that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.measure.model import Timing
from testbed.measure.results.records import StoredRun

_SAME = ("topology", "configuration", "collective", "ranks", "rings", "size_bytes")


@dataclass(frozen=True, slots=True)
class RowPair:
    """The same measurement in two runs."""

    before: Timing
    after: Timing

    @property
    def ratio(self) -> float:
        """Bus bandwidth of the second divided by that of the first; 0 if the first has none."""
        return self.after.busbw_mbps / self.before.busbw_mbps if self.before.busbw_mbps else 0.0

    @property
    def is_clear(self) -> bool:
        """True if the interquartile ranges of both runs do not overlap; False without quartiles."""
        first, second = self.before.busbw_spread_mbps, self.after.busbw_spread_mbps
        return bool(first[1] and second[1]) and (first[1] < second[0] or second[1] < first[0])

    def as_json(self) -> dict[str, Any]:
        """Return one entry of `rows` in `testbed runs compare --json`."""
        return {name: getattr(self.before, name) for name in _SAME} | {
            "a_mbps": self.before.busbw_mbps,
            "b_mbps": self.after.busbw_mbps,
            "ratio": round(self.ratio, 4),
            "clear": self.is_clear,
            "cpu_limited": self.before.cpu_limited or self.after.cpu_limited,
        }


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Comparison of two runs: common rows, numbers of rows that only one has, and facts that differ."""

    rows: tuple[RowPair, ...]
    only_a: int
    only_b: int
    differences: tuple[tuple[str, str, str], ...]

    def as_json(self) -> dict[str, Any]:
        """Return the output of `testbed runs compare --json`, without the runs themselves."""
        return {
            "rows": [row.as_json() for row in self.rows],
            "only_a": self.only_a,
            "only_b": self.only_b,
            "differences": [{"fact": fact, "a": a, "b": b} for fact, a, b in self.differences],
        }


def compare_runs(a: StoredRun, b: StoredRun) -> RunComparison:
    """Compare two runs. Pure."""
    ours, theirs = (
        {tuple(getattr(row, name) for name in _SAME): row for row in run.timings} for run in (a, b)
    )
    rows = tuple(RowPair(row, theirs[key]) for key, row in ours.items() if key in theirs)
    facts = [
        ("lab", a.lab.name, b.lab.name),
        ("hosts", a.summary.hosts, b.summary.hosts),
        ("simulated", a.summary.simulated, b.summary.simulated),
        ("link rate, Mbit/s", a.lab.rate_mbps, b.lab.rate_mbps),
        ("MTU", a.lab.mtu, b.lab.mtu),
        ("switches", ", ".join(a.lab.switches), ", ".join(b.lab.switches)),
        *(
            (f"circuits of {name}", len(a.circuits.get(name, ())), len(b.circuits.get(name, ())))
            for name in sorted({*a.circuits, *b.circuits})
        ),
        *(
            (name, a.environment.get(name, ""), b.environment.get(name, ""))
            for name in sorted({*a.environment, *b.environment} - {"arguments"})
        ),
    ]
    return RunComparison(
        rows,
        len(ours) - len(rows),
        len(theirs) - len(rows),
        tuple((fact, str(one), str(other)) for fact, one, other in facts if one != other),
    )
