"""Gains computed from timings: several rings over one ring, and a second topology over the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.design.topology.demand import AllReduceDemand
from testbed.measure.model import Timing
from testbed.measure.results.records import Comparison
from testbed.measure.units import format_size


@dataclass(frozen=True, slots=True)
class RingGain:
    """Two timings at the same size, with many rings and with one ring, to compare their bus bandwidths."""

    many_rings_timing: Timing
    one_ring_timing: Timing

    @property
    def bandwidth_ratio(self) -> float:
        """Ratio of the bus bandwidths at the median times."""
        return self.many_rings_timing.busbw_mbps / self.one_ring_timing.busbw_mbps

    @property
    def ratio_bounds(self) -> tuple[float, float]:
        """Smallest and largest ratio that the quartiles allow, or zeros for an older run without quartiles."""
        if not (self.many_rings_timing.low_us and self.one_ring_timing.low_us):
            return (0.0, 0.0)
        return (
            self.one_ring_timing.low_us / self.many_rings_timing.high_us,
            self.one_ring_timing.high_us / self.many_rings_timing.low_us,
        )

    @property
    def is_cpu_limited(self) -> bool:
        """True if the hosts' processors, not the links, limited this ratio."""
        return self.many_rings_timing.cpu_limited or self.one_ring_timing.cpu_limited


def find_ring_gain(timings: Sequence[Timing]) -> RingGain | None:
    """Return the gain of the timing with most rings over the one-ring timing of the same collective, ranks and size.

    Return None if these timings do not exist.
    """
    most_rings_timing = max(timings, key=lambda candidate: candidate.rings, default=None)
    if most_rings_timing is None or most_rings_timing.rings == 1:
        return None
    one_ring_key = (most_rings_timing.collective, most_rings_timing.ranks, most_rings_timing.size_bytes, 1)
    for timing in timings:
        if (
            timing.collective,
            timing.ranks,
            timing.size_bytes,
            timing.rings,
        ) == one_ring_key and timing.busbw_mbps:
            return RingGain(most_rings_timing, timing)
    return None


def select_largest_timings(timings: Sequence[Timing]) -> tuple[Timing, ...]:
    """Return each configuration's timing at its largest size, for the first topology, in the order measured."""
    first_timings = [timing for timing in timings if timing.topology == timings[0].topology]
    names = dict.fromkeys(timing.configuration for timing in first_timings)
    return tuple(_find_largest(first_timings, first_timings[0].topology, name) for name in names)


def make_group_name(group_size: int) -> str:
    """Return the name of the configuration of AllReduces in groups, such as `groups of 4`."""
    return f"groups of {group_size}"


def compare_topologies(
    timings: Sequence[Timing],
    first_topology: str,
    second_topology: str,
    demands: Sequence[AllReduceDemand],
    node_count: int,
) -> tuple[Comparison, ...]:
    """Compare two topologies: bus bandwidth in each group size, and the time of all AllReduces of one iteration.

    `timings` must hold, for both, rows of the groups and of an AllReduce over all nodes.
    """
    group_sizes = [demand.group_size for demand in demands if demand.group_size < node_count]
    topology_timings = [
        _select_rows(timings, topology, demands, node_count) for topology in (first_topology, second_topology)
    ]
    # Each AllReduce of the job is extrapolated from its row in proportion to the size.
    iteration_times_s = [
        sum(
            row.time_us / 1e6 * demand.size_bytes / row.size_bytes
            for row, demand in zip(topology_rows, demands, strict=True)
        )
        for topology_rows in topology_timings
    ]
    return (
        *(
            _compare_bandwidth(timings, first_topology, second_topology, group_size)
            for group_size in group_sizes
        ),
        Comparison(
            label="communication of one training iteration",
            unit="s",
            before=iteration_times_s[0],
            after=iteration_times_s[1],
            higher_is_better=False,
            cpu_limited=any(row.cpu_limited for topology_rows in topology_timings for row in topology_rows),
        ),
    )


def _compare_bandwidth(
    timings: Sequence[Timing], first_topology: str, second_topology: str, group_size: int
) -> Comparison:
    first_timing, second_timing = (
        _find_largest(timings, topology, make_group_name(group_size))
        for topology in (first_topology, second_topology)
    )
    return Comparison(
        label=f"bus bandwidth in {make_group_name(group_size)} at {format_size(first_timing.size_bytes)}",
        unit="Mbit/s",
        before=first_timing.busbw_mbps,
        after=second_timing.busbw_mbps,
        cpu_limited=first_timing.cpu_limited or second_timing.cpu_limited,
    )


def _select_rows(
    timings: Sequence[Timing], topology: str, demands: Sequence[AllReduceDemand], node_count: int
) -> list[Timing]:
    """Return a timing at the largest size for each AllReduce of the job.

    An AllReduce in groups takes the timing of its group size. An AllReduce over all nodes takes the fastest timing.
    """
    return [
        _find_fastest_over_all(timings, topology, node_count)
        if demand.group_size == node_count
        else _find_largest(timings, topology, make_group_name(demand.group_size))
        for demand in demands
    ]


def _find_fastest_over_all(timings: Sequence[Timing], topology: str, node_count: int) -> Timing:
    """Return the fastest AllReduce over all nodes at the largest size."""
    row_key = (topology, "all_reduce", node_count)
    rows = [row for row in timings if (row.topology, row.collective, row.ranks) == row_key]
    largest_bytes = max(row.size_bytes for row in rows)
    return min((row for row in rows if row.size_bytes == largest_bytes), key=lambda row: row.time_us)


def _find_largest(timings: Sequence[Timing], topology: str, configuration: str) -> Timing:
    rows = [row for row in timings if (row.topology, row.configuration) == (topology, configuration)]
    return max(rows, key=lambda row: row.size_bytes)
