"""Rail-only and rail-optimised fabrics: GPUs in domains of high bandwidth, joined by one network per rail.

A domain holds `domain_size` GPUs with consecutive numbers, joined by a switch of high bandwidth (NVLink). Rail r joins
the GPUs of rank r of all domains. Rails have full bisection, so each is modelled as one switch that never blocks; a
real rail may be a small Clos network.

- Rail-only (Wang et al., 2023): nothing joins the rails. A message to another domain and rank goes over the sender's
  rail into the target's domain; the GPU of the sender's rank there forwards it through the domain.
- Rail-optimised: a spine with full bisection joins the rails. No GPU forwards.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.models.network.fabrics.cost import Cost, compute_fat_tree_cost
from sim.models.network.fabrics.model import CyclicRouter, Fabric, Integers, Router, check_sizes


def make_rail_only(gpu_count: int, domain_size: int, rail_gbps: float, domain_gbps: float) -> Fabric:
    """Return a fabric whose rails are joined only by the domains.

    Each GPU has a link of `domain_gbps` to its domain and a link of `rail_gbps` to its rail, each way. Raises
    `ValueError` unless the domains divide the GPUs.
    """
    return _make_fabric("rail-only", gpu_count, domain_size, rail_gbps, domain_gbps, has_spine=False)


def make_rail_optimized(gpu_count: int, domain_size: int, rail_gbps: float, domain_gbps: float) -> Fabric:
    """Return a fabric whose rails are joined by a spine with full bisection. Raise as `make_rail_only` does."""
    return _make_fabric("rail-optimized", gpu_count, domain_size, rail_gbps, domain_gbps, has_spine=True)


def join_domains(fabric: Fabric, domain_size: int, domain_gbps: float) -> Fabric:
    """Return a switched fabric whose hosts, which are GPUs, are also joined in domains of consecutive numbers.

    Messages inside a domain leave the rest of the fabric alone. Raises `ValueError` unless the domains divide the GPUs.
    """
    check_sizes(domain_size, domain_gbps)
    gpu_count, link_count = fabric.node_count, fabric.link_count
    if gpu_count % domain_size:
        raise ValueError(f"{gpu_count} GPUs cannot be divided into domains of {domain_size}")
    hosts = np.arange(gpu_count)
    switches = 1 + max(fabric.sources.max(), fabric.targets.max()) + hosts // domain_size
    rate_bps = np.full(2 * gpu_count, domain_gbps * 1e9)

    def route_through_domains(router: Router) -> Router:
        def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
            paths = router(sources, targets, choices)
            is_inside = sources // domain_size == targets // domain_size
            paths[is_inside] = -1
            paths[is_inside, 0], paths[is_inside, 1] = (
                link_count + sources[is_inside],
                link_count + gpu_count + targets[is_inside],
            )
            return paths

        return CyclicRouter.with_choices_of(router, route)

    choice_count, router = fabric.alternatives or (0, fabric.router)
    return replace(
        fabric,
        name=f"{fabric.name}+domains",
        sources=np.concatenate([fabric.sources, hosts, switches]),
        targets=np.concatenate([fabric.targets, switches, hosts]),
        capacity_bps=np.concatenate([fabric.capacity_bps, rate_bps]),
        lane_bps=np.concatenate([fabric.lane_bps, rate_bps]),
        never_full=np.concatenate([fabric.never_full, np.zeros(2 * gpu_count, dtype=bool)]),
        router=route_through_domains(fabric.router),
        alternatives=(choice_count, route_through_domains(router)) if choice_count else None,
    )


def share_hosts(fabric: Fabric, domain_size: int, domain_gbps: float) -> Fabric:
    """Return a fabric of hosts whose nodes are their GPUs: `domain_size` consecutive GPUs share the links of a host.

    Host h is vertex gpus + h. Each GPU has a link of `domain_gbps` to and from its host, and hosts forward. Links of
    the fabric keep their numbers; the links up follow, then the links down.
    """
    check_sizes(domain_size, domain_gbps)
    gpu_count, link_count = fabric.node_count * domain_size, fabric.link_count
    gpu_indices = np.arange(gpu_count)
    hosts = gpu_count + gpu_indices // domain_size
    rate_bps = np.full(2 * gpu_count, domain_gbps * 1e9)

    def route_through_hosts(router: Router) -> Router:
        def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
            from_hosts, to_hosts = sources // domain_size, targets // domain_size
            paths = router(from_hosts, to_hosts, choices)
            paths = np.where((from_hosts == to_hosts)[:, None], -1, paths)
            return np.column_stack([link_count + sources, paths, link_count + gpu_count + targets])

        return CyclicRouter.with_choices_of(router, route)

    choice_count, router = fabric.alternatives or (0, fabric.router)
    return replace(
        fabric,
        name=f"{fabric.name}+domains",
        node_count=gpu_count,
        sources=np.concatenate([fabric.sources + gpu_count, gpu_indices, hosts]),
        targets=np.concatenate([fabric.targets + gpu_count, hosts, gpu_indices]),
        capacity_bps=np.concatenate([fabric.capacity_bps, rate_bps]),
        lane_bps=np.concatenate([fabric.lane_bps, rate_bps]),
        never_full=np.concatenate([fabric.never_full, np.zeros(2 * gpu_count, dtype=bool)]),
        router=route_through_hosts(fabric.router),
        alternatives=(choice_count, route_through_hosts(router)) if choice_count else None,
        domain_size=domain_size,
    )


def _make_fabric(
    name: str, gpu_count: int, domain_size: int, rail_gbps: float, domain_gbps: float, *, has_spine: bool
) -> Fabric:
    check_sizes(gpu_count, rail_gbps)
    check_sizes(domain_size, domain_gbps)
    if gpu_count % domain_size:
        raise ValueError(f"{gpu_count} GPUs cannot be divided into domains of {domain_size}")
    domain_count = gpu_count // domain_size
    gpus, rails = np.arange(gpu_count), np.arange(domain_size)
    domain_switch = gpu_count + gpus // domain_size
    rail_switch = gpu_count + domain_count + gpus % domain_size
    spine = np.full(domain_size, gpu_count + domain_count + domain_size)
    # Up-links of all GPUs, then of the rails; the same links down follow in the same order.
    lower_ends = np.concatenate([gpus, gpus, gpu_count + domain_count + rails])
    upper_ends = np.concatenate([domain_switch, rail_switch, spine])
    rate_bps = np.repeat([domain_gbps, rail_gbps, rail_gbps], [gpu_count, gpu_count, domain_size]) * 1e9
    lanes = np.repeat([1, 1, domain_count], [gpu_count, gpu_count, domain_size])
    link_count = lower_ends.size if has_spine else 2 * gpu_count
    make_router = _route_over_spine if has_spine else _route_over_domains
    return Fabric(
        name=name,
        node_count=gpu_count,
        sources=np.concatenate([lower_ends[:link_count], upper_ends[:link_count]]),
        targets=np.concatenate([upper_ends[:link_count], lower_ends[:link_count]]),
        capacity_bps=np.tile((rate_bps * lanes)[:link_count], 2),
        lane_bps=np.tile(rate_bps[:link_count], 2),
        never_full=np.tile(np.arange(link_count) >= 2 * gpu_count, 2),
        router=CyclicRouter(make_router(gpu_count, domain_size, link_count), 1),
        hosts_forward=False,
        cost=compute_rail_cost(gpu_count, domain_size, rail_gbps, has_spine=has_spine),
    )


def compute_rail_cost(gpu_count: int, domain_size: int, rail_gbps: float, *, has_spine: bool) -> Cost:
    """Return the cost of the rails and of the NICs; domains are part of the servers.

    With a spine this is one Fat-tree over all GPUs, otherwise one Fat-tree per rail.
    """
    if has_spine:
        return compute_fat_tree_cost(gpu_count, rail_gbps)
    single_rail_cost = compute_fat_tree_cost(gpu_count // domain_size, rail_gbps)
    return Cost(
        tuple((part, number * domain_size, price) for part, number, price in single_rail_cost.parts),
        single_rail_cost.is_unverified,
    )


def _route_over_domains(gpu_count: int, domain_size: int, up_link_count: int) -> Router:
    """Return the router of rail-only: over the sender's rail if the domain differs, then through the domain."""

    def route(sources: Integers, targets: Integers, _choices: Integers) -> Integers:
        crosses_domains = sources // domain_size != targets // domain_size
        relays = np.where(
            crosses_domains, targets // domain_size * domain_size + sources % domain_size, sources
        )
        has_arrived = relays == targets
        return np.stack(
            [
                np.where(crosses_domains, gpu_count + sources, -1),
                np.where(crosses_domains, up_link_count + gpu_count + relays, -1),
                np.where(has_arrived, -1, relays),
                np.where(has_arrived, -1, up_link_count + targets),
            ],
            axis=1,
        )

    return route


def _route_over_spine(gpu_count: int, domain_size: int, up_link_count: int) -> Router:
    """Return the router of rail-optimised: inside a domain through the domain, otherwise over one or two rails."""

    def route(sources: Integers, targets: Integers, _choices: Integers) -> Integers:
        crosses_domains = sources // domain_size != targets // domain_size
        crosses_spine = crosses_domains & (sources % domain_size != targets % domain_size)
        return np.stack(
            [
                np.where(crosses_domains, gpu_count + sources, sources),
                np.where(crosses_spine, 2 * gpu_count + sources % domain_size, -1),
                np.where(crosses_spine, up_link_count + 2 * gpu_count + targets % domain_size, -1),
                np.where(crosses_domains, up_link_count + gpu_count + targets, up_link_count + targets),
            ],
            axis=1,
        )

    return route
