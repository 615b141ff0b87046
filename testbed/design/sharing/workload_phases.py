"""Phases of a job from a workload: bursts on the fullest link of an iteration, simulated on a ring of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from sim.models.network.results.traces import make_link_table
from testbed.design.evaluation.job import open_job
from testbed.design.evaluation.simulation import simulate_on
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.kind import FabricOptions, FabricRequest
from testbed.design.sharing.jobs import Burst
from testbed.design.topology.circulants import find_topology
from testbed.design.workloads.choice import WorkloadChoice
from testbed.errors import WorkloadError

MAX_BURSTS = 8
"""Maximum number of bursts of a job. If there are more, the closest bursts are joined at their mean rate."""
MAX_JOINED_GAP = 0.01
"""Bursts are also joined if the gap between them is at most this fraction of the period."""
Spans = list[tuple[float, float, float]]
"""Time spans in which a link carries data: begin and end in seconds, and the bits that it carries."""


@dataclass(frozen=True, slots=True)
class Phases:
    """Period and bursts of a job."""

    period_ms: float
    bursts: tuple[Burst, ...]


def simulate_phases(
    choice: WorkloadChoice, servers: int, rate_gbps: float, strategy: str = "default"
) -> Phases:
    """Return the phases of a workload on a ring of servers, with links of `rate_gbps`.

    Raises `WorkloadError` for a single server, which sends nothing, and all errors of `open_job`.
    """
    if servers < 2:
        raise WorkloadError(f"workload {choice.name!r} sends nothing on a single host: give it at least two")
    job = open_job(choice, servers, strategy)
    topology = find_topology(servers, min(2, servers - 1))
    request = FabricRequest(
        "direct", servers, topology.degree, rate_gbps, topology=topology, options=FabricOptions()
    )
    execution = simulate_on(build_fabric(request).as_fluid(), job.graph, trace=True)
    table = make_link_table(execution)
    spans_by_link: dict[int, Spans] = {}
    rows = zip(table["link"], table["begin_s"], table["end_s"], table["rate_bps"], strict=True)
    for link, begin_s, end_s, rate_bps in rows:
        bits = float(rate_bps * (end_s - begin_s))
        spans_by_link.setdefault(int(link), []).append((float(begin_s), float(end_s), bits))
    fullest_spans = max(
        spans_by_link.values(), key=lambda link_spans: sum(bits for _, _, bits in link_spans), default=[]
    )
    return Phases(execution.iteration_s * 1e3, find_bursts(fullest_spans, execution.iteration_s, rate_gbps))


def find_bursts(spans: Spans, period_s: float, rate_gbps: float) -> tuple[Burst, ...]:
    """Return at most `MAX_BURSTS` bursts that carry the bits of a link's spans, at their mean rates.

    >>> find_bursts([(0.0, 0.1, 1e9), (0.1, 0.2, 5e8), (0.5, 0.6, 1e9)], 1.0, 10.0)
    (Burst(start_ms=0.0, length_ms=200.0, gbps=7.5), Burst(start_ms=500.0, length_ms=100.0, gbps=10.0))
    """
    merged_spans = list(spans)
    while len(merged_spans) > 1:
        gaps = [following[0] - previous[1] for previous, following in pairwise(merged_spans)]
        narrowest = min(range(len(gaps)), key=gaps.__getitem__)
        if gaps[narrowest] > MAX_JOINED_GAP * period_s and len(merged_spans) <= MAX_BURSTS:
            break
        (begin_s, _, bits), (_, end_s, more_bits) = merged_spans[narrowest : narrowest + 2]
        merged_spans[narrowest : narrowest + 2] = [(begin_s, end_s, bits + more_bits)]
    return tuple(
        Burst(
            round(begin_s * 1e3, 6),
            round((end_s - begin_s) * 1e3, 6),
            min(bits / (end_s - begin_s) / 1e9, rate_gbps),
        )
        for begin_s, end_s, bits in merged_spans
    )
