"""Fabrics of packet switches: the ideal switch, and Fat-trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.cost import compute_fat_tree_cost, compute_ideal_switch_cost
from sim.models.network.fabrics.model import CyclicRouter, Fabric, Router, check_sizes, hash_integers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def make_ideal_switch(node_count: int, rate_gbps: float) -> Fabric:
    """Return the fabric of a non-blocking switch with a duplex link of `rate_gbps` to each host.

    No fabric with the same rate per host is faster. To compare it with d links per host, pass d times the rate.
    """
    check_sizes(node_count, rate_gbps)
    hosts, switch = np.arange(node_count), np.full(node_count, node_count)
    rate_bps = np.full(2 * node_count, rate_gbps * 1e9)
    return Fabric(
        name="ideal",
        node_count=node_count,
        sources=np.concatenate([hosts, switch]),
        targets=np.concatenate([switch, hosts]),
        capacity_bps=rate_bps,
        lane_bps=rate_bps,
        never_full=np.zeros(2 * node_count, dtype=bool),
        router=CyclicRouter(
            lambda sources, targets, _choices: np.stack([sources, node_count + targets], axis=1), 1
        ),
        hosts_forward=False,
        cost=compute_ideal_switch_cost(node_count, rate_gbps),
    )


def make_fat_tree(
    node_count: int,
    rate_gbps: float,
    *,
    oversubscription: float = 1.0,
    balance: Literal["spread", "hash", "ideal"] = "spread",
    seed: int = 0,
) -> Fabric:
    """Return a three-tier Fat-tree of k-port switches, k the smallest even number with k^3/4 >= `node_count`.

    (Al-Fares, Loukissas and Vahdat, 2008.) Links of hosts have `rate_gbps`, links above the edge have `rate_gbps` /
    `oversubscription`. `balance` is the way in which flows use up-links:

    - `"spread"`: every flow uses all up-links equally, packet by packet. The up-links of a switch then carry equal
      loads, so one link with the sum of their capacities replaces them exactly. With full bisection this link carries
      all that the hosts below it can send, hence is never full.
    - `"hash"`: each flow uses one up-link, by a hash of source, target, choice and seed, as with ECMP, so flows may
      collide.
    - `"ideal"`: as `"spread"` with full bisection; `oversubscription` changes only the name and the cost.
    """
    check_sizes(node_count, rate_gbps)
    if not 1 <= oversubscription < float("inf"):
        raise ValueError(f"oversubscription is {oversubscription}: it must be 1 (full bisection) or more")
    half_port_count = _find_half_port_count(node_count)
    is_hashed = balance == "hash"
    cables = (
        _make_cables(node_count, half_port_count) if is_hashed else _make_bundles(node_count, half_port_count)
    )
    capacity_divisor = 1.0 if balance == "ideal" else oversubscription
    lane_bps = np.where(cables.lower_vertices < node_count, 1.0, 1 / capacity_divisor) * rate_gbps * 1e9
    never_full = (cables.lower_vertices >= node_count) & (balance != "hash") & (capacity_divisor == 1)
    choose_cables, up_link_count = (
        _climb_hashed(seed) if is_hashed else _climb_spread,
        cables.lower_vertices.size,
    )
    router = _make_router(node_count, half_port_count, up_link_count, choose_cables)
    return Fabric(
        name=("fattree" if oversubscription == 1 else f"fattree/{oversubscription:g}") + f"-{balance}",
        node_count=node_count,
        sources=np.concatenate([cables.lower_vertices, cables.upper_vertices]),
        targets=np.concatenate([cables.upper_vertices, cables.lower_vertices]),
        capacity_bps=np.tile(lane_bps * cables.lane_counts, 2),
        lane_bps=np.tile(lane_bps, 2),
        never_full=np.tile(never_full, 2),
        router=router if is_hashed else CyclicRouter(router, 1),
        hosts_forward=False,
        cost=compute_fat_tree_cost(node_count, rate_gbps, oversubscription=oversubscription),
        alternatives=(
            half_port_count**2,
            _make_router(node_count, half_port_count, up_link_count, _climb_by_choice),
        )
        if is_hashed
        else None,
    )


def _find_half_port_count(node_count: int) -> int:
    half_port_count = 1
    while 2 * half_port_count**3 < node_count:
        half_port_count += 1
    return half_port_count


class Cables(NamedTuple):
    """Vertices at the lower and upper end of each cable, and its number of parallel lanes."""

    lower_vertices: Integers
    upper_vertices: Integers
    lane_counts: Integers


def _make_cables(node_count: int, half_port_count: int) -> Cables:
    """Return the cables from hosts to edge, edge to aggregation, and aggregation to core switches, one lane each.

    With h = k/2 there are 2h pods of h edge and h aggregation switches, and h^2 core switches. Edge e is in pod
    e // h; aggregation switch a of each pod reaches the core switches a*h to a*h + h - 1.
    """
    tier_switch_count = 2 * half_port_count * half_port_count
    first_edge, first_aggregation, first_core = (
        node_count,
        node_count + tier_switch_count,
        node_count + 2 * tier_switch_count,
    )
    host = np.arange(node_count)
    switch_index, port = np.divmod(np.arange(tier_switch_count * half_port_count), half_port_count)
    pod, position = np.divmod(switch_index, half_port_count)
    lower_ends = np.concatenate([host, first_edge + switch_index, first_aggregation + switch_index])
    upper_ends = np.concatenate(
        [
            first_edge + host // half_port_count,
            first_aggregation + pod * half_port_count + port,
            first_core + position * half_port_count + port,
        ]
    )
    return Cables(lower_ends, upper_ends, np.ones(lower_ends.size, np.int64))


def _make_bundles(node_count: int, half_port_count: int) -> Cables:
    """Return the cables with all up-links of an edge switch or of a pod as one cable, and with one core switch."""
    edges, pods = np.arange(2 * half_port_count * half_port_count), np.arange(2 * half_port_count)
    first_edge, first_pod = node_count, node_count + edges.size
    core = first_pod + pods.size
    host = np.arange(node_count)
    return Cables(
        np.concatenate([host, first_edge + edges, first_pod + pods]),
        np.concatenate(
            [
                first_edge + host // half_port_count,
                first_pod + edges // half_port_count,
                np.full(pods.size, core),
            ]
        ),
        np.repeat([1, half_port_count, half_port_count**2], [node_count, edges.size, pods.size]),
    )


class Climb(NamedTuple):
    """The cables of each pair, (pairs,): out of the edge and pod of the source, into the pod and edge of the target."""

    edge_up: Integers
    pod_up: Integers
    pod_down: Integers
    edge_down: Integers


Climber = Callable[[Integers, Integers, Integers, int, int], Climb]
"""A function from sources, targets, choices, number of nodes and half the ports of a switch to the cables."""


def _make_router(node_count: int, half_port_count: int, up_link_count: int, choose_cables: Climber) -> Router:
    """Return a router up as far as needed and down again: paths (pairs, 6), -1 in place of unneeded links."""

    def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
        cable = choose_cables(sources, targets, choices, node_count, half_port_count)
        leaves_edge = sources // half_port_count != targets // half_port_count
        leaves_pod = sources // half_port_count**2 != targets // half_port_count**2
        return np.stack(
            [
                sources,
                np.where(leaves_edge, cable.edge_up, -1),
                np.where(leaves_pod, cable.pod_up, -1),
                np.where(leaves_pod, up_link_count + cable.pod_down, -1),
                np.where(leaves_edge, up_link_count + cable.edge_down, -1),
                up_link_count + targets,
            ],
            axis=1,
        )

    return route


def _climb_spread(
    sources: Integers, targets: Integers, _choices: Integers, node_count: int, half_port_count: int
) -> Climb:
    first_pod_cable = node_count + 2 * half_port_count**2
    return Climb(
        node_count + sources // half_port_count,
        first_pod_cable + sources // half_port_count**2,
        first_pod_cable + targets // half_port_count**2,
        node_count + targets // half_port_count,
    )


def _climb_hashed(seed: int) -> Climber:
    """Return a climber that hashes each flow to an aggregation and a core switch, which determine the way down."""

    def climb(
        sources: Integers, targets: Integers, choices: Integers, node_count: int, half_port_count: int
    ) -> Climb:
        return _climb_by_choice(
            sources,
            targets,
            hash_integers(sources, targets, choices, np.array(seed)),
            node_count,
            half_port_count,
        )

    return climb


def _climb_by_choice(
    sources: Integers, targets: Integers, choices: Integers, node_count: int, half_port_count: int
) -> Climb:
    first_core_cable = node_count + 2 * half_port_count**3
    port, core = np.divmod(choices % half_port_count**2, half_port_count)
    return Climb(
        node_count + sources // half_port_count * half_port_count + port,
        first_core_cable + (sources // half_port_count**2 * half_port_count + port) * half_port_count + core,
        first_core_cable + (targets // half_port_count**2 * half_port_count + port) * half_port_count + core,
        node_count + targets // half_port_count * half_port_count + port,
    )
