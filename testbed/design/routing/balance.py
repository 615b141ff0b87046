"""Several paths for pairs with demand, and how much each of them carries.

`shortest_paths_of` lists the k shortest simple paths of every pair that sends; `balance` spreads the bytes over
them, so that the fullest link carries little. Pairs without demand follow the next-hop table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.design.routing.next_hops import NextHops
from testbed.design.topology.demand import Demand
from testbed.errors import TopologyError

#: Parts into which the bytes of a pair are cut.
_PARTS = 8
#: Times every pair is laid again on the load of all others.
_ROUNDS = 4


@dataclass(frozen=True, slots=True, eq=False)
class PairPaths:
    """`links[i, j]` are the links of path j of pair i (-1 after the last); `found[i]` paths exist.

    Pairs are those of the demand, in its order; links are numbered as in `NextHops`.
    """

    links: NDArray[np.int32]
    found: NDArray[np.int64]

    def path(self, pair: int, number: int) -> tuple[int, ...]:
        """Return the links of one path, in order."""
        return tuple(int(link) for link in self.links[pair, number] if link >= 0)


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """`share[i, j]` of the bytes of pair i take path j; `loads[v, k]` bytes pass over the k-th link of v."""

    share: NDArray[np.float64]
    loads: NDArray[np.float64]


def shortest_paths_of(demand: Demand, table: NextHops, *, count: int = 4, longer: int = 2) -> PairPaths:
    """Return the `count` shortest simple paths of each pair with demand, at most `longer` hops above the least.

    Fewer where there are fewer. Of paths of equal length those come first whose links do, counted
    from one that pair and link numbers choose: the same each time, not the same for all pairs.
    Raises `TopologyError` for a count below 1 or a negative excess.
    """
    if count < 1 or longer < 0:
        raise TopologyError(f"{count} paths, at most {longer} hops longer: ask for 1 or more, and 0 or more")
    from testbed.design.routing.path_search import shortest_paths

    pairs = len(demand.source)
    least = int(table.hops[demand.source, demand.target].max(initial=0))
    paths = np.full((pairs, count, least + longer), -1, dtype=np.int32)
    found = np.zeros(pairs, dtype=np.int64)
    shortest_paths(table.slots, table.hops, demand.source, demand.target, count, longer, paths, found)
    unused = np.arange(count)[np.newaxis, :] >= found[:, np.newaxis]
    paths[unused] = -1
    return PairPaths(paths, found)


def balance(
    demand: Demand, table: NextHops, paths: PairPaths, carried: NDArray[np.float64] | None = None
) -> Balance:
    """Spread the demand over its paths; `carried` are bytes that links carry already (rings), as `loads`.

    Pairs with most bytes are laid first. A descent, not an optimum: on the shipped topologies the
    fullest link carries at most a fifth more than the best split of a linear programme.
    """
    from testbed.design.routing.path_search import spread

    loads = np.zeros(table.slots.size) if carried is None else carried.astype(np.float64).reshape(-1)
    scale = demand.pair_bytes + float(loads.sum()) or 1.0
    loads /= scale  # eighth powers of bytes would overflow
    count = np.zeros(paths.links.shape[:2], dtype=np.int64)
    order = np.argsort(-demand.size_bytes, kind="stable")
    spread(paths.links, paths.found, order, demand.size_bytes / scale, loads, _PARTS, _ROUNDS, count)
    return Balance(count / _PARTS, np.maximum(loads, 0.0).reshape(table.slots.shape) * scale)
