"""Pipelines: which operators form the stages, and where these run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.design.workloads.model import Workload
from testbed.design.workloads.sharding.sharding import Strategy, data_sharding
from testbed.design.workloads.strategies.strategies import check_copies
from testbed.errors import StrategyError


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
            f"{workload.name}: {stages} stages of {count} operators on {nodes} servers: "
            f"stages must divide the servers, and each takes an operator"
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
