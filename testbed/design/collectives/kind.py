"""Kinds of collectives: what they send, the limit of the links, and the expected time.

A kind is a `Collective` in its own file, with its arithmetic, and a line in the table of `collective_list`. The program
of the hosts is `testbed/node/collective.py`, which is copied there and imports no other module of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sim.models.network.taskgraph import TaskGraph
from testbed.design.model import Link, RingOrder, Routes, Wiring

Pair = tuple[int, int]
"""Source and target node."""


class Ways(Protocol):
    """Ways of the data of a collective: rings of nodes, or pairs (source, target)."""

    @property
    def rings(self) -> tuple[RingOrder, ...]:
        """Rings over all nodes or over groups of them."""

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs that send at the same time; empty if there are rings."""

    @property
    def ranks(self) -> int:
        """Nodes that share one sum, or that send and receive."""

    @property
    def rings_per_node(self) -> int:
        """Rings over which each node splits its tensor."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective and its arithmetic.

    `bus_factor` gives, for a number of ranks, the tensors that a node sends in one iteration: nccl-tests' bus bandwidth
    over its algorithm bandwidth. `link_shares` gives the tensors of a node on each link, `limit_mbps` the bus bandwidth
    that links of a rate allow at large sizes, `time_s` the expected time of one iteration of a size, and `graph` a
    number of iterations for the flow simulator. `is_one_of` tells whether ways are those of this kind; `on_gpus` is set
    if our program can run it over NCCL.
    """

    name: str
    is_one_of: Callable[[Ways], bool]
    bus_factor: Callable[[int], float]
    link_shares: Callable[[Wiring, Routes, Ways], Mapping[Link, float]]
    limit_mbps: Callable[[Wiring, Routes, Ways, float], float]
    time_s: Callable[[Wiring, Routes, Ways, int, float, int], float]
    graph: Callable[[int, Ways, int, int], TaskGraph]
    on_gpus: bool
