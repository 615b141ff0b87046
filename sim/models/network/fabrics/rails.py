"""Rail-only and rail-optimised fabrics: GPUs in domains of high bandwidth, joined by one network per rail.

A domain holds `domain` GPUs with consecutive numbers, joined by a switch of high bandwidth (NVLink). Rail r joins the
GPUs of rank r of all domains. Rails have full bisection, so each is modelled as one switch that never blocks; a real
rail may be a small Clos network.

- Rail-only (Wang et al., 2023): nothing joins the rails. A message to another domain and rank goes over the sender's
  rail into the target's domain; the GPU of the sender's rank there forwards it through the domain.
- Rail-optimised: a spine with full bisection joins the rails. No GPU forwards.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.models.network.fabrics.cost import Cost, compute_fat_tree_cost
from sim.models.network.fabrics.model import CyclicRouter, Fabric, Integers, Router, check_sizes


def make_rail_only(gpus: int, domain: int, rail_gbps: float, domain_gbps: float) -> Fabric:
    """Return a fabric whose rails are joined only by the domains.

    Each GPU has a link of `domain_gbps` to its domain and a link of `rail_gbps` to its rail, each way. Raises
    `ValueError` unless the domains divide the GPUs.
    """
    return _make_fabric("rail-only", gpus, domain, rail_gbps, domain_gbps, has_spine=False)


def make_rail_optimized(gpus: int, domain: int, rail_gbps: float, domain_gbps: float) -> Fabric:
    """Return a fabric whose rails are joined by a spine with full bisection. Raise as `make_rail_only` does."""
    return _make_fabric("rail-optimized", gpus, domain, rail_gbps, domain_gbps, has_spine=True)


def join_domains(fabric: Fabric, domain: int, domain_gbps: float) -> Fabric:
    """Return a switched fabric whose hosts, which are GPUs, are also joined in domains of consecutive numbers.

    Messages inside a domain leave the rest of the fabric alone. Raises `ValueError` unless the domains divide the GPUs.
    """
    check_sizes(domain, domain_gbps)
    gpus, links = fabric.nodes, fabric.link_count
    if gpus % domain:
        raise ValueError(f"{gpus} GPUs cannot be divided into domains of {domain}")
    hosts = np.arange(gpus)
    switches = 1 + max(fabric.sources.max(), fabric.targets.max()) + hosts // domain
    rate_bps = np.full(2 * gpus, domain_gbps * 1e9)

    def route_through_domains(router: Router) -> Router:
        def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
            paths = router(sources, targets, choices)
            is_inside = sources // domain == targets // domain
            paths[is_inside] = -1
            paths[is_inside, 0], paths[is_inside, 1] = (
                links + sources[is_inside],
                links + gpus + targets[is_inside],
            )
            return paths

        return CyclicRouter.like(router, route)

    count, router = fabric.alternatives or (0, fabric.router)
    return replace(
        fabric,
        name=f"{fabric.name}+domains",
        sources=np.concatenate([fabric.sources, hosts, switches]),
        targets=np.concatenate([fabric.targets, switches, hosts]),
        capacity_bps=np.concatenate([fabric.capacity_bps, rate_bps]),
        lane_bps=np.concatenate([fabric.lane_bps, rate_bps]),
        never_full=np.concatenate([fabric.never_full, np.zeros(2 * gpus, dtype=bool)]),
        router=route_through_domains(fabric.router),
        alternatives=(count, route_through_domains(router)) if count else None,
    )


def share_hosts(fabric: Fabric, domain: int, domain_gbps: float) -> Fabric:
    """Return a fabric of hosts whose nodes are their GPUs: `domain` consecutive GPUs share the links of a host.

    Host h is vertex gpus + h. Each GPU has a link of `domain_gbps` to and from its host, and hosts forward. Links of
    the fabric keep their numbers; the links up follow, then the links down.
    """
    check_sizes(domain, domain_gbps)
    gpus, links = fabric.nodes * domain, fabric.link_count
    gpu_indices = np.arange(gpus)
    hosts = gpus + gpu_indices // domain
    rate_bps = np.full(2 * gpus, domain_gbps * 1e9)

    def route_through_hosts(router: Router) -> Router:
        def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
            from_hosts, to_hosts = sources // domain, targets // domain
            paths = router(from_hosts, to_hosts, choices)
            paths = np.where((from_hosts == to_hosts)[:, None], -1, paths)
            return np.column_stack([links + sources, paths, links + gpus + targets])

        return CyclicRouter.like(router, route)

    count, router = fabric.alternatives or (0, fabric.router)
    return replace(
        fabric,
        name=f"{fabric.name}+domains",
        nodes=gpus,
        sources=np.concatenate([fabric.sources + gpus, gpu_indices, hosts]),
        targets=np.concatenate([fabric.targets + gpus, hosts, gpu_indices]),
        capacity_bps=np.concatenate([fabric.capacity_bps, rate_bps]),
        lane_bps=np.concatenate([fabric.lane_bps, rate_bps]),
        never_full=np.concatenate([fabric.never_full, np.zeros(2 * gpus, dtype=bool)]),
        router=route_through_hosts(fabric.router),
        alternatives=(count, route_through_hosts(router)) if count else None,
        domain=domain,
    )


def _make_fabric(
    name: str, gpus: int, domain: int, rail_gbps: float, domain_gbps: float, *, has_spine: bool
) -> Fabric:
    check_sizes(gpus, rail_gbps)
    check_sizes(domain, domain_gbps)
    if gpus % domain:
        raise ValueError(f"{gpus} GPUs cannot be divided into domains of {domain}")
    domains = gpus // domain
    hosts, rails = np.arange(gpus), np.arange(domain)
    inside = gpus + hosts // domain
    rail = gpus + domains + hosts % domain
    spine = np.full(domain, gpus + domains + domain)
    # Up-links of all GPUs, then of the rails; the same links down follow in the same order.
    lower_ends = np.concatenate([hosts, hosts, gpus + domains + rails])
    upper_ends = np.concatenate([inside, rail, spine])
    rate_bps = np.repeat([domain_gbps, rail_gbps, rail_gbps], [gpus, gpus, domain]) * 1e9
    lanes = np.repeat([1, 1, domains], [gpus, gpus, domain])
    link_count = lower_ends.size if has_spine else 2 * gpus
    make_router = _route_over_spine if has_spine else _route_over_domains
    return Fabric(
        name=name,
        nodes=gpus,
        sources=np.concatenate([lower_ends[:link_count], upper_ends[:link_count]]),
        targets=np.concatenate([upper_ends[:link_count], lower_ends[:link_count]]),
        capacity_bps=np.tile((rate_bps * lanes)[:link_count], 2),
        lane_bps=np.tile(rate_bps[:link_count], 2),
        never_full=np.tile(np.arange(link_count) >= 2 * gpus, 2),
        router=CyclicRouter(make_router(gpus, domain, link_count), 1),
        hosts_forward=False,
        cost=compute_rail_cost(gpus, domain, rail_gbps, has_spine=has_spine),
    )


def compute_rail_cost(gpus: int, domain: int, rail_gbps: float, *, has_spine: bool) -> Cost:
    """Return the cost of the rails and of the NICs; domains are part of the servers.

    With a spine this is one Fat-tree over all GPUs, otherwise one Fat-tree per rail.
    """
    if has_spine:
        return compute_fat_tree_cost(gpus, rail_gbps)
    single_rail_cost = compute_fat_tree_cost(gpus // domain, rail_gbps)
    return Cost(
        tuple((part, number * domain, price) for part, number, price in single_rail_cost.parts),
        single_rail_cost.recalled,
    )


def _route_over_domains(gpus: int, domain: int, up_link_count: int) -> Router:
    """Return the router of rail-only: over the sender's rail if the domain differs, then through the domain."""

    def route(sources: Integers, targets: Integers, _choices: Integers) -> Integers:
        crosses_domains = sources // domain != targets // domain
        relays = np.where(crosses_domains, targets // domain * domain + sources % domain, sources)
        has_arrived = relays == targets
        return np.stack(
            [
                np.where(crosses_domains, gpus + sources, -1),
                np.where(crosses_domains, up_link_count + gpus + relays, -1),
                np.where(has_arrived, -1, relays),
                np.where(has_arrived, -1, up_link_count + targets),
            ],
            axis=1,
        )

    return route


def _route_over_spine(gpus: int, domain: int, up_link_count: int) -> Router:
    """Return the router of rail-optimised: inside a domain through the domain, otherwise over one or two rails."""

    def route(sources: Integers, targets: Integers, _choices: Integers) -> Integers:
        crosses_domains = sources // domain != targets // domain
        climbs = crosses_domains & (sources % domain != targets % domain)
        return np.stack(
            [
                np.where(crosses_domains, gpus + sources, sources),
                np.where(climbs, 2 * gpus + sources % domain, -1),
                np.where(climbs, up_link_count + 2 * gpus + targets % domain, -1),
                np.where(crosses_domains, up_link_count + gpus + targets, up_link_count + targets),
            ],
            axis=1,
        )

    return route
