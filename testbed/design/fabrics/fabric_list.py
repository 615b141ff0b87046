"""The table of fabrics that a job can be simulated on. A new fabric is a file here and a line in `FABRICS`.

The table needs no numerical library, for commands show it: a fabric's file is imported when the fabric is looked up.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from testbed.errors import TopologyError

if TYPE_CHECKING:
    from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest

FABRICS = {
    "ideal": "ideal:IDEAL",
    "fattree": "fat_tree:FATTREE",
    "oversub": "fat_tree:OVERSUB",
    "direct": "direct:DIRECT",
    "expander": "expander:EXPANDER",
    "circuits": "circuits:CIRCUITS",
    "circuits-forwarding": "circuits:CIRCUITS_FORWARDING",
}
"""Fabrics by name: the module of each, and its `FabricKind` there."""


def kind_of(name: str) -> FabricKind | None:
    """Return a kind of fabric by name; None for one that does not exist."""
    if name not in FABRICS:
        return None
    module, _, entry = FABRICS[name].partition(":")
    kind: FabricKind = getattr(import_module(f"testbed.design.fabrics.{module}"), entry)
    return kind


def is_switched(name: str) -> bool:
    """Return whether a fabric is known and of packet switches."""
    kind = kind_of(name)
    return kind is not None and kind.is_switched


def build_fabric(request: FabricRequest) -> ChosenFabric:
    """Return the fabric of a request; `.fabric` is the simulator's.

    Raises `TopologyError` for an unknown name and a fabric that cannot be.
    """
    from testbed.design.fabrics.kind import with_routing
    from testbed.design.model import check_rate

    name = request.name
    check_rate(request.rate_gbps)
    kind = kind_of(name)
    if request.equal_cost and not (kind and kind.has_equal_cost):
        raise TopologyError(f"fabric {name!r} at equal cost: only a Fat-tree supports that, use 'fattree'")
    if kind is None:
        raise TopologyError(f"unknown fabric {name!r}: choose {', '.join(FABRICS)}")
    try:
        return with_routing(kind.build(request), request.options)
    except ValueError as error:
        size = f"{request.nodes} nodes, degree {request.degree}"
        raise TopologyError(f"fabric {name!r} of {size} is not possible: {error}") from error
