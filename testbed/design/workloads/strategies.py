"""Strategies: defaults, pipelines, strategies by name, legal shardings, and checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import numpy as np

from testbed.design.workloads.model import SIDES, Operator, Workload
from testbed.design.workloads.roofline import Cluster, compute_memory_use
from testbed.design.workloads.sharding import (
    Sharding,
    Strategy,
    make_block_sharding,
    make_data_sharding,
    make_placed_sharding,
    make_spaced_sharding,
)
from testbed.errors import StrategyError

__all__ = ["data_parallel", "default_strategy", "disaggregate", "fitting_strategy"]

FORM_BY_NAME = {
    "default": "default",
    "data": "data",
    "pipeline": "pipeline:STAGES:MICROBATCHES",
    "hybrid": "hybrid:SHARDS:STAGES:MICROBATCHES",
    "disaggregated": "disaggregated or disaggregated:PREFILL_SERVERS",
}


def data_parallel(workload: Workload, nodes: int) -> Strategy:
    """Return the strategy with a copy of every operator on every server.

    Raises `StrategyError` for an operator that cannot be copied, and for less than one server.
    """
    check_copies(workload)
    check_nodes(workload, nodes)
    return Strategy((make_data_sharding(range(nodes)),) * len(workload.operators))


def check_copies(workload: Workload) -> None:
    """Raise `StrategyError` if an operator cannot be copied."""
    for operator in workload.operators:
        if "data" not in operator.ways:
            raise StrategyError(
                f"{workload.name}: {operator.name} cannot be replicated, only {_list_ways(operator)}: use "
                "default_strategy"
            )


def check_nodes(workload: Workload, nodes: int) -> None:
    """Raise `StrategyError` for less than one server."""
    if nodes < 1:
        raise StrategyError(f"{workload.name} on {nodes} servers: a strategy needs at least 1")


def default_strategy(workload: Workload, nodes: int) -> Strategy:
    """Return the strategy in which every operator has the first of its ways.

    Copies go to all servers. Tables are placed, the largest first, on the server with the least memory used. Tensor-
    and expert-parallel operators are cut over all servers, or as many as they allow. Raises `StrategyError` for less
    than one server.
    """
    check_nodes(workload, nodes)
    bytes_by_server = np.zeros(nodes)
    shardings: dict[int, Sharding] = {}
    largest_operators = sorted(
        enumerate(workload.operators), key=lambda item: (-item[1].parameter_bytes, item[0])
    )
    for op_index, operator in largest_operators:
        shardings[op_index] = _make_default_sharding(operator, nodes, int(bytes_by_server.argmin()))
        if shardings[op_index].way == "place":
            bytes_by_server[list(shardings[op_index].servers)] += (
                operator.parameter_bytes + operator.state_bytes
            )
    return Strategy(tuple(shardings[op_index] for op_index in range(len(workload.operators))))


def fitting_strategy(workload: Workload, cluster: Cluster) -> Strategy:
    """Return `default_strategy` if it fits into memory, otherwise cut operators over as few servers as possible.

    A served model with both sides gets `disaggregate` if that fits. If nothing fits, return the default strategy, for
    which `roofline.check_memory` then reports the largest operators.
    """
    if cluster.nodes > 1 and {operator.side for operator in workload.operators} == set(SIDES):
        disaggregated_strategy = disaggregate(workload, cluster)
        if _fits_in_memory(workload, disaggregated_strategy, cluster):
            return disaggregated_strategy
    return _fit_together(workload, cluster)


def disaggregate(workload: Workload, cluster: Cluster, prefill_nodes: int | None = None) -> Strategy:
    """Return a strategy in which the first `prefill_nodes` servers (default: half) read prompts and the others decode.

    Each side is spread over its servers as in `fitting_strategy` for a workload without sides. Keys and values pass
    between the sides. Raises `StrategyError` for a workload without both sides, and for a side without servers.
    """
    prefill_count = cluster.nodes // 2 if prefill_nodes is None else prefill_nodes
    if {operator.side for operator in workload.operators} != set(SIDES):
        raise StrategyError(
            f"{workload.name} does not have both prefill and decode: use the default strategy"
        )
    if not 1 <= prefill_count < cluster.nodes:
        raise StrategyError(
            f"{workload.name}: {prefill_count} of {cluster.nodes} servers are for prefill: "
            "prefill and decode need at least 1 each"
        )
    shardings: dict[int, Sharding] = {}
    for side, servers in zip(SIDES, (range(prefill_count), range(prefill_count, cluster.nodes)), strict=True):
        op_indices = [
            op_index for op_index, operator in enumerate(workload.operators) if operator.side == side
        ]
        side_workload = replace(
            workload, operators=tuple(workload.operators[op_index] for op_index in op_indices), edges=()
        )
        side_strategy = _fit_together(side_workload, replace(cluster, nodes=len(servers)))
        shardings |= {
            op_index: Sharding(
                sharding.way, tuple(tuple(servers[server] for server in row) for row in sharding.grid)
            )
            for op_index, sharding in zip(op_indices, side_strategy.shardings, strict=True)
        }
    return Strategy(tuple(shardings[op_index] for op_index in range(len(workload.operators))))


def _fits_in_memory(workload: Workload, strategy: Strategy, cluster: Cluster) -> bool:
    return bool(compute_memory_use(workload, strategy, cluster).max() <= cluster.memory_bytes)


def _fit_together(workload: Workload, cluster: Cluster) -> Strategy:
    first_strategy = default_strategy(workload, cluster.nodes)
    sizes = [size for size in range(2, cluster.nodes + 1) if cluster.nodes % size == 0]
    cut_strategies = (_replace_copies_by_groups(workload, first_strategy, cluster, size) for size in sizes)
    candidates = chain((first_strategy,), cut_strategies, _make_domain_pipelines(workload, cluster))
    return next(
        (strategy for strategy in candidates if _fits_in_memory(workload, strategy, cluster)), first_strategy
    )


def _make_domain_pipelines(workload: Workload, cluster: Cluster) -> Iterator[Strategy]:
    """Yield hybrid strategies with domains as tensor-parallel groups, in ascending order of stages.

    They have as many microbatches as stages, but at most one per sample. Without domains, there are none.
    """
    domains = cluster.nodes // cluster.domain
    for stages in range(2, min(domains, len(workload.operators)) + 1) if cluster.domain > 1 else ():
        if domains % stages == 0:
            microbatches = min(stages, workload.batch)
            yield hybrid_parallel(workload, cluster.nodes, cluster.domain, stages, microbatches)


def _replace_copies_by_groups(
    workload: Workload, base_strategy: Strategy, cluster: Cluster, shards: int
) -> Strategy:
    """Return the strategy with copies replaced by groups of up to `shards` shards. Sharded operators stay unchanged.

    Groups whose size divides a high-bandwidth domain are consecutive, so that each is within one domain. Operators that
    can only be placed are spread over all servers if `shards` is the number of servers.
    """
    nodes = cluster.nodes

    def choose_sharding(operator: Operator, current_sharding: Sharding) -> Sharding:
        ways = [way for way in ("tensor", "expert") if way in operator.ways]
        if current_sharding.way == "data" and ways:
            size = _find_max_shards(operator, shards)
            is_inside = cluster.domain % size == 0 and not operator.evenly_spaced
            return (make_block_sharding if is_inside else make_spaced_sharding)(ways[0], nodes, size)
        is_spread = current_sharding.way in ("data", "place") and "place" in operator.ways and shards == nodes
        return make_placed_sharding(range(nodes)) if is_spread else current_sharding

    pairs = zip(workload.operators, base_strategy.shardings, strict=True)
    return Strategy(
        tuple(choose_sharding(operator, current_sharding) for operator, current_sharding in pairs),
        base_strategy.microbatches,
    )


def _make_default_sharding(operator: Operator, nodes: int, emptiest_server: int) -> Sharding:
    way = operator.ways[0]
    if way == "place":
        return make_placed_sharding((emptiest_server,))
    if way == "data":
        return make_data_sharding(range(nodes))
    return make_spaced_sharding(way, nodes, _find_max_shards(operator, nodes))


def _find_max_shards(operator: Operator, max_shards: int) -> int:
    """Return the largest divisor of `max_shards` that the operator allows as number of shards."""
    return max(
        size for size in range(1, max_shards + 1) if max_shards % size == 0 and size <= operator.shard_limit
    )


@lru_cache(maxsize=1024)
def list_legal_shardings(operator: Operator, nodes: int) -> tuple[Sharding, ...]:
    """Return all shardings that a search may try.

    - `data`: copies on all servers.
    - `tensor`, `expert`: groups of every size that divides the servers and that the operator allows, evenly spaced or,
      unless the operator forbids that, consecutive.
    - `place`: on any single server, or cut over all servers.
    """
    shardings: list[Sharding] = []
    sizes = [size for size in range(min(2, nodes), nodes + 1) if nodes % size == 0]
    for way in operator.ways:
        if way == "data":
            shardings.append(make_data_sharding(range(nodes)))
        elif way == "place":
            shardings.extend(make_placed_sharding((server,)) for server in range(nodes))
            shardings.append(make_placed_sharding(range(nodes)))
        else:
            allowed_sizes = [size for size in sizes if size <= operator.shard_limit]
            shardings.extend(make_spaced_sharding(way, nodes, size) for size in allowed_sizes or [1])
            block_sizes = [] if operator.evenly_spaced else allowed_sizes
            shardings.extend(
                make_block_sharding(way, nodes, size) for size in block_sizes if 1 < size < nodes
            )
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
        fault = find_sharding_fault(sharding, nodes)
        if sharding.way not in operator.ways:
            fault = f"laid out as {sharding.way}, it can be {_list_ways(operator)}"
        elif sharding.way in ("tensor", "expert") and not fault and sharding.shards > operator.shard_limit:
            fault = f"cut into {sharding.shards} shards, it can be into {operator.most_shards} at most"
        if fault:
            raise StrategyError(f"{workload.name}: {operator.name}: {fault}")


@lru_cache(maxsize=1 << 14)
def find_sharding_fault(sharding: Sharding, nodes: int) -> str:
    """Return the fault of a sharding's grid, or ""."""
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
    """Return a pipeline: consecutive stages of nearly equal work, each copied to every `stages`-th server.

    Stage s runs on {s, s + stages, ...}. So its gradients are summed along a stride, and the next stage is on the next
    server. The work of the largest stage is minimal. Raises `StrategyError` if the number of stages does not divide the
    servers or exceeds the operators, and for an operator that cannot be copied.
    """
    check_copies(workload)
    operator_count = len(workload.operators)
    if not 1 <= stages <= operator_count or nodes % stages:
        raise StrategyError(
            f"{workload.name}: {stages} stages of {operator_count} operators on {nodes} servers: stages must "
            "divide the servers, and each needs an operator"
        )
    flops_by_operator = [operator.forward_flops + operator.backward_flops for operator in workload.operators]
    borders = _find_even_cuts(flops_by_operator, stages)
    shardings = [
        make_data_sharding(range(stage, nodes, stages))
        for stage in range(stages)
        for _ in range(borders[stage], borders[stage + 1])
    ]
    return Strategy(tuple(shardings), microbatches)


def hybrid_parallel(workload: Workload, nodes: int, shards: int, stages: int, microbatches: int) -> Strategy:
    """Return a pipeline whose stages are cut into tensor-parallel groups, with copies of the groups in each stage.

    Nodes are numbered first within a group of `shards`, then over the copies of a stage, then over the stages
    (Narayanan et al., 2021). So a group is within a domain if its size divides the size of the domain. Experts are
    spread over the nodes of a stage. Tables are placed on the node with the least memory used. Operators that cannot be
    cut are copied. Raises `StrategyError` if groups and stages do not divide the nodes, or the number of stages exceeds
    the operators.
    """
    operator_count = len(workload.operators)
    if min(shards, stages) < 1 or nodes % (shards * stages) or stages > operator_count:
        raise StrategyError(
            f"{workload.name}: {stages} stages of {operator_count} operators in groups of {shards} on {nodes} nodes: "
            "groups and stages must divide the nodes, and each stage needs an operator"
        )
    flops_by_operator = [operator.forward_flops + operator.backward_flops for operator in workload.operators]
    borders, stage_nodes = _find_even_cuts(flops_by_operator, stages), nodes // stages
    shardings = []
    for stage in range(stages):
        bytes_by_server = np.zeros(stage_nodes)
        for operator in workload.operators[borders[stage] : borders[stage + 1]]:
            sharding = _make_stage_sharding(operator, stage_nodes, shards, int(bytes_by_server.argmin()))
            if sharding.way == "place":
                bytes_by_server[list(sharding.servers)] += operator.parameter_bytes + operator.state_bytes
            first_node = stage * stage_nodes
            grid = tuple(tuple(first_node + server for server in row) for row in sharding.grid)
            shardings.append(Sharding(sharding.way, grid))
    return Strategy(tuple(shardings), microbatches)


def _make_stage_sharding(operator: Operator, nodes: int, shards: int, emptiest_server: int) -> Sharding:
    """Return the sharding of an operator in a stage of `nodes` nodes, numbered from 0."""
    if "tensor" in operator.ways and shards > 1:
        return make_block_sharding("tensor", nodes, _find_max_shards(operator, shards))
    if operator.ways[0] == "expert":
        return make_block_sharding("expert", nodes, _find_max_shards(operator, nodes))
    return _make_default_sharding(operator, nodes, emptiest_server)


def _find_even_cuts(weights: Sequence[float], piece_count: int) -> list[int]:
    """Return the borders of non-empty pieces of a sequence that minimise the weight of the heaviest piece.

    >>> _find_even_cuts([1, 1, 1, 3, 1, 1], 3)
    [0, 3, 4, 6]
    """
    weight_sums = np.concatenate([[0.0], np.cumsum(weights)])
    piece_weights = np.where(
        np.tri(weight_sums.size, k=-1).T > 0, weight_sums - weight_sums[:, None], np.inf
    )  # [j, i]: from j up to i
    heaviest_weights, choices = piece_weights[0], []
    for _ in range(piece_count - 1):
        max_weights = np.maximum(heaviest_weights[:, None], piece_weights)
        choices.append(max_weights.argmin(axis=0))
        heaviest_weights = max_weights.min(axis=0)
    borders = [len(weights)]
    for choice in reversed(choices):
        borders.append(int(choice[borders[-1]]))
    return [0, *reversed(borders)]


def is_named(text: str) -> bool:
    """Return whether a text is the name of a strategy rather than a plan file."""
    return text.partition(":")[0] in FORM_BY_NAME


def make_named_strategy(text: str, workload: Workload, cluster: Cluster) -> Strategy:
    """Return the strategy with a name (see `FORM_BY_NAME`) for a workload.

    Raises `StrategyError` for an unknown name, wrong numbers, and a strategy that the workload does not allow.
    """
    name, *words = text.split(":")
    numbers = [int(digits) for digits in words if digits.isascii() and digits.isdecimal()]
    match name, numbers:
        case _ if len(numbers) < len(words):
            pass
        case "default", []:
            return fitting_strategy(workload, cluster)
        case "data", []:
            return data_parallel(workload, cluster.nodes)
        case "pipeline", [stages, microbatches]:
            return pipeline_parallel(workload, cluster.nodes, stages, microbatches)
        case "hybrid", [shards, stages, microbatches]:
            return hybrid_parallel(workload, cluster.nodes, shards, stages, microbatches)
        case "disaggregated", []:
            return disaggregate(workload, cluster)
        case "disaggregated", [prefill_nodes]:
            return disaggregate(workload, cluster, prefill_nodes)
    syntax = FORM_BY_NAME.get(name) or f"one of {', '.join(FORM_BY_NAME)}"
    raise StrategyError(f"strategy {text!r}: give {syntax} with integers, or a plan file")
