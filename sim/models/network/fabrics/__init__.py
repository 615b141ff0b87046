"""Fabrics: links, the routes over them, and their cost."""

from __future__ import annotations

from sim.models.network.fabrics.circulants import make_circulant
from sim.models.network.fabrics.cost import Cost, find_equal_cost_rate_gbps
from sim.models.network.fabrics.direct import find_shortest_paths, make_direct_fabric, make_routed_fabric
from sim.models.network.fabrics.expanders import make_expander
from sim.models.network.fabrics.model import Fabric
from sim.models.network.fabrics.rails import join_domains, make_rail_only, make_rail_optimized, share_hosts
from sim.models.network.fabrics.switched import make_fat_tree, make_ideal_switch

__all__ = [
    "Cost",
    "Fabric",
    "find_equal_cost_rate_gbps",
    "find_shortest_paths",
    "join_domains",
    "make_circulant",
    "make_direct_fabric",
    "make_expander",
    "make_fat_tree",
    "make_ideal_switch",
    "make_rail_only",
    "make_rail_optimized",
    "make_routed_fabric",
    "share_hosts",
]
