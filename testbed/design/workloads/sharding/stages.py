"""Stages of a pipeline: which steps servers do one after the other for a microbatch before they take up the next.

Devices take what is ready, first come, first served. Without more, the first operators of a stage would run for all
microbatches before the second for any, and the next stage would get everything at the end. GPipe (Huang et al.,
2019) goes through a stage microbatch by microbatch; so a stage begins one when it is done with the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.design.workloads.model import Edge, Workload
from testbed.design.workloads.sharding.sharding import Strategy

Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps of one stage by number; the `first` have none before them in it, the `last` none after them."""

    first: Steps
    last: Steps


def pipeline_stages(
    workload: Workload, strategy: Strategy, steps: Sequence[Steps], taking_part: Sequence[bool]
) -> tuple[Stage, ...]:
    """Return the stages among those `steps` that take part: all of them forward, those that learn backward.

    Steps on the same servers form a stage, unless what one makes comes back to the other by way of other servers:
    then a microbatch visits these servers more than once, and each visit is a stage.
    """
    step_of = {place: step for step, places in enumerate(steps) for place in places}
    edges = sorted({(step_of[producer], step_of[consumer]) for producer, consumer in workload.edges})
    stage_of = _visits([frozenset(strategy.shardings[places[0]].servers) for places in steps], edges)
    inside = {
        (a, b)
        for a, b in edges
        if stage_of[a] == stage_of[b] and taking_part[a] and taking_part[b] and a != b
    }
    fed, feeding = {b for _, b in inside}, {a for a, _ in inside}
    members: dict[object, list[int]] = {}
    for step, stage in enumerate(stage_of):
        if taking_part[step]:
            members.setdefault(stage, []).append(step)
    return tuple(
        Stage(
            tuple(step for step in among if step not in fed),
            tuple(step for step in among if step not in feeding),
        )
        for among in members.values()
    )


def _visits(servers: Sequence[frozenset[int]], edges: Sequence[Edge]) -> list[tuple[frozenset[int], int]]:
    """Return for each step its servers, and how often at most these were left on a way to it. Edges ascend."""
    visits = [0] * len(servers)
    for here in set(servers):
        left = [0] * len(servers)
        for producer, consumer in edges:
            leaves = servers[producer] == here != servers[consumer]
            left[consumer] = max(left[consumer], left[producer] + leaves)
        for step in range(len(servers)):
            if servers[step] == here:
                visits[step] = left[step]
    return list(zip(servers, visits, strict=True))
