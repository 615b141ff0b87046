"""Flow-level performance of a network: fair shares, fabrics, AllReduce, iterations of a training job.

| module | contents |
|---|---|
| `rings` | time of concurrent ring AllReduces on given links, closed form; also exported by this package |
| `latency` | latency of a message, without the time of its bytes; constants with sources |
| `taskgraph` | an iteration as a graph of tasks; its `.npz` format |
| `fabrics` | circulant, Fat-tree, ideal switch, expander, direct connect; routes and cost |
| `allreduce` | AllReduce as rings, double binary trees, halving and doubling; `make_fluid` merges rounds for speed |
| `execution` | running task graphs on a fabric (`simulate`), sharing of links (`flows`), switching of circuits |
| `results` | traces of an iteration as Parquet (`traces`) and as a plot (`timeline`) |
| `engine` | the event loop |

The package needs numpy alone. If numba is installed, it compiles the event loop; without numba the loop is slower.
"""

from __future__ import annotations

from sim.models.network.rings import (
    FRAMING_BYTES,
    HEADER_BYTES,
    Network,
    RingTraffic,
    compute_allreduce_time_s,
    compute_bus_bandwidth_limit_mbps,
    compute_fair_rates,
    compute_link_usage,
    compute_transfer_times_s,
    compute_wire_efficiency,
)

__all__ = [
    "FRAMING_BYTES",
    "HEADER_BYTES",
    "Network",
    "RingTraffic",
    "compute_allreduce_time_s",
    "compute_bus_bandwidth_limit_mbps",
    "compute_fair_rates",
    "compute_link_usage",
    "compute_transfer_times_s",
    "compute_wire_efficiency",
]
