"""Strategies: the usual ones to begin with, which layouts an operator may take, and whether a strategy fits."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from testbed.design.workloads.model import SIDES, Operator, Workload
from testbed.design.workloads.roofline import Cluster, memory_use
from testbed.design.workloads.sharding.sharding import (
    Layout,
    Strategy,
    data_layout,
    place_layout,
    spaced_layout,
)
from testbed.errors import StrategyError


def data_parallel(workload: Workload, nodes: int) -> Strategy:
    """Every operator whole on every server. Raises `StrategyError` naming an operator that cannot be."""
    check_copies(workload)
    check_nodes(workload, nodes)
    return Strategy((data_layout(range(nodes)),) * len(workload.operators))


def check_copies(workload: Workload) -> None:
    """Raise `StrategyError` naming an operator that cannot be copied."""
    for operator in workload.operators:
        if "data" not in operator.ways:
            raise StrategyError(
                f"{workload.name}: {operator.name} cannot be copied to several servers, only {_listed(operator)}: "
                f"take default_strategy"
            )


def check_nodes(workload: Workload, nodes: int) -> None:
    """Raise `StrategyError` unless there is a server."""
    if nodes < 1:
        raise StrategyError(f"{workload.name} on {nodes} servers: a strategy needs at least 1")


def default_strategy(workload: Workload, nodes: int) -> Strategy:
    """Every operator as is usual for it, the first of its ways.

    Copies go to all servers; tables are placed, the largest first, where least is; what is cut is cut over all
    servers, or as many of them as it allows. Raises `StrategyError` without servers.
    """
    check_nodes(workload, nodes)
    load = np.zeros(nodes)
    layouts: dict[int, Layout] = {}
    by_size = sorted(enumerate(workload.operators), key=lambda item: (-item[1].parameter_bytes, item[0]))
    for place, operator in by_size:
        layouts[place] = _usual_layout(operator, nodes, int(load.argmin()))
        if layouts[place].way == "place":
            load[list(layouts[place].servers)] += operator.parameter_bytes + operator.state_bytes
    return Strategy(tuple(layouts[place] for place in range(len(workload.operators))))


def fitting_strategy(workload: Workload, cluster: Cluster) -> Strategy:
    """`default_strategy` where memory holds it; else everything that can be is cut over as few servers as suffice.

    What serves with both sides gets `disaggregated_strategy` where that fits. When nothing fits it is the default all
    the same, about which `roofline.check_memory` then says what is too large.
    """
    if cluster.nodes > 1 and {operator.side for operator in workload.operators} == set(SIDES):
        apart = disaggregated_strategy(workload, cluster)
        if _fits(workload, apart, cluster):
            return apart
    return _fitting_together(workload, cluster)


def disaggregated_strategy(
    workload: Workload, cluster: Cluster, prefill_nodes: int | None = None
) -> Strategy:
    """Prompts are read by the first `prefill_nodes` servers, half of them by default, answers written by the others.

    Each side is spread over its servers as `fitting_strategy` spreads what has no sides; between them pass keys and
    values. Raises `StrategyError` for a workload without both sides, and for a side without servers.
    """
    count = cluster.nodes // 2 if prefill_nodes is None else prefill_nodes
    if {operator.side for operator in workload.operators} != set(SIDES):
        raise StrategyError(
            f"{workload.name} does not both read prompts and write answers: take the default strategy"
        )
    if not 1 <= count < cluster.nodes:
        raise StrategyError(
            f"{workload.name}: {count} of {cluster.nodes} servers read prompts: each side needs at least 1"
        )
    layouts: dict[int, Layout] = {}
    for side, servers in zip(SIDES, (range(count), range(count, cluster.nodes)), strict=True):
        places = [place for place, operator in enumerate(workload.operators) if operator.side == side]
        part = replace(workload, operators=tuple(workload.operators[place] for place in places), edges=())
        spread = _fitting_together(part, replace(cluster, nodes=len(servers)))
        layouts |= {
            place: _moved(layout, servers) for place, layout in zip(places, spread.layouts, strict=True)
        }
    return Strategy(tuple(layouts[place] for place in range(len(workload.operators))))


def _moved(layout: Layout, servers: range) -> Layout:
    """The same grid on other servers: these instead of 0, 1, 2 ..."""
    return Layout(layout.way, tuple(tuple(servers[server] for server in row) for row in layout.grid))


def _fits(workload: Workload, strategy: Strategy, cluster: Cluster) -> bool:
    return bool(memory_use(workload, strategy, cluster).max() <= cluster.memory_bytes)


def _fitting_together(workload: Workload, cluster: Cluster) -> Strategy:
    usual = default_strategy(workload, cluster.nodes)
    sizes = [size for size in range(2, cluster.nodes + 1) if cluster.nodes % size == 0]
    cuts = (_cut(workload, usual, cluster.nodes, size) for size in sizes)
    return next((strategy for strategy in (usual, *cuts) if _fits(workload, strategy, cluster)), usual)


def _cut(workload: Workload, usual: Strategy, nodes: int, shards: int) -> Strategy:
    """Copies become groups of so many shards, what is cut already stays as it is.

    What can only be placed is spread when all servers are one group.
    """

    def layout(operator: Operator, was: Layout) -> Layout:
        ways = [way for way in ("tensor", "expert") if way in operator.ways]
        if was.way == "data" and ways:
            return spaced_layout(ways[0], nodes, _most_shards(operator, shards))
        spread = was.way in ("data", "place") and "place" in operator.ways and shards == nodes
        return place_layout(range(nodes)) if spread else was

    pairs = zip(workload.operators, usual.layouts, strict=True)
    return Strategy(tuple(layout(operator, was) for operator, was in pairs), usual.microbatches)


def _usual_layout(operator: Operator, nodes: int, emptiest: int) -> Layout:
    way = operator.ways[0]
    if way == "place":
        return place_layout((emptiest,))
    if way == "data":
        return data_layout(range(nodes))
    return spaced_layout(way, nodes, _most_shards(operator, nodes))


def _most_shards(operator: Operator, wanted: int) -> int:
    """The largest divisor of the wanted shards that the operator allows."""
    return max(size for size in range(1, wanted + 1) if wanted % size == 0 and size <= operator.shard_limit)


@lru_cache(maxsize=1024)
def legal_layouts(operator: Operator, nodes: int) -> tuple[Layout, ...]:
    """All layouts a search may try.

    Copies on all servers; tensor and expert parallel in evenly spaced groups of every size that divides the
    servers and is at most what the operator allows; placed on any one server, or cut over all.
    """
    layouts: list[Layout] = []
    sizes = [size for size in range(min(2, nodes), nodes + 1) if nodes % size == 0]
    for way in operator.ways:
        if way == "data":
            layouts.append(data_layout(range(nodes)))
        elif way == "place":
            layouts.extend(place_layout((server,)) for server in range(nodes))
            layouts.append(place_layout(range(nodes)))
        else:
            allowed = [size for size in sizes if size <= operator.shard_limit]
            layouts.extend(spaced_layout(way, nodes, size) for size in allowed or [1])
    return tuple(dict.fromkeys(layouts))


def check_strategy(workload: Workload, strategy: Strategy, nodes: int) -> None:
    """Raise `StrategyError` unless each operator has a layout that it and the servers allow."""
    if len(strategy.layouts) != len(workload.operators):
        raise StrategyError(
            f"{workload.name} has {len(workload.operators)} operators, the strategy {len(strategy.layouts)} layouts: "
            f"give one each"
        )
    if not 1 <= strategy.microbatches <= workload.batch:
        raise StrategyError(
            f"{workload.name}: {strategy.microbatches} microbatches of {workload.batch} samples: "
            f"each takes at least one sample"
        )
    for operator, layout in zip(workload.operators, strategy.layouts, strict=True):
        fault = layout_fault(layout, nodes)
        if layout.way not in operator.ways:
            fault = f"laid out as {layout.way}, it can be {_listed(operator)}"
        elif layout.way in ("tensor", "expert") and not fault and layout.shards > operator.shard_limit:
            fault = f"cut into {layout.shards} shards, it can be into {operator.most_shards} at most"
        if fault:
            raise StrategyError(f"{workload.name}: {operator.name}: {fault}")


@lru_cache(maxsize=1 << 14)
def layout_fault(layout: Layout, nodes: int) -> str:
    """What is wrong with a grid, or nothing."""
    if not layout.grid or not layout.grid[0] or len({len(row) for row in layout.grid}) > 1:
        return "its grid must have at least one replica, and all replicas equally many shards"
    servers = layout.servers
    if len(set(servers)) != len(servers):
        return "its grid names a server twice: a server holds one shard of one replica"
    if min(servers) < 0 or max(servers) >= nodes:
        return f"its grid names servers {min(servers)} to {max(servers)}: there are 0 to {nodes - 1}"
    if layout.way == "data" and layout.shards > 1:
        return f"data parallel with {layout.shards} shards: each replica is whole, use tensor or expert"
    if layout.way == "place" and layout.replicas > 1:
        return f"placed {layout.replicas} times: there is one copy, use data or tensor"
    return ""


def _listed(operator: Operator) -> str:
    return " or ".join(operator.ways)
