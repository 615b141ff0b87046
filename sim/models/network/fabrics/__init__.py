"""Fabrics: links, the routes over them, and their cost."""

from __future__ import annotations

from sim.models.network.fabrics.circulants import circulant
from sim.models.network.fabrics.cost import Cost, find_equal_cost_rate_gbps
from sim.models.network.fabrics.direct import direct_connect, find_shortest_paths, make_routed_fabric
from sim.models.network.fabrics.expanders import expander
from sim.models.network.fabrics.model import Fabric
from sim.models.network.fabrics.rails import join_domains, rail_only, rail_optimized, share_hosts
from sim.models.network.fabrics.switched import fat_tree, ideal_switch

__all__ = [
    "Cost",
    "Fabric",
    "circulant",
    "direct_connect",
    "expander",
    "fat_tree",
    "find_equal_cost_rate_gbps",
    "find_shortest_paths",
    "ideal_switch",
    "join_domains",
    "make_routed_fabric",
    "rail_only",
    "rail_optimized",
    "share_hosts",
]
