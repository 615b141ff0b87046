"""Table of fabrics for simulation. To add a fabric, write its module in this package and list it in `FABRICS`.

Commands show the table, so it must not import numerical libraries: a fabric's module is imported on first use.
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
    "rail-only": "rails:RAIL_ONLY",
    "rail-optimized": "rails:RAIL_OPTIMIZED",
    "circuits": "circuits:CIRCUITS",
    "circuits-forwarding": "circuits:CIRCUITS_FORWARDING",
    "sip-ocs": "sip_ml:SIP_OCS",
    "sip-ring": "sip_ml:SIP_RING",
    "mixnet": "mixnet:MIXNET",
}
"""The module and the `FabricKind` of each fabric, by name."""


def find_kind(name: str) -> FabricKind | None:
    """Return the kind of a fabric by name, or None for an unknown name."""
    if name not in FABRICS:
        return None
    module, _, entry = FABRICS[name].partition(":")
    kind: FabricKind = getattr(import_module(f"testbed.design.fabrics.{module}"), entry)
    return kind


def is_switched(name: str) -> bool:
    """Return whether a fabric consists of packet switches; False for an unknown name."""
    kind = find_kind(name)
    return kind is not None and kind.is_switched


def has_gpu_nodes(name: str) -> bool:
    """Return whether the hosts of a fabric are GPUs in high-bandwidth domains; False for an unknown name."""
    kind = find_kind(name)
    return kind is not None and kind.has_gpu_nodes


def build_fabric(request: FabricRequest) -> ChosenFabric:
    """Return the fabric of a request.

    Raises `TopologyError` for an unknown name, an impossible rate or size, and for `equal_cost` if the fabric does not
    support it.
    """
    from dataclasses import replace

    from testbed.design.fabrics.kind import add_domains, apply_routing, share_host_links
    from testbed.design.model import check_rate
    from testbed.design.topology.demand import sum_by_hosts

    name = request.name
    check_rate(request.rate_gbps)
    kind = find_kind(name)
    if request.equal_cost and not (kind and kind.has_equal_cost):
        raise TopologyError(f"fabric {name!r} at equal cost: only a Fat-tree supports that, use 'fattree'")
    if kind is None:
        raise TopologyError(f"unknown fabric {name!r}: choose {', '.join(FABRICS)}")
    try:
        domain_size = request.options.hb_domain
        if domain_size > 1 and not kind.is_switched:
            if request.nodes % domain_size:
                raise ValueError(f"{request.nodes} GPUs cannot be divided into domains of {domain_size}")
            demand = request.demand and sum_by_hosts(request.demand, domain_size)
            request = replace(request, nodes=request.nodes // domain_size, demand=demand)
            return share_host_links(apply_routing(kind.build(request), request.options), request.options)
        fabric = apply_routing(kind.build(request), request.options)
        return fabric if domain_size == 1 or kind.has_gpu_nodes else add_domains(fabric, request.options)
    except ValueError as error:
        size_text = f"{request.nodes} nodes, degree {request.degree}"
        raise TopologyError(f"fabric {name!r} of {size_text} is not possible: {error}") from error
