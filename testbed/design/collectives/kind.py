"""Description of a collective: what it sends, its bandwidth limit, and its expected time.

Each collective is a `Collective` in its own module, listed in `collective_list`. Hosts run
`testbed/node/collective.py`, which is copied to them and imports no other module of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sim.models.network.taskgraph import TaskGraph
from testbed.design.model import Link, RingOrder, Routes, Wiring

Pair = tuple[int, int]
"""Source and target node."""


class CollectiveLayout(Protocol):
    """The rings of nodes or the pairs (source, target) over which a collective sends its data."""

    @property
    def rings(self) -> tuple[RingOrder, ...]:
        """Rings over all nodes or over groups of nodes."""

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs that send at the same time; empty if there are rings."""

    @property
    def ranks(self) -> int:
        """Number of nodes whose tensors are summed together, or, with pairs, number of nodes that send and receive."""

    @property
    def rings_per_node(self) -> int:
        """Number of rings over which each node splits its tensor."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective and its arithmetic.

    - `matches_layout` tells whether a layout belongs to this collective.
    - `compute_bus_factor` returns the tensors that a node sends in one iteration, from the number of ranks. nccl-tests
      multiplies its algorithm bandwidth by this factor to get the bus bandwidth.
    - `compute_link_shares` returns the data on each link in one iteration, in multiples of the tensor of a node.
    - `compute_limit_mbps` returns the bus bandwidth that links of a given rate allow at large sizes.
    - `predict_time_s` returns the expected time of one iteration for a size, a rate in Mbit/s and an MTU in bytes.
    - `make_graph` returns a task graph of iterations for the flow simulator.
    - `runs_on_gpus` is true if our program can run it over NCCL.
    """

    name: str
    matches_layout: Callable[[CollectiveLayout], bool]
    compute_bus_factor: Callable[[int], float]
    compute_link_shares: Callable[[Wiring, Routes, CollectiveLayout], Mapping[Link, float]]
    compute_limit_mbps: Callable[[Wiring, Routes, CollectiveLayout, float], float]
    predict_time_s: Callable[[Wiring, Routes, CollectiveLayout, int, float, int], float]
    make_graph: Callable[[int, CollectiveLayout, int, int], TaskGraph]
    runs_on_gpus: bool
