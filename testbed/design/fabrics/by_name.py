"""Fabrics by name, ready to run jobs on: see the table in `table`."""

from __future__ import annotations

from collections.abc import Callable

from testbed.design.fabrics import builders
from testbed.design.fabrics.builders import (
    ChosenFabric,
    FabricRequest,
    fabric_of,
    ring_strides,
)
from testbed.design.fabrics.entries import ENTRIES, FABRICS
from testbed.design.model import Topology
from testbed.design.rates import check_rate
from testbed.design.topology.demand import Demand
from testbed.errors import TopologyError

__all__ = ["ChosenFabric", "fabric_by_name", "fabric_of", "ring_strides"]


def fabric_by_name(
    name: str,
    nodes: int,
    degree: int,
    rate_gbps: float,
    *,
    demand: Demand | None = None,
    topology: Topology | None = None,
    equal_cost: bool = False,
    oversubscription: float = 2.0,
    reconfiguration_s: float = 10e-3,
    seed: int = 0,
) -> ChosenFabric:
    """Return a fabric of the table, asked for as `FabricRequest` says; `.fabric` is the simulator's.

    Raises `TopologyError` for an unknown name and a fabric that cannot be.
    """
    check_rate(rate_gbps)
    entry = next((entry for entry in ENTRIES if entry.name == name), None)
    if equal_cost and not (entry and entry.has_equal_cost):
        raise TopologyError(f"fabric {name!r} at equal cost: only a Fat-tree is, take 'fattree'")
    if entry is None:
        raise TopologyError(f"unknown fabric {name!r}: choose {', '.join(FABRICS)}")
    build: Callable[[FabricRequest], ChosenFabric] = getattr(builders, entry.builder)
    asked = FabricRequest(
        name,
        nodes,
        degree,
        rate_gbps,
        demand,
        topology,
        equal_cost,
        oversubscription,
        reconfiguration_s,
        seed,
    )
    try:
        return build(asked)
    except ValueError as error:
        raise TopologyError(f"no fabric {name!r} of {nodes} nodes, degree {degree}: {error}") from error
