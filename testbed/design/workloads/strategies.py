"""Strategies: the usual ones to begin with, which layouts an operator may take, and whether a strategy fits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from testbed.design.workloads.layout import Layout, Strategy, data_layout, place_layout, spaced_layout
from testbed.design.workloads.model import Operator, Way, Workload
from testbed.design.workloads.roofline import Cluster, memory_use
from testbed.errors import StrategyError


def data_parallel(workload: Workload, nodes: int) -> Strategy:
    """Every operator whole on every server. Raises `StrategyError` naming an operator that cannot be."""
    _check_copies(workload)
    return Strategy((data_layout(range(nodes)),) * len(workload.operators))


def pipeline_parallel(workload: Workload, nodes: int, stages: int, microbatches: int) -> Strategy:
    """Operators in order cut into stages of nearly equal work, each copied to every `stages`-th server.

    Stage s runs on {s, s + stages, ...}: its gradients are summed along a stride, and the next stage is the next
    server. The largest stage is as small as can be. Raises `StrategyError` for stages that do not divide the servers
    or are more than the operators, and for an operator that cannot be copied.
    """
    _check_copies(workload)
    count = len(workload.operators)
    if not 1 <= stages <= count or nodes % stages:
        raise StrategyError(
            f"{workload.name}: {stages} stages of {count} operators on {nodes} servers: "
            f"stages must divide the servers, and each takes an operator"
        )
    work = [operator.forward_flops + operator.backward_flops for operator in workload.operators]
    ends = _even_cuts(work, stages)
    layouts = [
        data_layout(range(stage, nodes, stages))
        for stage in range(stages)
        for _ in range(ends[stage], ends[stage + 1])
    ]
    return Strategy(tuple(layouts), microbatches)


def _even_cuts(weights: Sequence[float], pieces: int) -> list[int]:
    """Where pieces of a sequence begin and end, none empty, so that the heaviest weighs least.

    >>> _even_cuts([1, 1, 1, 3, 1, 1], 3)
    [0, 3, 4, 6]
    """
    total = np.concatenate([[0.0], np.cumsum(weights)])
    last = np.where(np.tri(total.size, k=-1).T > 0, total - total[:, None], np.inf)  # [j, i]: from j up to i
    heaviest, choices = last[0], []
    for _ in range(pieces - 1):
        either = np.maximum(heaviest[:, None], last)
        choices.append(either.argmin(axis=0))
        heaviest = either.min(axis=0)
    ends = [len(weights)]
    for choice in reversed(choices):
        ends.append(int(choice[ends[-1]]))
    return [0, *reversed(ends)]


def _check_copies(workload: Workload) -> None:
    for operator in workload.operators:
        if "data" not in operator.ways:
            raise StrategyError(
                f"{workload.name}: {operator.name} cannot be copied to several servers, only {_listed(operator)}: "
                f"take default_strategy"
            )


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


def fitting_strategy(workload: Workload, cluster: Cluster) -> Strategy:
    """`default_strategy` where memory holds it; else everything that can be is cut over as few servers as suffice.

    When nothing fits it is the default all the same, about which `roofline.check_memory` then says what is too large.
    """
    usual = default_strategy(workload, cluster.nodes)
    sizes = [size for size in range(2, cluster.nodes + 1) if cluster.nodes % size == 0]
    for strategy in (usual, *(_cut(workload, usual, cluster.nodes, size) for size in sizes)):
        if memory_use(workload, strategy, cluster).max() <= cluster.memory_bytes:
            return strategy
    return usual


def _cut(workload: Workload, usual: Strategy, nodes: int, shards: int) -> Strategy:
    """Copies become groups of so many shards; what can only be placed is spread when all servers are one group."""

    def layout(operator: Operator, was: Layout) -> Layout:
        ways = [way for way in ("tensor", "expert") if way in operator.ways]
        if was.way != "place" and ways:
            return spaced_layout(ways[0], nodes, shards)
        return place_layout(range(nodes)) if "place" in operator.ways and shards == nodes else was

    pairs = zip(workload.operators, usual.layouts, strict=True)
    return Strategy(tuple(layout(operator, was) for operator, was in pairs), usual.microbatches)


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
