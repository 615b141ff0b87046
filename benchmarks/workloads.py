"""Time to compute the traffic of a strategy, and to build its task graph: DLRM on 128 servers.

Prints one JSON line with the processor time of one core, the best of several runs. A search changes one operator per
step, so the time of such a change limits the search.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable

import numpy as np

from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.iteration.task_graph import iteration, traffic
from testbed.design.workloads.iteration.totals import TrafficTotals
from testbed.design.workloads.roofline import Cluster, compute_memory_use
from testbed.design.workloads.strategies import default_strategy, list_legal_shardings

NODES = 128
CHANGES = 1000


def main() -> None:
    job, cluster = workload("dlrm", NODES), Cluster(NODES)
    strategy = default_strategy(job, NODES)
    graph = iteration(job, strategy, cluster)
    results = {
        "nodes": NODES,
        "operators": len(job.operators),
        "tasks": graph.task_count,
        "traffic_ms": best_ms(lambda: traffic(job, strategy, cluster)),
        "asked_traffic_ms": 2.0,
        "change_of_one_operator_us": changes_us(TrafficTotals.from_strategy(job, strategy, cluster)),
        "memory_ms": best_ms(lambda: compute_memory_use(job, strategy, cluster)),
        "task_graph_ms": best_ms(lambda: iteration(job, strategy, cluster)),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps({"benchmark": "workloads", "cores": os.cpu_count(), "results": results}))


def best_ms(work: Callable[[], object], runs: int = 7) -> float:
    """Return the processor time in ms, the best of several runs; caches keep their contents between runs."""
    times = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return round(min(times) * 1e3, 3)


def changes_us(totals: TrafficTotals) -> float:
    """Return the mean processor time in us of `CHANGES` successive random changes of an operator's sharding."""
    rng = np.random.default_rng(0)
    operators = totals.workload.operators
    places = rng.integers(len(operators), size=CHANGES)
    choices = [list_legal_shardings(operators[place], NODES) for place in places]
    shardings = [choice[rng.integers(len(choice))] for choice in choices]
    begin = time.process_time()
    for place, sharding in zip(places, shardings, strict=True):
        totals = totals.with_sharding(int(place), sharding)
    return round((time.process_time() - begin) / CHANGES * 1e6, 1)


if __name__ == "__main__":
    main()
