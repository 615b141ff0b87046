"""What a workload gains by another topology, from what was measured on both. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.design.demand import AllReduceDemand
from testbed.measure.model import Timing
from testbed.measure.records import Comparison
from testbed.measure.units import size_text


def group_name(group: int) -> str:
    """`groups of 4`: how the configuration of AllReduces in groups is called."""
    return f"groups of {group}"


def compare_topologies(
    timings: Sequence[Timing], before: str, after: str, demands: Sequence[AllReduceDemand], nodes: int
) -> tuple[Comparison, ...]:
    """Two topologies by name: bus bandwidth inside each size of group, and the AllReduces of one iteration.

    `timings` must hold, for both, rows of the groups and of an AllReduce over all nodes.
    """
    groups = [demand.group for demand in demands if demand.group < nodes]
    seconds = [_iteration_s(timings, topology, demands, nodes) for topology in (before, after)]
    return (
        *(_bandwidth(timings, before, after, group) for group in groups),
        Comparison(
            label="communication of one training iteration",
            unit="s",
            before=seconds[0],
            after=seconds[1],
            higher_is_better=False,
        ),
    )


def _bandwidth(timings: Sequence[Timing], before: str, after: str, group: int) -> Comparison:
    slow, fast = (_largest(timings, topology, group_name(group)) for topology in (before, after))
    return Comparison(
        label=f"bus bandwidth in {group_name(group)} at {size_text(slow.size_bytes)}",
        unit="Mbit/s",
        before=slow.busbw_mbps,
        after=fast.busbw_mbps,
    )


def _iteration_s(
    timings: Sequence[Timing], topology: str, demands: Sequence[AllReduceDemand], nodes: int
) -> float:
    """All AllReduces of the job, each extrapolated from the largest measured size."""
    seconds = 0.0
    for demand in demands:
        everybody = demand.group == nodes
        row = (
            _fastest_over_all(timings, topology, nodes)
            if everybody
            else _largest(timings, topology, group_name(demand.group))
        )
        seconds += row.time_us / 1e6 * demand.size_bytes / row.size_bytes
    return seconds


def _fastest_over_all(timings: Sequence[Timing], topology: str, nodes: int) -> Timing:
    """The fastest configuration over all nodes at the largest size."""
    rows = [row for row in timings if (row.topology, row.ranks) == (topology, nodes)]
    largest = max(row.size_bytes for row in rows)
    return min((row for row in rows if row.size_bytes == largest), key=lambda row: row.time_us)


def _largest(timings: Sequence[Timing], topology: str, configuration: str) -> Timing:
    rows = [row for row in timings if (row.topology, row.configuration) == (topology, configuration)]
    return max(rows, key=lambda row: row.size_bytes)
