"""Time to compute a topology, and its quality.

One JSON line each: strides, wiring and routes of a lab; TopologyFinder with next hops at scale; matchings; mean hops.
Times at scale are processor time of one core, so the machine need not be idle. The first call compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from testbed.design.matching import match_edges, match_priced
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.next_hops import compute_next_hops
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import AllReduceDemand, Demand, make_array_demand
from testbed.design.topology.finder import plan_topology
from testbed.design.topology.hops import compute_diameter, compute_mean_hops, make_hop_table
from testbed.design.topology.strides import list_direct_strides, measure_reach

SIZES = ((12, 4, 7), (128, 4, 3), (432, 8, 1))
#: Nodes, degree, target processor time in s.
SCALE = ((128, 4, 0.020), (1024, 8, 0.200), (4096, 8, 3.0))
QUALITY = (12, 16, 20, 24, 32, 48, 64, 96, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    parser.add_argument("--plot", metavar="FILE", help="only plot the times by number of nodes, to this file")
    arguments = parser.parse_args()
    if arguments.plot:
        draw(growth(), arguments.plot)
        return
    only = arguments.only
    for name, part in PARTS.items():
        if only in {None, name}:
            print(
                json.dumps(
                    {"benchmark": "topology", "part": name, "cores": os.cpu_count(), "results": part()}
                )
            )


def lab() -> dict[str, Any]:
    """Measure strides, wiring and all routes, link by link, as `testbed plan` needs them."""
    rows = {}
    for nodes, degree, repeats in SIZES:
        times: dict[str, list[float]] = {"strides_ms": [], "wiring_ms": [], "routes_ms": []}
        for _ in range(repeats):
            begin = time.perf_counter()
            topology = find_topology(nodes, degree)
            strides_end = time.perf_counter()
            wiring = make_wiring(topology)
            wiring_end = time.perf_counter()
            find_routes(wiring)
            routes_end = time.perf_counter()
            for key, seconds in zip(
                times, (strides_end - begin, wiring_end - strides_end, routes_end - wiring_end), strict=True
            ):
                times[key].append(seconds * 1e3)
        medians = {key: round(statistics.median(values), 3) for key, values in times.items()}
        rows[f"n={nodes},d={degree}"] = medians | {"repeats": repeats, "strides": topology.strides}
    return rows


def scale() -> dict[str, Any]:
    """Measure topologies with one or two matchings, and all next hops. `routing.py` measures planned routes."""
    plan(demand(64), 4, simplex=False)  # compiles
    rows: dict[str, Any] = {}
    for nodes, degree, asked in SCALE:
        for links, simplex in (("one-way, one matching", True), ("duplex, two matchings", False)):
            runs = [plan(demand(nodes, seed), degree, simplex=simplex) for seed in range(3)]
            middle = sorted(runs, key=lambda run: run["total_ms"])[1]
            rows[f"n={nodes},d={degree},{links}"] = middle | {"asked_total_ms": asked * 1e3}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return rows | {"peak_memory_gib": round(peak, 2), "asked_peak_memory_gib": 2}


def growth(degree: int = 8) -> dict[int, dict[str, Any]]:
    """Measure duplex topologies and next hops for 128, 256, ... 4096 nodes."""
    plan(demand(64), degree, simplex=False)
    return {nodes: plan(demand(nodes), degree, simplex=False) for nodes in (128, 256, 512, 1024, 2048, 4096)}


def draw(rows: dict[int, dict[str, Any]], path: str) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "topology"  # equal figures yield an equal file
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    names = {"find_ms": "topology", "next_hops_ms": "next hops", "total_ms": "all"}
    for key, name in names.items():
        style = "k-o" if key == "total_ms" else "-"
        axes.loglog(list(rows), [row[key] for row in rows.values()], style, label=name, markersize=4)
    axes.loglog(
        [128, 4096], [rows[4096]["total_ms"] / 1024, rows[4096]["total_ms"]], "k:", label="grows as n²"
    )
    axes.set_xticks(list(rows), [str(nodes) for nodes in rows], minor=False)
    axes.set_xticks([], minor=True)
    axes.set(xlabel="nodes (degree 8, duplex, 8n pairs, two matchings)", ylabel="processor time, ms")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def demand(nodes: int, seed: int = 0) -> Demand:
    """Return a demand of 8n random pairs and an AllReduce over all nodes."""
    chance = np.random.default_rng(seed)
    source, target = chance.integers(0, nodes, (2, 8 * nodes))
    return make_array_demand(
        nodes, [AllReduceDemand(nodes, 10**9)], source, target, chance.integers(1, 10**9, 8 * nodes)
    )


def plan(pair_demand: Demand, degree: int, *, simplex: bool) -> dict[str, Any]:
    """Measure the processor time of each step in ms. A duplex ring takes two NICs, so there are two matchings then."""
    clock = [time.process_time()]
    finding = plan_topology(pair_demand, degree, simplex=simplex, matching_degree=1 if simplex else 2)
    clock.append(time.process_time())
    compute_next_hops(pair_demand.nodes, finding.topology.edges)
    clock.append(time.process_time())
    steps = ("find_ms", "next_hops_ms")
    times = {key: round(1e3 * (b - a), 1) for key, a, b in zip(steps, clock, clock[1:], strict=False)}
    return times | {"total_ms": round(1e3 * (clock[-1] - clock[0]), 1), "pairs": len(pair_demand.source)}


def matchings() -> dict[str, Any]:
    """Measure exact and priced matchings of dense demands, and exact matchings of 8n pairs."""
    rows: dict[str, Any] = {}
    for nodes in (128, 256, 512):
        upper = np.triu(np.random.default_rng(nodes).random((nodes, nodes)), 1)
        one, other = np.triu_indices(nodes, 1)
        exact, exact_ms = timed(partial(match_edges, nodes, one, other, upper[one, other]))
        priced, priced_ms = timed(partial(match_priced, upper + upper.T))
        rows[f"dense n={nodes}"] = {
            "exact_ms": exact_ms, "priced_ms": priced_ms,
            "priced_weight_of_exact": round(priced.weight / exact.weight, 4), "asked_priced_weight_of_exact": 0.9,
        }  # fmt: skip
    for nodes in (128, 1024, 4096):
        pair_demand = demand(nodes)
        edges = pair_demand.source, pair_demand.target, pair_demand.size_bytes
        rows[f"8n pairs, n={nodes}"] = {"exact_ms": timed(partial(match_edges, nodes, *edges))[1]}
    return rows


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and the median processor time of three calls in ms."""
    call()
    times = []
    for _ in range(3):
        begin = time.process_time()
        result = call()
        times.append(1e3 * (time.process_time() - begin))
    return result, round(statistics.median(times), 2)


def quality() -> dict[str, Any]:
    """Measure mean hops at degree 4, duplex: our topologies, all circulants, random regular graphs, lower bound."""
    return {f"n={nodes},d=4": hops_row(nodes) for nodes in QUALITY}


def hops_row(nodes: int) -> dict[str, Any]:
    geometric, exhaustive = (find_topology(nodes, 4, method=method) for method in ("geometric", "exhaustive"))
    best = min(
        measure_reach(nodes, (1, nodes - 1, s, nodes - s)).total_hops for s in range(2, (nodes + 1) // 2)
    )
    if nodes <= 64:  # also sets without stride 1, for certainty
        best = min(best, all_circulants(nodes))
    rows = {
        "geometric": compute_mean_hops(geometric),
        "exhaustive": compute_mean_hops(exhaustive),
        "best_circulant": best / (nodes - 1),
        "random_regular": statistics.mean(random_regular_hops(nodes, seed) for seed in range(5)),
        "moore_bound": moore_bound(nodes, 4),
    }
    diameters = {"diameters": [compute_diameter(geometric), compute_diameter(exhaustive)]}
    return {key: round(value, 3) for key, value in rows.items()} | diameters


def all_circulants(nodes: int) -> int:
    half = range(1, (nodes + 1) // 2)
    reaches = (
        measure_reach(nodes, list_direct_strides(nodes, (a, b), simplex=False))
        for a in half
        for b in half
        if a < b
    )
    return min(each.total_hops for each in reaches if not each.unreached_count)


def random_regular_hops(nodes: int, seed: int, degree: int = 4) -> float:
    """Return the mean hops of a connected random graph: stubs are paired until there is no loop and no duplicate."""
    chance = random.Random(seed)
    while True:
        stubs = [node for node in range(nodes) for _ in range(degree)]
        chance.shuffle(stubs)
        pairs = {frozenset(pair) for pair in zip(stubs[::2], stubs[1::2], strict=True)}
        if len(pairs) == nodes * degree // 2 and all(len(pair) == 2 for pair in pairs):
            table = make_hop_table(nodes, [edge for a, b in map(sorted, pairs) for edge in ((a, b), (b, a))])
            if table.min() >= 0:
                return float(table.sum()) / nodes / (nodes - 1)


def moore_bound(nodes: int, degree: int) -> float:
    """Return the Moore bound on mean hops: level h has degree * (degree - 1)^(h-1) nodes, until all are placed."""
    remaining, level, total, size = nodes - 1, 1, 0, degree
    while remaining > 0:
        total += level * min(remaining, size)
        remaining, level, size = remaining - size, level + 1, size * (degree - 1)
    return total / (nodes - 1)


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "lab": lab, "scale": scale, "matchings": matchings, "quality": quality
}  # fmt: skip

if __name__ == "__main__":
    main()
