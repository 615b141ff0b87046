"""Shares of the NICs: between rings and matchings, and among the groups that want rings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from testbed.design.topology.demand import Demand
from testbed.errors import TopologyError

Shares = Literal["averages", "published"]


def split_degree(demand: Demand, degree: int, *, simplex: bool, wanted: int | None = None) -> tuple[int, int]:
    """Return NICs of a node for rings and for matchings: d_A = max(1, ceil(d * A / (A + M))) and d - d_A.

    A are the bytes of all AllReduces, M those between pairs. Duplex rings take two NICs, so d_A is
    rounded up to an even number, or to all of an odd degree. `wanted` asks for so many NICs for
    matchings instead. Without any demand all NICs are for rings. Raises `TopologyError` when `wanted`
    leaves no ring, which must keep the graph connected.
    """
    if wanted is not None:
        return _as_wanted(degree, wanted, simplex=simplex)
    total = demand.allreduce_bytes + demand.pair_bytes
    share = demand.allreduce_bytes / total if total > 0 else 1.0
    # A product a hair above a whole number is rounding, not another NIC.
    rings = max(1, math.ceil(degree * share - 1e-9))
    if not simplex:
        rings = min(degree, rings + rings % 2)
    return rings, degree - rings


def _as_wanted(degree: int, wanted: int, *, simplex: bool) -> tuple[int, int]:
    rings = degree - wanted
    least = 1 if simplex or degree == 1 else 2
    if wanted < 0 or rings < least or (not simplex and wanted and rings % 2):
        raise TopologyError(
            f"{wanted} of {degree} NICs for matchings: {rings} are left for rings, which need at least {least} to "
            f"keep the graph connected{'' if simplex else ' and, duplex, two each'}; ask for another number"
        )
    return rings, wanted


def share_rings(
    rings: int, nodes: int, weights: Mapping[int, float], room: Mapping[int, int], rule: Shares = "averages"
) -> dict[int, int]:
    """Return rings for each group, of `rings` in all; `room` is how many a group can use at most.

    `published`: the heaviest group takes ceil(d * its share), then the next of what is left. That starves
    the second group whenever few rings are shared. `averages` gives rings one at a time, to the
    group with most bytes for each ring it would then have: proportional to the bytes too (highest
    averages, D'Hondt), and starves only who is not worth a ring. With it the group of all nodes
    gets its ring first. Raises `TopologyError` for another rule.
    """
    if rule == "published":
        return _published(rings, weights, room)
    if rule == "averages":
        return _averages(rings, nodes, weights, room)
    raise TopologyError(f"unknown rule {rule!r} for shares: choose 'averages' or 'published'")


def _averages(
    rings: int, nodes: int, weights: Mapping[int, float], room: Mapping[int, int]
) -> dict[int, int]:
    shares = dict.fromkeys(weights, 0)
    for _ in range(rings):
        open_groups = [group for group in weights if shares[group] < room[group]]
        if not open_groups:
            break
        if nodes in open_groups and shares[nodes] == 0:
            shares[nodes] = 1
            continue
        neediest = max(open_groups, key=lambda group: (weights[group] / (shares[group] + 1), group))
        shares[neediest] += 1
    return shares


def _published(rings: int, weights: Mapping[int, float], room: Mapping[int, int]) -> dict[int, int]:
    total = sum(weights.values())
    shares: dict[int, int] = {}
    left = rings
    for group in sorted(weights, key=lambda group: (-weights[group], -group)):
        part = weights[group] / total if total > 0 else 1 / len(weights)
        shares[group] = min(left, room[group], math.ceil(rings * part - 1e-9))
        left -= shares[group]
    return shares
