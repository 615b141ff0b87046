"""Comparison of two runs: rows that both measured, and facts that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.measure.model import Timing
from testbed.measure.results.records import StoredRun

_KEY_FIELDS = ("topology", "configuration", "collective", "ranks", "rings", "size_bytes")


@dataclass(frozen=True, slots=True)
class RowPair:
    """The same measurement in two runs."""

    first_timing: Timing
    second_timing: Timing

    @property
    def bandwidth_ratio(self) -> float:
        """Bus bandwidth of the second run divided by that of the first run, or 0 if the first run has none."""
        return (
            self.second_timing.busbw_mbps / self.first_timing.busbw_mbps
            if self.first_timing.busbw_mbps
            else 0.0
        )

    @property
    def is_clear(self) -> bool:
        """True if the interquartile ranges of both runs do not overlap. False without quartiles."""
        first_quartiles, second_quartiles = (
            self.first_timing.busbw_spread_mbps,
            self.second_timing.busbw_spread_mbps,
        )
        return bool(first_quartiles[1] and second_quartiles[1]) and (
            first_quartiles[1] < second_quartiles[0] or second_quartiles[1] < first_quartiles[0]
        )

    def as_json(self) -> dict[str, Any]:
        """Return one entry of `rows` in `testbed runs compare --json`."""
        return {name: getattr(self.first_timing, name) for name in _KEY_FIELDS} | {
            "a_mbps": self.first_timing.busbw_mbps,
            "b_mbps": self.second_timing.busbw_mbps,
            "ratio": round(self.bandwidth_ratio, 4),
            "clear": self.is_clear,
            "cpu_limited": self.first_timing.cpu_limited or self.second_timing.cpu_limited,
        }


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Comparison of two runs: common rows, numbers of rows in only one run, and differing facts (name, a, b)."""

    rows: tuple[RowPair, ...]
    only_a_count: int
    only_b_count: int
    differences: tuple[tuple[str, str, str], ...]

    def as_json(self) -> dict[str, Any]:
        """Return the output of `testbed runs compare --json`, except for the two runs."""
        return {
            "rows": [row.as_json() for row in self.rows],
            "only_a": self.only_a_count,
            "only_b": self.only_b_count,
            "differences": [{"fact": fact, "a": a, "b": b} for fact, a, b in self.differences],
        }


def compare_runs(run_a: StoredRun, run_b: StoredRun) -> RunComparison:
    """Compare two runs."""
    row_by_key_a, row_by_key_b = (
        {tuple(getattr(row, name) for name in _KEY_FIELDS): row for row in run.timings}
        for run in (run_a, run_b)
    )
    rows = tuple(RowPair(row, row_by_key_b[key]) for key, row in row_by_key_a.items() if key in row_by_key_b)
    facts = [
        ("lab", run_a.lab.name, run_b.lab.name),
        ("hosts", run_a.summary.hosts, run_b.summary.hosts),
        ("simulated", run_a.summary.simulated, run_b.summary.simulated),
        ("link rate, Mbit/s", run_a.lab.rate_mbps, run_b.lab.rate_mbps),
        ("MTU", run_a.lab.mtu, run_b.lab.mtu),
        ("switches", ", ".join(run_a.lab.switches), ", ".join(run_b.lab.switches)),
        *(
            (f"circuits of {name}", len(run_a.circuits.get(name, ())), len(run_b.circuits.get(name, ())))
            for name in sorted({*run_a.circuits, *run_b.circuits})
        ),
        *(
            (name, run_a.environment.get(name, ""), run_b.environment.get(name, ""))
            for name in sorted({*run_a.environment, *run_b.environment} - {"arguments"})
        ),
    ]
    return RunComparison(
        rows,
        len(row_by_key_a) - len(rows),
        len(row_by_key_b) - len(rows),
        tuple((fact, str(fact_a), str(fact_b)) for fact, fact_a, fact_b in facts if fact_a != fact_b),
    )
