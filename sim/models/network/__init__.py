"""Flow-level performance of a network: fair shares, fabrics, collectives, iterations of a training job.

| module | what for |
|---|---|
| `rings` | time of concurrent ring AllReduces on given links, closed form; its names are here, too |
| `latency` | what a message costs besides its bytes; constants with sources |
| `flows` | transfers that share links, exact to the byte; links that fail or change their rate |
| `fabrics` | circulant, Fat-tree, ideal switch, expander, reconfigured circuits; routes and cost |
| `taskgraph`, `graph_file` | an iteration as a graph of tasks; the `.npz` format |
| `collectives` | AllReduce as rings, double binary trees, halving and doubling |
| `fluid` | the same with all rounds as one, and rings on the strides of a circulant; faster |
| `execution` | runs a task graph on a fabric |
| `traces`, `timeline` | what happened, as Parquet and as a picture |

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
