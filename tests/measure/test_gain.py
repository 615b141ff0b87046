"""Gains of workloads, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from libraries import skip_without

skip_without("sqlalchemy")

from testbed.design.topology.demand import AllReduceDemand
from testbed.measure.gain import compare_topologies
from testbed.measure.model import Timing

DEMANDS = (AllReduceDemand(4, 4 << 20), AllReduceDemand(12, 1 << 20))


def row(topology: str, configuration: str, ranks: int, size: int, time_us: float) -> Timing:
    busbw = size * 8 / time_us * 2 * (ranks - 1) / ranks
    return Timing(
        run_id="r",
        topology=topology,
        configuration=configuration,
        collective="all_reduce",
        ranks=ranks,
        rings=1,
        size_bytes=size,
        iterations=2,
        time_us=time_us,
        min_us=time_us,
        max_us=time_us,
        algbw_mbps=size * 8 / time_us,
        busbw_mbps=busbw,
        limit_mbps=100,
        wrong=0,
        cpu_limited=False,
        simulated=True,
        hosts="model",
    )


def test_the_largest_size_and_the_fastest_configuration_count():
    rows = [
        row("A", "groups of 4", 4, 1 << 10, 1),
        row("A", "groups of 4", 4, 1 << 20, 300_000),
        row("A", "one ring", 12, 1 << 20, 200_000),
        row("A", "four rings", 12, 1 << 20, 50_000),
        replace(row("A", "all-to-all", 12, 1 << 20, 1_000), collective="all_to_all"),
        row("B", "groups of 4", 4, 1 << 20, 100_000),
        row("B", "one ring", 12, 1 << 20, 200_000),
    ]

    bandwidth, iteration = compare_topologies(rows, "A", "B", DEMANDS, 12)

    assert bandwidth.label == "bus bandwidth in groups of 4 at 1 MiB"
    assert bandwidth.gain == pytest.approx(3)
    assert (iteration.before, iteration.after) == pytest.approx((4 * 0.3 + 0.05, 4 * 0.1 + 0.2))
    assert iteration.gain == pytest.approx(1.25 / 0.6)
