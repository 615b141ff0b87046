"""Strategies: the usual ones to begin with, which layouts an operator may take, and whether a strategy fits."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from testbed.design.workloads.layout import Layout, Strategy, data_layout, place_layout, spaced_layout
from testbed.design.workloads.model import Operator, Way, Workload
from testbed.errors import StrategyError


def data_parallel(workload: Workload, nodes: int) -> Strategy:
    """Every operator whole on every server. Raises `StrategyError` naming an operator that cannot be."""
    for operator in workload.operators:
        if "data" not in operator.ways:
            raise StrategyError(
                f"{workload.name}: {operator.name} cannot be copied to every server, only {_listed(operator)}: "
                f"take default_strategy"
            )
    return Strategy((data_layout(range(nodes)),) * len(workload.operators))


def default_strategy(workload: Workload, nodes: int) -> Strategy:
    """Every operator as is usual for it, the first of its ways.

    Copies go to all servers; tables are placed, the largest first, where least is; what is cut is cut over all
    servers.
    """
    load = np.zeros(nodes)
    layouts: dict[int, Layout] = {}
    by_size = sorted(enumerate(workload.operators), key=lambda item: (-item[1].parameter_bytes, item[0]))
    for place, operator in by_size:
        layouts[place] = _usual_layout(operator.ways[0], nodes, int(load.argmin()))
        if layouts[place].way == "place":
            load[list(layouts[place].servers)] += operator.parameter_bytes + operator.state_bytes
    return Strategy(tuple(layouts[place] for place in range(len(workload.operators))))


def _usual_layout(way: Way, nodes: int, emptiest: int) -> Layout:
    if way == "place":
        return place_layout((emptiest,))
    return data_layout(range(nodes)) if way == "data" else spaced_layout(way, nodes, nodes)


@lru_cache(maxsize=1024)
def legal_layouts(operator: Operator, nodes: int) -> tuple[Layout, ...]:
    """All layouts a search may try.

    Copies on all servers; tensor and expert parallel in evenly spaced groups of every size that divides the
    servers; placed on any one server, or cut over all.
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
            layouts.extend(spaced_layout(way, nodes, size) for size in sizes)
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
        fault = _fault(layout, nodes)
        if layout.way not in operator.ways:
            fault = f"laid out as {layout.way}, it can be {_listed(operator)}"
        if fault:
            raise StrategyError(f"{workload.name}: {operator.name}: {fault}")


@lru_cache(maxsize=1 << 14)
def _fault(layout: Layout, nodes: int) -> str:
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
