"""The network model compared with a packet-level simulator, and its speed, on published task graphs at their rates.

Three JSON lines. `network_fidelity` compares iteration times with those of the packet simulator, whose fabric is a
Fat-tree with a random path per message: the times of `testbed simulate GRAPH --fabric fattree --routing hash --seed N`
for seeds 0 to 9 and their mean, and those of a Fat-tree that spreads flows and of an ideal switch. `network_fluid`
gives the difference of fluid rings, and of rounded ends of flows, from the exact simulation. `network_speed` is the
time of one compiled simulation of the largest graph, in processor seconds of one core, without reading files.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lightbed.compiled import IS_AVAILABLE
from sim.models.network.allreduce import Algorithm, plan_rings
from sim.models.network.allreduce.fluid import make_circulant_rings, plan_fluid_ring
from sim.models.network.execution import simulate
from sim.models.network.fabrics import Fabric, make_circulant, make_expander, make_fat_tree, make_ideal_switch
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraph, read_task_graph
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.kind import FabricOptions, FabricRequest

RATE_GBPS = 100
PACKETS_MS = {
    "25candle_16": 2187.41,
    "40dlrm_16": 138.85,
    "200transformer_16": 63.52,
    "10vgg_16": 1782.31,
    "100vgg_16": 210.77,
    "100transformer_16": 64.74,
    "100dlrm_128": 246.09,
}
SEEDS = range(10)
WITHIN = {"candle": 0.06}
WITHIN_OTHERS = 0.02
AT_100_GBPS = ("100vgg_16", "100transformer_16", "100dlrm_128")
LARGEST = "100dlrm_128"
REPEATS = 5
ROUNDING = 0.01
STRIDES = {16: (1, 3, 13, 15), 128: (1, 15, 113, 127)}
ASKED_S, AIMED_S = 1.0, 0.3
FABRICS: dict[str, Callable[[int], Fabric]] = {
    "fattree_hash": lambda nodes: make_fat_tree(nodes, RATE_GBPS, balance="hash"),
    "fattree_spread": lambda nodes: make_fat_tree(nodes, RATE_GBPS),
    "ideal": lambda nodes: make_ideal_switch(nodes, RATE_GBPS),
}


def parts_of(name: str) -> tuple[float, str]:
    """Return the rate and the model in a name: "25candle_16" is CANDLE at 25 Gbit/s."""
    match = re.match(r"(\d+)([a-z]+)", name)
    if not match:
        raise ValueError(f"{name} does not begin with a rate and a model")
    return float(match[1]), match[2]


def hashed_ms(graph: TaskGraph, rate_gbps: float, seed: int) -> float:
    """Return the iteration time in ms as with `--fabric fattree --routing hash --seed SEED`."""
    request = FabricRequest(
        "fattree", graph.node_count, 1, rate_gbps, options=FabricOptions(seed=seed, routing="hash")
    )
    return build_fabric(request).run(graph).iteration_s * 1e3


def fidelity(graphs: dict[str, TaskGraph]) -> dict[str, object]:
    rows: dict[str, dict[str, object]] = {}
    for name, graph in graphs.items():
        (rate_gbps, model), packets_ms = parts_of(name), PACKETS_MS[name]
        times_ms = [hashed_ms(graph, rate_gbps, seed) for seed in SEEDS]
        off = statistics.mean(times_ms) / packets_ms - 1
        tolerance = WITHIN.get(model, WITHIN_OTHERS)
        rows[name] = {
            "packets_ms": packets_ms,
            "hash_ms": round(statistics.mean(times_ms), 2),
            "hash_least_ms": round(min(times_ms), 2),
            "hash_most_ms": round(max(times_ms), 2),
            "off": round(off, 4),
            "asked_off_within": tolerance,
            "holds": abs(off) <= tolerance,
        }
        for fabric, network in {
            "spread": make_fat_tree(graph.node_count, rate_gbps),
            "ideal": make_ideal_switch(graph.node_count, rate_gbps),
        }.items():
            iteration_ms = simulate(graph, network).iteration_s * 1e3
            rows[name] |= {
                f"{fabric}_ms": round(iteration_ms, 2),
                f"{fabric}_off": round(iteration_ms / packets_ms - 1, 4),
            }
        alone = simulate(graph, make_ideal_switch(graph.node_count, rate_gbps), latency=NO_LATENCY)
        rows[name]["no_latency_ms"] = round(alone.iteration_s * 1e3, 2)
    return {"results": rows, "seeds": len(SEEDS), "all_hold": all(row["holds"] for row in rows.values())}


def rings(fabric: str, nodes: int, *, exact: bool) -> Algorithm:
    """Return the AllReduce algorithm: one ring per stride on the circulant, a single ring on other fabrics."""
    if fabric == "circulant_d4":
        return make_circulant_rings(nodes, STRIDES[nodes], exact=exact)
    return plan_rings if exact else plan_fluid_ring


DIRECT: dict[str, Callable[[int], Fabric]] = {
    "circulant_d4": lambda nodes: make_circulant(nodes, STRIDES[nodes], RATE_GBPS)
}


def fluidity(graphs: dict[str, TaskGraph]) -> dict[str, object]:
    rows: dict[str, dict[str, float]] = {}
    for name, graph in graphs.items():
        rows[name] = {}
        for fabric, make in (FABRICS | DIRECT).items():
            network, flow = make(graph.node_count), rings(fabric, graph.node_count, exact=False)
            in_rounds_s = simulate(
                graph, network, allreduce=rings(fabric, graph.node_count, exact=True)
            ).iteration_s
            fluid_s = simulate(graph, network, allreduce=flow).iteration_s
            rounded_s = simulate(graph, network, allreduce=flow, rounding=ROUNDING).iteration_s
            rows[name] |= {
                f"{fabric}_ms": round(in_rounds_s * 1e3, 2),
                f"{fabric}_fluid_off": round(fluid_s / in_rounds_s - 1, 4),
                f"{fabric}_rounded_off": round(rounded_s / in_rounds_s - 1, 4),
            }
    return {"results": rows, "rounding": ROUNDING}


def timed(
    graph: TaskGraph, fabric: Fabric, allreduce: Algorithm, rounding: float, repeats: int
) -> dict[str, float]:
    times = []
    for _ in range(repeats if fabric.name == "ideal" else 1):
        begin = time.process_time()
        execution = simulate(graph, fabric, allreduce=allreduce, rounding=rounding)
        times.append(time.process_time() - begin)
    return {"cpu_s": round(statistics.median(times), 3), "shares": execution.event_count}


def speed(graph: TaskGraph) -> dict[str, object]:
    makers = FABRICS | DIRECT | {"expander_d4": lambda nodes: make_expander(nodes, 4, RATE_GBPS, seed=1)}
    rows = {}
    for name, make in makers.items():
        fabric = make(graph.node_count)
        for form, exact, rounding in (("", True, 0.0), ("_fluid", False, 0.0), ("_rounded", False, ROUNDING)):
            rows[name + form] = timed(
                graph,
                fabric,
                rings(name, graph.node_count, exact=exact),
                rounding,
                REPEATS if not form else 1,
            )
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "graph": LARGEST,
        "compiled": IS_AVAILABLE,
        "results": rows,
        "memory_mb": round(memory_mb),
        "asked_ideal_cpu_s_below": ASKED_S,
        "aimed_ideal_cpu_s": AIMED_S,
    }


def main() -> int:
    folder = os.environ.get("LIGHTBED_DATA")
    if not folder:
        print(
            "LIGHTBED_DATA must name the folder that holds taskgraphs/100vgg_16.npz and others",
            file=sys.stderr,
        )
        return 1
    graphs = {name: read_task_graph(Path(folder) / "taskgraphs" / f"{name}.npz") for name in PACKETS_MS}
    at_100_gbps = {name: graphs[name] for name in AT_100_GBPS}
    print(json.dumps({"benchmark": "network_fidelity", "simulated": True, **fidelity(graphs)}))
    print(json.dumps({"benchmark": "network_fluid", "simulated": True, **fluidity(at_100_gbps)}))
    print(json.dumps({"benchmark": "network_speed", "simulated": True, **speed(graphs[LARGEST])}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
