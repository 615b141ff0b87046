"""A kind of collective: what it sends, what links allow it, how long it should take.

A kind is a `Collective` in a file of its own, with its arithmetic, and a line in the table of `collective_list`. What
runs on the hosts is in `testbed/node/collective.py`, which is copied there and imports nothing of ours.
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
    """The ways that the data of a collective takes: rings of nodes, or pairs (source, target)."""

    @property
    def rings(self) -> tuple[RingOrder, ...]:
        """Rings over all nodes or over groups of them."""

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs that are sent to all at once; none where rings are given."""

    @property
    def ranks(self) -> int:
        """Nodes that share one sum, or that send and receive."""

    @property
    def rings_per_node(self) -> int:
        """Rings over which each node splits its tensor."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective and its arithmetic.

    `bus_factor` is what a node of so many sends in one iteration, in tensors: nccl-tests' bus bandwidth over its
    algorithm bandwidth. `link_shares` are the tensors of a node that pass over each link, `limit_mbps` the bus
    bandwidth that links of a rate allow at large sizes, `time_s` the expected time of one iteration of a size, and
    `graph` so many iterations for the flow simulator. `is_one_of` says which ways are its own; `on_gpus` whether
    our program runs it over NCCL.
    """

    name: str
    is_one_of: Callable[[Ways], bool]
    bus_factor: Callable[[int], float]
    link_shares: Callable[[Wiring, Routes, Ways], Mapping[Link, float]]
    limit_mbps: Callable[[Wiring, Routes, Ways, float], float]
    time_s: Callable[[Wiring, Routes, Ways, int, float, int], float]
    graph: Callable[[int, Ways, int, int], TaskGraph]
    on_gpus: bool
