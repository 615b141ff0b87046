"""Edges that send together: what an operator gets from operators of one sharding is one message for each pair.

So the tables of a server have theirs looked up and sent together, and task graphs stay small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from testbed.design.workloads.model import Edge, Workload
from testbed.design.workloads.sharding.resharding import Resharding
from testbed.design.workloads.sharding.sharding import Sharding, Strategy

Bundle = tuple[Edge, ...]
Between = Callable[[Sharding, Sharding, int, int, bool], Resharding]


def edge_bundles(workload: Workload, strategy: Strategy) -> tuple[tuple[Bundle, ...], ...]:
    """Return for each operator the edges into it; those from operators of one sharding together."""
    bundles: list[dict[tuple[Sharding, bool], Bundle]] = [{} for _ in workload.operators]
    for edge in workload.edges:
        key = strategy.shardings[edge[0]], workload.sliced(edge)
        into = bundles[edge[1]]
        into[key] = (*into.get(key, ()), edge)
    return tuple(tuple(into.values()) for into in bundles)


def bundle_resharding(
    between: Between, workload: Workload, strategy: Strategy, bundle: Bundle, samples: int, nodes: int
) -> Resharding:
    """Return what passes over the edges of a bundle, pairs of servers once each. `between` is of `resharding`."""
    producer, consumer = (strategy.shardings[place] for place in bundle[0])
    sliced = workload.sliced(bundle[0])
    parts = [between(producer, consumer, samples, workload.edge_bytes(edge), sliced) for edge in bundle]
    if len(parts) == 1:
        return parts[0]
    key, row = np.unique(
        np.concatenate([part.source * nodes + part.target for part in parts]), return_inverse=True
    )
    total = np.bincount(row, np.concatenate([part.size_bytes for part in parts])).astype(np.int64)
    return Resharding(key // nodes, key % nodes, total)
