"""Predicted and measured times of iterations that run as jobs on planned routes of the simulated 12-host lab.

Six topologies are brought up one after the other. On each, an all-to-all in steps, groups over several hops, transfers
across the lab, AllReduces, and iterations of DLRM and of a mixture of experts run on routes that were computed for
them: once, after a warm-up. One factor, which is reported, scales all bytes and computing times of a case so that an
iteration takes about 1.6 s. Messages are then large compared with the 128 KiB that an idle link sends at once. The flow
simulator predicts the times with constants that were fixed in advance (`NAMESPACE_HOST_LATENCY`).

The hosts share the processors of one machine. A case with a processor load above 0.85 is repeated on links of half the
rate; the second measurement counts, and both are listed. Needs root. Arguments select topologies.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.models.network.taskgraph import TaskGraph, TaskGraphBuilder
from testbed.design.collectives.performance import NAMESPACE_HOST_LATENCY
from testbed.design.evaluation.host_job import make_host_job
from testbed.design.evaluation.job import open_job
from testbed.design.fabrics.direct import route_job
from testbed.design.model import Topology
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import AllReduceDemand, make_demand
from testbed.design.topology.finder import plan_topology
from testbed.design.workloads.choice import WorkloadChoice
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import set_link_rate, start_lab
from testbed.measure.plan_job import PlanRun, find_largest_deviation, run_on_hosts
from testbed.operate.design import Design, replace_routes
from testbed.operate.journal import Journal
from testbed.operate.session import LabSession, open_lab

LAB = Path(__file__).parents[1] / "labs" / "testbed12.yaml"
NODES = 12
RATE_MBPS, LOWER_MBPS = 100.0, 50.0
BUSY = 0.85
ITERATIONS, LASTS_S = 1, 1.6
ASKED_WORST, ASKED_MEDIAN = 0.15, 0.05
TABLES = [(node, node + 6, 4e9) for node in range(6)] + [(node, (node + 4) % NODES, 2e9) for node in range(6)]


def all_to_all(steps: int) -> TaskGraph:
    """Return transfers from each host to those at distances 1 to `steps`, one distance after the other."""
    job = TaskGraphBuilder(NODES)
    last: list[list[int]] = [[] for _ in range(NODES)]
    for step in range(1, steps + 1):
        sent = [
            job.add_transfer(node, (node + step) % NODES, 10**7, predecessors=last[node])
            for node in range(NODES)
        ]
        last = [[sent[node], sent[(node - step) % NODES]] for node in range(NODES)]
    return job.build()


def groups_of(members: int, times: int = 2) -> TaskGraph:
    """Return `times` successive AllReduces in each of the concurrent groups of evenly spaced hosts."""
    job, distance = TaskGraphBuilder(NODES), NODES // members
    for start in range(distance):
        group, last = tuple(range(start, NODES, distance)), []
        for _ in range(times):
            last = [job.add_allreduce(group, 4 * 10**7, predecessors=last)]
    return job.build()


def across(distance: int) -> TaskGraph:
    """Return a transfer from each host to the host at this distance."""
    job = TaskGraphBuilder(NODES)
    for node in range(NODES):
        job.add_transfer(node, (node + distance) % NODES, 5 * 10**7)
    return job.build()


def tables_read() -> TaskGraph:
    """Return reads of remote embedding tables, followed by an AllReduce of all hosts."""
    job = TaskGraphBuilder(NODES)
    read = [job.add_transfer(source, target, int(size / 100)) for source, target, size in TABLES]
    job.add_allreduce(tuple(range(NODES)), 10**8, predecessors=read)
    return job.build()


def workload(name: str, preset: str = "", **settings: str) -> TaskGraph:
    return open_job(WorkloadChoice(name, preset, settings), NODES).graph


CASES: Mapping[str, Callable[[], TaskGraph]] = {
    "all-to-all in 11 steps": lambda: all_to_all(11),
    "all-to-all in 5 steps": lambda: all_to_all(5),
    "groups of 4": lambda: groups_of(4),
    "groups of 3": lambda: groups_of(3),
    "AllReduce of 12": lambda: groups_of(12),
    "to the opposite": lambda: across(6),
    "to the fourth": lambda: across(4),
    "tables, then AllReduce": tables_read,
    "DLRM": lambda: workload("dlrm", "testbed"),
    "mixture of experts": lambda: workload("moe", layers="1", sequence="512"),
}

TOPOLOGIES: Mapping[str, Callable[[], Topology]] = {
    "strides 1 and 5": lambda: find_topology(NODES, 4),
    "stride 1": lambda: find_topology(NODES, 2),
    "strides 1 and 3": lambda: find_topology(
        NODES, 4, demands=[AllReduceDemand(12, 10**6), AllReduceDemand(4, 10**6)]
    ),
    "stride 1 and matchings": lambda: (
        plan_topology(make_demand(NODES, [AllReduceDemand(NODES, 10**9)], TABLES), 4).topology
    ),
    "one way, three strides": lambda: find_topology(NODES, 3, simplex=True),
    "three links a host": lambda: (
        plan_topology(make_demand(NODES, [AllReduceDemand(NODES, 10**9)], TABLES), 3).topology
    ),
}


@dataclass(frozen=True)
class Case:
    """One job on one topology, at one rate."""

    topology: str
    name: str
    rate_mbps: float
    run: PlanRun

    def figures(self) -> dict[str, object]:
        run = self.run
        return {
            "topology": self.topology,
            "case": self.name,
            "rate_mbps": self.rate_mbps,
            "factor": run.size_factor,
            "predicted_ms": round(run.predicted_iteration_s * 1e3, 1),
            "measured_ms": round(run.measured_s * 1e3, 1),
            "difference": round(run.prediction_error, 4),
            "spread": round(max(run.times_s) / min(run.times_s) - 1, 4),
            "busy": round(run.processor_load, 3),
            "payload_off": round(find_largest_deviation(run.links) or 0.0, 4),
        }


def measure(
    session: LabSession, name: str, topology: Topology, cases: Iterable[str], rate_mbps: float
) -> Iterator[Case]:
    """Measure the cases on a topology, each on routes computed for it."""
    wiring = make_wiring(topology)
    bare = Design(name, topology, wiring, find_routes(wiring))
    session.bring_up(bare)
    for case in cases:
        graph = CASES[case]()
        design = replace_routes(bare, route_job(topology, graph))
        session.install_routes(design)
        assert design.route_sets is not None, "replace_routes sets them"
        stretch = session.lab.link.represents_gbps * 1000 / rate_mbps
        job = make_host_job(graph, design.route_sets, rate_mbps, stretch=stretch, target_s=LASTS_S)
        run = run_on_hosts(session.fleet, session.lab, wiring, job, iterations=ITERATIONS, deadline_s=120)
        yield Case(name, case, rate_mbps, run)


def measure_at(rate_mbps: float, cases_by_topology: Mapping[str, Iterable[str]]) -> Iterator[Case]:
    """Measure these cases of each topology on a lab with links of this rate, and report each on standard error."""
    with (
        start_lab(set_link_rate(load_lab(LAB), rate_mbps), hosts="kernel", may_move=True) as up,
        tempfile.TemporaryDirectory() as scratch,
        Journal(Path(scratch) / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as session,
    ):
        for name, cases in cases_by_topology.items():
            for case in measure(session, name, TOPOLOGIES[name](), cases, rate_mbps):
                print(json.dumps(case.figures()), file=sys.stderr, flush=True)
                yield case


def summary(cases: Sequence[Case]) -> dict[str, object]:
    errors = [abs(case.run.prediction_error) for case in cases]
    payload = [find_largest_deviation(case.run.links) or 0.0 for case in cases]
    return {
        "cases": len(errors),
        "worst": round(max(errors), 4),
        "median": round(statistics.median(errors), 4),
        "payload_worst": round(max(payload), 4),
        "payload_median": round(statistics.median(payload), 4),
    }


def main(names: Sequence[str] = ()) -> None:
    """Measure all topologies, or those with these names; repeat busy cases on slower links."""
    begin, load = time.monotonic(), os.getloadavg()[0]
    cases_by_topology = {name: list(CASES) for name in TOPOLOGIES if not names or name in names}
    first = list(measure_at(RATE_MBPS, cases_by_topology))
    repeated: dict[str, list[str]] = {}
    for case in first:
        if case.run.processor_load > BUSY:
            repeated.setdefault(case.topology, []).append(case.name)
    second = list(measure_at(LOWER_MBPS, repeated)) if repeated else []
    counted = [case for case in first if case.run.processor_load <= BUSY] + second
    line = {
        "benchmark": "reality_plans",
        "simulated": True,
        "hosts": "kernel",
        "nodes": NODES,
        "iterations": ITERATIONS,
        "software_s": NAMESPACE_HOST_LATENCY.software_delay_s,
        "topologies": len({case.topology for case in first}),
        **summary(counted),
        "undisturbed": summary([case for case in counted if case.run.processor_load <= BUSY] or counted),
        "busy_at_first": len(second),
        "busy_again": sum(case.run.processor_load > BUSY for case in second),
        "asked_worst_at_most": ASKED_WORST,
        "asked_median_at_most": ASKED_MEDIAN,
        "rows": [case.figures() for case in (*first, *second)],
        "processors": os.cpu_count(),
        "load_before": round(load, 2),
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1:])
