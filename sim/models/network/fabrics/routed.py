"""Direct connect with planned routes: sets of next hops, and how much of what a pair sends takes each set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.cost import patch_panel_cost
from sim.models.network.fabrics.model import Fabric, Floats, Integers, Router, check_sizes


def routed(
    nodes: int,
    edges: Sequence[tuple[int, int]],
    rate_gbps: float,
    onward: NDArray[np.int64],
    weights: Floats,
) -> Fabric:
    """Return the fabric of hosts joined by directed `edges`, which are its links in this order, parallel ones apart.

    On link `onward[c, t, v]` node v sends towards t in set c, -1 for none; `weights[c, s, t]` of what s sends to t
    takes set c, and every message is split so. A choice that a pair does not use is the first set, which must be
    complete. `ValueError` when it is not.
    """
    check_sizes(nodes, rate_gbps)
    table = np.array(edges, dtype=np.int64).reshape(-1, 2)
    sources, targets = table[:, 0].copy(), table[:, 1].copy()
    degree = int(np.bincount(sources, minlength=nodes).max(initial=0))
    return Fabric(
        name="direct",
        nodes=nodes,
        sources=sources,
        targets=targets,
        capacity_bps=np.full(len(table), rate_gbps * 1e9),
        lane_bps=np.full(len(table), rate_gbps * 1e9),
        never_full=np.zeros(len(table), dtype=bool),
        router=_router(nodes, targets, onward, weights),
        hosts_forward=True,
        cost=patch_panel_cost(nodes, degree, rate_gbps),
        weights=weights,
    )


def _router(nodes: int, head: Integers, onward: Integers, weights: Floats) -> Router:
    def route(froms: Integers, tos: Integers, choices: Integers) -> Integers:
        taken = choices % len(weights)
        taken = np.where(weights[taken, froms, tos] > 0, taken, 0)
        columns: list[Integers] = []
        at = froms.copy()
        while (at != tos).any():
            link = np.where(at == tos, -1, onward[taken, tos, at])
            lost = (link < 0) & (at != tos)
            if lost.any() or len(columns) >= nodes:
                pair = int(np.argmax(lost if lost.any() else at != tos))
                raise ValueError(f"the routes do not lead from node {froms[pair]} to node {tos[pair]}")
            at = np.where(link >= 0, head[link], at)
            columns.append(link)
        return np.stack(columns, axis=1) if columns else np.full((froms.size, 0), -1, np.int64)

    return route
