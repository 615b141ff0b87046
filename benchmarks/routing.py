"""Load of the fullest link on planned routes, compared with the best routing, and the time to compute the routes.

One JSON line each: up to 32 hosts compared with a linear programme (scipy's HiGHS), and up to 1024 hosts compared with
a lower bound from prices. Times are processor time of one core. The first call compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))
from free_routes import least_maximum

from testbed.design.model import Topology
from testbed.design.routing.balancing import find_balanced_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import Demand, make_matrix_demand
from testbed.design.topology.finder import plan_topology

KINDS = ("uniform", "random", "sparse")
SMALL = ((8, 3), (12, 4), (16, 4), (24, 4), (32, 4), (32, 6), (32, 8))
LARGE = ((128, 4), (1024, 8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    parser.add_argument("--seeds", type=int, default=3, help="demands of each size in the first part")
    arguments = parser.parse_args()
    compute_routes(find_topology(8, 3), demand_of("random", 8, 0))  # compiles
    for name, part in PARTS.items():
        if arguments.only in {None, name}:
            line = {"benchmark": "routing", "part": name, "cores": os.cpu_count()}
            print(json.dumps(line | {"results": part(arguments.seeds)}), flush=True)


def demand_of(kind: str, nodes: int, seed: int) -> Demand:
    """Return a demand between all pairs, with equal or random sizes, or with random sizes for a fifth of the pairs."""
    random = np.random.default_rng(seed)
    size = np.ones((nodes, nodes)) if kind == "uniform" else random.random((nodes, nodes))
    if kind == "sparse":
        size *= random.random((nodes, nodes)) < 0.2
    np.fill_diagonal(size, 0.0)
    return make_matrix_demand(1e6 * size)


def compute_routes(topology: Topology, demand: Demand) -> tuple[float, float, float]:
    """Compute routes; return the bytes on the fullest link, the gap to the lower bound, and the processor time in s."""
    begin = time.process_time()
    routes = find_balanced_routes(topology, demand)
    seconds = time.process_time() - begin
    return float(routes.compute_link_bytes(demand).max()), routes.compute_gap(demand), seconds


def against_the_programme(seeds: int) -> dict[str, Any]:
    """Compare with the linear programme, on circulants and on topologies that were searched for the demand."""
    rows = {}
    for kind in KINDS:
        above, gaps, times = [], [], []
        for nodes, degree in SMALL:
            for seed in range(1 if kind == "uniform" else seeds):
                demand = demand_of(kind, nodes, seed)
                for topology in (find_topology(nodes, degree), plan_topology(demand, degree).topology):
                    max_bytes, gap, seconds = compute_routes(topology, demand)
                    above.append(max_bytes / least_maximum(topology, demand) - 1)
                    gaps.append(gap)
                    times.append(seconds)
        rows[kind] = {
            "cases": len(above),
            "mean_above_percent": round(100 * statistics.mean(above), 2),
            "worst_above_percent": round(100 * max(above), 2),
            "asked_worst_above_percent": 5,
            "worst_gap_percent": round(100 * max(gaps), 2),
            "worst_s": round(max(times), 2),
            "asked_worst_s": 2,
        }
    return rows


def at_scale(_seeds: int) -> dict[str, Any]:
    """Compare with the lower bound, on large circulants."""
    rows = {}
    for nodes, degree in LARGE:
        for kind in KINDS:
            _, gap, seconds = compute_routes(find_topology(nodes, degree), demand_of(kind, nodes, 1))
            row = {"gap_percent": round(100 * gap, 2), "seconds": round(seconds, 2)}
            rows[f"n={nodes},d={degree},{kind}"] = row | {"asked_seconds": 60}
    return rows


PARTS = {"programme": against_the_programme, "scale": at_scale}

if __name__ == "__main__":
    main()
