"""How long an operator waits for a topology: strides, wiring, routes, for several sizes of lab."""

from __future__ import annotations

import json
import statistics
import time

from testbed.design.distance import diameter, mean_hops
from testbed.design.routes import find_routes
from testbed.design.topology import find_topology
from testbed.design.wiring import wire

SIZES = ((12, 4, 7), (128, 4, 3), (432, 8, 1))
STRIDES_ONLY = (1024, 8, 3)


def main() -> None:
    rows = {}
    for nodes, degree, repeats in SIZES:
        times: dict[str, list[float]] = {"strides_ms": [], "wiring_ms": [], "routes_ms": []}
        for _ in range(repeats):
            begin = time.perf_counter()
            topology = find_topology(nodes, degree)
            found = time.perf_counter()
            wiring = wire(topology)
            wired = time.perf_counter()
            find_routes(wiring)
            routed = time.perf_counter()
            for key, seconds in zip(times, (found - begin, wired - found, routed - wired), strict=True):
                times[key].append(seconds * 1e3)
        medians = {key: round(statistics.median(values), 3) for key, values in times.items()}
        rows[f"n={nodes},d={degree}"] = medians | {"repeats": repeats, "strides": topology.strides}
    rows["n={},d={}".format(*STRIDES_ONLY)] = _strides_only(*STRIDES_ONLY)
    print(json.dumps({"benchmark": "topology", "results": rows}))


def _strides_only(nodes: int, degree: int, repeats: int) -> dict[str, object]:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        topology = find_topology(nodes, degree)
        times.append((time.perf_counter() - begin) * 1e3)
    hops = {"diameter": diameter(topology), "mean_hops": round(mean_hops(topology), 3)}
    return {"strides_ms": round(statistics.median(times), 3), "strides": topology.strides} | hops


if __name__ == "__main__":
    main()
