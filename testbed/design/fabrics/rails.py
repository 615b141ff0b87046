"""Fabrics of hosts with several GPUs: rails joined only by the high-bandwidth domains, or also by a spine."""

from __future__ import annotations

from sim.models.network.allreduce.domains import reduce_over_domains
from sim.models.network.fabrics import make_rail_only, make_rail_optimized
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest


def build_rail_only(request: FabricRequest) -> ChosenFabric:
    """Return one network per rail; messages between rails pass through a domain."""
    options = request.options
    fabric = make_rail_only(request.nodes, options.hb_domain, request.host_gbps, options.hb_gbps)
    return ChosenFabric(request.name, fabric, request.host_gbps, reduce_over_domains(options.hb_domain))


def build_rail_optimized(request: FabricRequest) -> ChosenFabric:
    """Return rails that are joined by a spine with full bisection."""
    options = request.options
    fabric = make_rail_optimized(request.nodes, options.hb_domain, request.host_gbps, options.hb_gbps)
    return ChosenFabric(request.name, fabric, request.host_gbps, reduce_over_domains(options.hb_domain))


RAIL_ONLY = FabricKind(
    "one network for the GPUs of each rank, joined only by the domains inside hosts; one NIC of D times R a GPU",
    build_rail_only,
    option_names=("hb_domain", "hb_gbps"),
    is_switched=True,
    has_gpu_nodes=True,
)
RAIL_OPTIMIZED = FabricKind(
    "the same with a spine that joins the rails; one NIC of D times R a GPU",
    build_rail_optimized,
    option_names=("hb_domain", "hb_gbps"),
    is_switched=True,
    has_gpu_nodes=True,
)
