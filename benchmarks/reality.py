"""Predicted and measured times of collectives and transfers over real sockets on the simulated 12-host lab.

Five topologies are brought up one after the other. On each, every case runs in three turns of several successive
iterations; the measured time is the median of the three. The flow simulator predicts the same iterations from the
wiring, the installed routes, and constants that were fixed in advance (`testbed.design.collectives`). The hosts share
the processors of one machine, so run this on an otherwise idle machine. Cases that were limited by the processors and
not by the links are marked `cpu_limited`.

Needs root. Arguments select topologies by their functions in this module. Each case is printed when it is measured.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.design.collectives.performance import NAMESPACE_HOST_LATENCY, build_hosts_fabric, predict_time_s
from testbed.design.model import RingOrder, Topology
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import AllReduceDemand, make_demand
from testbed.design.topology.finder import plan_topology
from testbed.design.topology.strides import list_rings, make_ring_order
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.measure.collectives.ranks import run_collectives
from testbed.measure.collectives.rows import find_misplaced_traffic
from testbed.measure.collectives.spec import CollectiveSpec, Configuration, make_all_to_all
from testbed.measure.model import CollectiveResult
from testbed.operate.design import Design
from testbed.operate.journal import Journal
from testbed.operate.session import LabSession, open_lab

LAB = Path(__file__).parents[1] / "labs" / "testbed12.yaml"
NODES = 12
MIB = 1 << 20
REPEATS = 3
MIN_ITERATIONS, MAX_ITERATIONS, MIN_TIME_S = 3, 6, 0.5
ASKED_WORST, ASKED_MEDIAN = 0.15, 0.05

SMALL = (4 * MIB,)
MEDIUM = (4 * MIB, 8 * MIB)
LARGE = (4 * MIB, 8 * MIB, 16 * MIB)


def design(name: str, topology: Topology) -> Design:
    wiring = make_wiring(topology)
    return Design(name, topology, wiring, find_routes(wiring))


def one_to_one(name: str, pairs: Sequence[tuple[int, int]], sizes: tuple[int, ...]) -> Configuration:
    return Configuration(name, (), sizes, tuple(pairs))


def groups_of(members: int) -> tuple[RingOrder, ...]:
    """Return a one-way ring for each group of evenly spaced hosts."""
    step = NODES // members
    return tuple(make_ring_order(NODES, step, start) for start in range(step))


def circulant() -> tuple[Design, tuple[Configuration, ...]]:
    """Return the circulant with strides ±1 and ±5, which has four rings but none for groups, and its cases."""
    planned = design("±1 ±5", find_topology(NODES, 4))
    rings = list_rings(planned.topology)
    return planned, (
        Configuration("one ring", rings[:1], LARGE),
        Configuration("two rings", rings[:2], MEDIUM),
        Configuration("four rings", rings, LARGE),
        Configuration("groups of 4, three hops a step", groups_of(4), MEDIUM),
        make_all_to_all("all-to-all", NODES, LARGE),
        one_to_one("0 to 3, three hops", [(0, 3)], LARGE),
        one_to_one(
            "everybody to the opposite", [(node, (node + 6) % NODES) for node in range(NODES)], MEDIUM
        ),
    )


def double_ring() -> tuple[Design, tuple[Configuration, ...]]:
    """Return the circulant with stride ±1 only, on two of four NICs, which has long paths, and its cases."""
    planned = design("±1", find_topology(NODES, 2))
    return planned, (
        Configuration("two rings", list_rings(planned.topology), MEDIUM),
        Configuration("ring of stride 5, five hops a step", (make_ring_order(NODES, 5),), SMALL),
        Configuration("groups of 4, three hops a step", groups_of(4), SMALL),
        make_all_to_all("all-to-all", NODES, SMALL),
        one_to_one("0 to 6, six hops", [(0, 6)], MEDIUM),
    )


def groups() -> tuple[Design, tuple[Configuration, ...]]:
    """Return the circulant with strides ±1 and ±3, which has rings for groups of 4, and its cases."""
    demands = [AllReduceDemand(12, MIB), AllReduceDemand(4, MIB)]
    planned = design("±1 ±3", find_topology(NODES, 4, demands=demands))
    return planned, (
        Configuration("two rings", list_rings(planned.topology), SMALL),
        Configuration("groups of 4, two rings each", list_rings(planned.topology, 4), LARGE),
        make_all_to_all("all-to-all", NODES, MEDIUM),
        one_to_one("two flows meet", [(0, 5), (1, 5)], SMALL),
    )


def matched() -> tuple[Design, tuple[Configuration, ...]]:
    """Return a topology searched for six embedding tables with remote readers, and its cases."""
    tables = [(node, node + 6, 4e9) for node in range(6)] + [
        (node, (node + 4) % NODES, 2e9) for node in range(6)
    ]
    finding = plan_topology(make_demand(NODES, [AllReduceDemand(NODES, 10**9)], tables), 4)
    planned = design("±1 and matchings", finding.topology)
    read = [(source, target) for source, target, _ in tables]
    return planned, (
        Configuration("two rings", list_rings(planned.topology), SMALL),
        one_to_one("tables read across", read, LARGE),
        make_all_to_all("all-to-all", NODES, MEDIUM),
        Configuration("groups of 4", groups_of(4), SMALL),
    )


def one_way() -> tuple[Design, tuple[Configuration, ...]]:
    """Return one-way links with three strides, where acknowledgements take other paths than data, and its cases."""
    planned = design("one-way", find_topology(NODES, 3, simplex=True))
    rings = list_rings(planned.topology)
    return planned, (
        Configuration("one ring", rings[:1], SMALL),
        Configuration("three rings", rings, MEDIUM),
        make_all_to_all("all-to-all", NODES, SMALL),
        one_to_one("1 to 0, the long way round", [(1, 0)], MEDIUM),
    )


@dataclass(frozen=True)
class Case:
    """One size of one configuration on one topology, with times per iteration in s."""

    topology: str
    name: str
    size_bytes: int
    hops: int
    predicted_s: float
    measured_s: float
    spread: float
    cpu_limited: bool
    nics_off_plan: int

    @property
    def difference(self) -> float:
        return self.predicted_s / self.measured_s - 1

    def figures(self) -> dict[str, object]:
        return {
            "topology": self.topology,
            "case": self.name,
            "mib": self.size_bytes // MIB,
            "hops": self.hops,
            "predicted_ms": round(self.predicted_s * 1e3, 1),
            "measured_ms": round(self.measured_s * 1e3, 1),
            "difference": round(self.difference, 4),
            "spread": round(self.spread, 4),
            "cpu_limited": self.cpu_limited,
            "nics_off_plan": self.nics_off_plan,
        }


def prediction(
    planned: Design, configuration: Configuration, size: int, iterations: int, rate: float
) -> float:
    fabric = build_hosts_fabric(planned.wiring, planned.routes, rate)
    graph = configuration.collective.make_graph(NODES, configuration, size, iterations)
    return predict_time_s(graph, fabric) / iterations


def longest_hops(planned: Design, configuration: Configuration) -> int:
    """Return the number of links on the longest path of a message."""
    orders = [ring.order for ring in configuration.rings]
    steps = [pair for order in orders for pair in zip(order, order[1:] + order[:1], strict=True)]
    return max(planned.routes.count_hops(*pair) for pair in (*steps, *configuration.pairs))


def measure(
    session: LabSession, planned: Design, configurations: Sequence[Configuration]
) -> CollectiveResult:
    """Bring up a topology, and measure `REPEATS` turns of all sizes."""
    verified = session.bring_up(planned).verify_report
    if not verified.ok or session.fleet is None:
        raise SystemExit(f"the lab is not as planned: {verified.findings}")
    turns = tuple(
        Configuration(each.name, each.rings, each.sizes * REPEATS, each.pairs) for each in configurations
    )
    spec = CollectiveSpec(
        "reality",
        planned.name,
        turns,
        min_time_s=MIN_TIME_S,
        min_iterations=MIN_ITERATIONS,
        max_iterations=MAX_ITERATIONS,
    )
    parts = (session.fleet, session.lab, planned.wiring, planned.routes, spec)
    return run_collectives(*parts, deadline_s=500)


def compare(
    planned: Design, configurations: Sequence[Configuration], result: CollectiveResult, rate: float
) -> Iterator[Case]:
    wrong = Counter(
        (entry.configuration, entry.size_bytes) for entry in find_misplaced_traffic(result.nic_bytes)
    )
    for configuration in configurations:
        for size in configuration.sizes:
            key = (configuration.name, size)
            turns = [row for row in result.timings if (row.configuration, row.size_bytes) == key]
            middle = sorted(turns, key=lambda row: row.time_us)[len(turns) // 2]
            times = [row.time_us for row in turns]
            yield Case(
                planned.name,
                configuration.name,
                size,
                longest_hops(planned, configuration),
                prediction(planned, configuration, size, middle.iterations, rate),
                middle.time_us / 1e6,
                max(times) / min(times) - 1,
                middle.cpu_limited,
                wrong[key],
            )


def summary(cases: Sequence[Case]) -> dict[str, object]:
    """Return the number of cases, and the largest and median relative error of their predictions."""
    errors = [abs(case.difference) for case in cases]
    if not errors:
        return {"cases": 0}
    return {
        "cases": len(errors),
        "worst": round(max(errors), 4),
        "median": round(statistics.median(errors), 4),
    }


TOPOLOGIES = (circulant, double_ring, groups, matched, one_way)


def main(names: Sequence[str] = ()) -> None:
    """Measure all topologies, or those whose functions have these names."""
    begin, load = time.monotonic(), os.getloadavg()[0]
    cases: list[Case] = []
    with (
        start_lab(load_lab(LAB), hosts="kernel", may_move=True) as up,
        tempfile.TemporaryDirectory() as scratch,
        Journal(Path(scratch) / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as session,
    ):
        for build in TOPOLOGIES if not names else [each for each in TOPOLOGIES if each.__name__ in names]:
            planned, configurations = build()
            result = measure(session, planned, configurations)
            for case in compare(planned, configurations, result, up.lab.link.rate_mbps):
                cases.append(case)
                print(json.dumps(case.figures(), ensure_ascii=False), file=sys.stderr, flush=True)
    line = {
        "benchmark": "reality",
        "simulated": True,
        "hosts": "kernel",
        "nodes": NODES,
        "repeats": REPEATS,
        "software_s": NAMESPACE_HOST_LATENCY.software_delay_s,
        "topologies": len({case.topology for case in cases}),
        **summary(cases),
        "undisturbed": summary([case for case in cases if not case.cpu_limited]),
        "asked_worst_at_most": ASKED_WORST,
        "asked_median_at_most": ASKED_MEDIAN,
        "nics_off_plan": sum(case.nics_off_plan for case in cases),
        "rows": [case.figures() for case in cases],
        "processors": os.cpu_count(),
        "load_before": round(load, 2),
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[1:])
