"""What a workload gains by another topology, from what was measured on both. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.design.workload import HybridWorkload
from testbed.measure.model import Timing
from testbed.measure.records import Comparison
from testbed.measure.units import size_text


def group_name(workload: HybridWorkload) -> str:
    """`groups of 4`: how the configuration of a workload's groups is called."""
    return f"groups of {workload.group}"


def compare_topologies(
    timings: Sequence[Timing], before: str, after: str, workload: HybridWorkload
) -> tuple[Comparison, Comparison]:
    """Two topologies by name: bus bandwidth inside the groups, and the communication of one iteration.

    `timings` must hold, for both, rows of the workload's groups and of an AllReduce over all nodes.
    """
    slow, fast = (_largest(timings, topology, group_name(workload)) for topology in (before, after))
    times = [_iteration_s(timings, topology, workload) for topology in (before, after)]
    return (
        Comparison(
            label=f"bus bandwidth in {group_name(workload)} at {size_text(slow.size_bytes)}",
            unit="Mbit/s",
            before=slow.busbw_mbps,
            after=fast.busbw_mbps,
        ),
        Comparison(
            label="communication of one training iteration",
            unit="s",
            before=times[0],
            after=times[1],
            higher_is_better=False,
        ),
    )


def _iteration_s(timings: Sequence[Timing], topology: str, workload: HybridWorkload) -> float:
    """Both AllReduces of the workload, extrapolated from the largest measured size of each."""
    parts = (
        (_largest(timings, topology, group_name(workload)), workload.tensor_bytes),
        (_fastest_over_all(timings, topology, workload.nodes), workload.data_bytes),
    )
    return sum(row.time_us / 1e6 * size_bytes / row.size_bytes for row, size_bytes in parts)


def _fastest_over_all(timings: Sequence[Timing], topology: str, nodes: int) -> Timing:
    """The fastest configuration over all nodes at the largest size."""
    rows = [row for row in timings if (row.topology, row.ranks) == (topology, nodes)]
    largest = max(row.size_bytes for row in rows)
    return min((row for row in rows if row.size_bytes == largest), key=lambda row: row.time_us)


def _largest(timings: Sequence[Timing], topology: str, configuration: str) -> Timing:
    rows = [row for row in timings if (row.topology, row.configuration) == (topology, configuration)]
    return max(rows, key=lambda row: row.size_bytes)
