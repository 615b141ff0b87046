"""Strategies: the default ones, pipelines, those that people name; legal shardings; and whether a strategy fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from testbed.design.workloads.model import SIDES, Operator, Workload
from testbed.design.workloads.roofline import Cluster, memory_use
from testbed.design.workloads.sharding import (
    Sharding,
    Strategy,
    block_sharding,
    data_sharding,
    place_sharding,
    space_sharding,
)
from testbed.errors import StrategyError

__all__ = ["data_parallel", "default_strategy", "disaggregate", "fitting_strategy"]

FORMS = {
    "default": "default",
    "data": "data",
    "pipeline": "pipeline:STAGES:MICROBATCHES",
    "disaggregated": "disaggregated or disaggregated:PREFILL_SERVERS",
}


def data_parallel(workload: Workload, nodes: int) -> Strategy:
    """Return every operator whole on every server. Raises `StrategyError` naming an operator that cannot be."""
    check_copies(workload)
    check_nodes(workload, nodes)
    return Strategy((data_sharding(range(nodes)),) * len(workload.operators))


def check_copies(workload: Workload) -> None:
    """Raise `StrategyError` naming an operator that cannot be copied."""
    for operator in workload.operators:
        if "data" not in operator.ways:
            raise StrategyError(
                f"{workload.name}: {operator.name} cannot be replicated, only {_list_ways(operator)}: use "
                "default_strategy"
            )


def check_nodes(workload: Workload, nodes: int) -> None:
    """Raise `StrategyError` unless there is a server."""
    if nodes < 1:
        raise StrategyError(f"{workload.name} on {nodes} servers: a strategy needs at least 1")


def default_strategy(workload: Workload, nodes: int) -> Strategy:
    """Return every operator as is usual for it, the first of its ways.

    Copies go to all servers; tables are placed, the largest first, where least is; what is cut is cut over all
    servers, or as many of them as it allows. Raises `StrategyError` without servers.
    """
    check_nodes(workload, nodes)
    load = np.zeros(nodes)
    shardings: dict[int, Sharding] = {}
    by_size = sorted(enumerate(workload.operators), key=lambda item: (-item[1].parameter_bytes, item[0]))
    for place, operator in by_size:
        shardings[place] = _default_sharding(operator, nodes, int(load.argmin()))
        if shardings[place].way == "place":
            load[list(shardings[place].servers)] += operator.parameter_bytes + operator.state_bytes
    return Strategy(tuple(shardings[place] for place in range(len(workload.operators))))


def fitting_strategy(workload: Workload, cluster: Cluster) -> Strategy:
    """Return `default_strategy` where memory holds it; else what can be is cut over as few servers as suffice.

    What serves with both sides gets `disaggregate` where that fits. When nothing fits it is the default all
    the same, about which `roofline.check_memory` then says what is too large.
    """
    if cluster.nodes > 1 and {operator.side for operator in workload.operators} == set(SIDES):
        apart = disaggregate(workload, cluster)
        if _fits(workload, apart, cluster):
            return apart
    return _fitting_together(workload, cluster)


def disaggregate(workload: Workload, cluster: Cluster, prefill_nodes: int | None = None) -> Strategy:
    """Make the first `prefill_nodes` servers, half by default, read prompts, and the others write answers.

    Each side is spread over its servers as `fitting_strategy` spreads what has no sides; between them pass keys and
    values. Raises `StrategyError` for a workload without both sides, and for a side without servers.
    """
    count = cluster.nodes // 2 if prefill_nodes is None else prefill_nodes
    if {operator.side for operator in workload.operators} != set(SIDES):
        raise StrategyError(
            f"{workload.name} does not have both prefill and decode: use the default strategy"
        )
    if not 1 <= count < cluster.nodes:
        raise StrategyError(
            f"{workload.name}: {count} of {cluster.nodes} servers for prefill: each side needs at least 1"
        )
    shardings: dict[int, Sharding] = {}
    for side, servers in zip(SIDES, (range(count), range(count, cluster.nodes)), strict=True):
        places = [place for place, operator in enumerate(workload.operators) if operator.side == side]
        part = replace(workload, operators=tuple(workload.operators[place] for place in places), edges=())
        spread = _fitting_together(part, replace(cluster, nodes=len(servers)))
        shardings |= {
            place: Sharding(
                sharding.way, tuple(tuple(servers[server] for server in row) for row in sharding.grid)
            )
            for place, sharding in zip(places, spread.shardings, strict=True)
        }
    return Strategy(tuple(shardings[place] for place in range(len(workload.operators))))


def _fits(workload: Workload, strategy: Strategy, cluster: Cluster) -> bool:
    return bool(memory_use(workload, strategy, cluster).max() <= cluster.memory_bytes)


def _fitting_together(workload: Workload, cluster: Cluster) -> Strategy:
    usual = default_strategy(workload, cluster.nodes)
    sizes = [size for size in range(2, cluster.nodes + 1) if cluster.nodes % size == 0]
    cuts = (_cut(workload, usual, cluster.nodes, size) for size in sizes)
    return next((strategy for strategy in (usual, *cuts) if _fits(workload, strategy, cluster)), usual)


def _cut(workload: Workload, usual: Strategy, nodes: int, shards: int) -> Strategy:
    """Return copies become groups of so many shards, what is cut already stays as it is.

    What can only be placed is spread when all servers are one group.
    """

    def sharding(operator: Operator, was: Sharding) -> Sharding:
        ways = [way for way in ("tensor", "expert") if way in operator.ways]
        if was.way == "data" and ways:
            return space_sharding(ways[0], nodes, _most_shards(operator, shards))
        spread = was.way in ("data", "place") and "place" in operator.ways and shards == nodes
        return place_sharding(range(nodes)) if spread else was

    pairs = zip(workload.operators, usual.shardings, strict=True)
    return Strategy(tuple(sharding(operator, was) for operator, was in pairs), usual.microbatches)


def _default_sharding(operator: Operator, nodes: int, emptiest: int) -> Sharding:
    way = operator.ways[0]
    if way == "place":
        return place_sharding((emptiest,))
    if way == "data":
        return data_sharding(range(nodes))
    return space_sharding(way, nodes, _most_shards(operator, nodes))


def _most_shards(operator: Operator, wanted: int) -> int:
    """Return the largest divisor of the wanted shards that the operator allows."""
    return max(size for size in range(1, wanted + 1) if wanted % size == 0 and size <= operator.shard_limit)


@lru_cache(maxsize=1024)
def legal_shardings(operator: Operator, nodes: int) -> tuple[Sharding, ...]:
    """Return all shardings a search may try.

    Copies on all servers; tensor and expert parallel in groups of every size that divides the servers and is at most
    what the operator allows, evenly spaced or, unless it forbids that, side by side; placed on any one server, or cut
    over all.
    """
    shardings: list[Sharding] = []
    sizes = [size for size in range(min(2, nodes), nodes + 1) if nodes % size == 0]
    for way in operator.ways:
        if way == "data":
            shardings.append(data_sharding(range(nodes)))
        elif way == "place":
            shardings.extend(place_sharding((server,)) for server in range(nodes))
            shardings.append(place_sharding(range(nodes)))
        else:
            allowed = [size for size in sizes if size <= operator.shard_limit]
            shardings.extend(space_sharding(way, nodes, size) for size in allowed or [1])
            blocks = [] if operator.evenly_spaced else allowed
            shardings.extend(block_sharding(way, nodes, size) for size in blocks if 1 < size < nodes)
    return tuple(dict.fromkeys(shardings))


def check_strategy(workload: Workload, strategy: Strategy, nodes: int) -> None:
    """Raise `StrategyError` unless each operator has a sharding that it and the servers allow."""
    if len(strategy.shardings) != len(workload.operators):
        raise StrategyError(
            f"{workload.name} has {len(workload.operators)} operators, but the strategy has "
            f"{len(strategy.shardings)} shardings: give one per operator"
        )
    if not 1 <= strategy.microbatches <= workload.batch:
        raise StrategyError(
            f"{workload.name}: {strategy.microbatches} microbatches of {workload.batch} samples: each "
            "needs at least one sample"
        )
    for operator, sharding in zip(workload.operators, strategy.shardings, strict=True):
        fault = sharding_fault(sharding, nodes)
        if sharding.way not in operator.ways:
            fault = f"laid out as {sharding.way}, it can be {_list_ways(operator)}"
        elif sharding.way in ("tensor", "expert") and not fault and sharding.shards > operator.shard_limit:
            fault = f"cut into {sharding.shards} shards, it can be into {operator.most_shards} at most"
        if fault:
            raise StrategyError(f"{workload.name}: {operator.name}: {fault}")


@lru_cache(maxsize=1 << 14)
def sharding_fault(sharding: Sharding, nodes: int) -> str:
    """Return what is wrong with a grid, or nothing."""
    if not sharding.grid or not sharding.grid[0] or len({len(row) for row in sharding.grid}) > 1:
        return "its grid must have at least one replica, and all replicas equally many shards"
    servers = sharding.servers
    if len(set(servers)) != len(servers):
        return "its grid names a server twice: a server holds one shard of one replica"
    if min(servers) < 0 or max(servers) >= nodes:
        return f"its grid names servers {min(servers)} to {max(servers)}: there are 0 to {nodes - 1}"
    if sharding.way == "data" and sharding.shards > 1:
        return f"data parallel with {sharding.shards} shards: each replica is whole, use tensor or expert"
    if sharding.way == "place" and sharding.replicas > 1:
        return f"placed {sharding.replicas} times: there is one copy, use data or tensor"
    return ""


def _list_ways(operator: Operator) -> str:
    return " or ".join(operator.ways)


def pipeline_parallel(workload: Workload, nodes: int, stages: int, microbatches: int) -> Strategy:
    """Return operators in order cut into stages of nearly equal work, each copied to every `stages`-th server.

    Stage s runs on {s, s + stages, ...}: its gradients are summed along a stride, and the next stage is the next
    server. The largest stage is as small as can be. Raises `StrategyError` for stages that do not divide the servers
    or are more than the operators, and for an operator that cannot be copied.
    """
    check_copies(workload)
    count = len(workload.operators)
    if not 1 <= stages <= count or nodes % stages:
        raise StrategyError(
            f"{workload.name}: {stages} stages of {count} operators on {nodes} servers: stages must "
            "divide the servers, and each needs an operator"
        )
    work = [operator.forward_flops + operator.backward_flops for operator in workload.operators]
    ends = _even_cuts(work, stages)
    shardings = [
        data_sharding(range(stage, nodes, stages))
        for stage in range(stages)
        for _ in range(ends[stage], ends[stage + 1])
    ]
    return Strategy(tuple(shardings), microbatches)


def _even_cuts(weights: Sequence[float], pieces: int) -> list[int]:
    """Return where pieces of a sequence begin and end, none empty, so that the heaviest weighs least.

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


def is_named(text: str) -> bool:
    """Return whether it is one of these names, rather than a file."""
    return text.partition(":")[0] in FORMS


def strategy_by_name(text: str, workload: Workload, cluster: Cluster) -> Strategy:
    """Return the strategy of that name for a workload.

    Raises `StrategyError` that shows the form, or says what cannot be.
    """
    name, *words = text.split(":")
    numbers = [int(word) for word in words if word.isascii() and word.isdecimal()]
    match name, numbers:
        case _ if len(numbers) < len(words):
            pass
        case "default", []:
            return fitting_strategy(workload, cluster)
        case "data", []:
            return data_parallel(workload, cluster.nodes)
        case "pipeline", [stages, microbatches]:
            return pipeline_parallel(workload, cluster.nodes, stages, microbatches)
        case "disaggregated", []:
            return disaggregate(workload, cluster)
        case "disaggregated", [prefill_nodes]:
            return disaggregate(workload, cluster, prefill_nodes)
    form = FORMS.get(name) or f"one of {', '.join(FORMS)}"
    raise StrategyError(f"strategy {text!r}: give {form} with integers, or a plan file")
