"""Flow-level performance of a network: fair shares, fabrics, AllReduce, iterations of a training job.

| module | contents |
|---|---|
| `rings` | time of concurrent ring AllReduces on given links, closed form; its names are here, too |
| `latency` | what a message costs besides its bytes; constants with sources |
| `taskgraph` | an iteration as a graph of tasks; its `.npz` format |
| `fabrics` | circulant, Fat-tree, ideal switch, expander, direct connect; routes and cost |
| `allreduce` | AllReduce as rings, double binary trees, halving and doubling; all rounds as one, which is faster |
| `execution` | runs task graphs on a fabric (`simulate`), transfers that share links (`flows`), switched circuits |
| `results` | what happened, as Parquet (`traces`) and as a plot (`timeline`) |
| `engine` | the event loop |

Importing this needs numpy alone; the event loop is compiled where numba is installed, and slower without it.
"""

from __future__ import annotations

from sim.models.network.rings import (
    FRAMING_BYTES,
    HEADER_BYTES,
    Network,
    RingTraffic,
    allreduce_time_s,
    bus_bandwidth_limit_mbps,
    fair_rates,
    link_usage,
    transfer_times_s,
    wire_efficiency,
)

__all__ = [
    "FRAMING_BYTES",
    "HEADER_BYTES",
    "Network",
    "RingTraffic",
    "allreduce_time_s",
    "bus_bandwidth_limit_mbps",
    "fair_rates",
    "link_usage",
    "transfer_times_s",
    "wire_efficiency",
]
