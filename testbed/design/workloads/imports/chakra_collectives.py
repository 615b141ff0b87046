"""Tasks that a collective of Chakra becomes, by its type.

`comm_size` is what ASTRA-sim takes it for: of an all-gather the share of one rank, of the others the whole tensor.

| type | tasks |
|---|---|
| 0 all-reduce | one of the job's AllReduces |
| 1 reduce, 5 broadcast | along the members, from the root or to it, every hop at once: a pipeline of small parts |
| 2 all-gather | a ring of rounds in which each member passes a share on |
| 3 gather, 4 scatter | a share of each member to the root, or from it |
| 6 all-to-all | a share to each other member; members may have sizes of their own |
| 7, 8 reduce-scatter | a ring of rounds in which each member passes a share of the tensor on |

The root is the rank that the attribute `root_rank` names, else the first member.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.design.workloads.imports import chakra_tasks
from testbed.design.workloads.imports import chakra_wire as wire

Tasks = tuple[int, Callable[[TaskGraphBuilder, list[int]], None]]
"""How many tasks there are, and what adds them to a job after others."""

_MESSAGES = (wire.REDUCE, wire.GATHER, wire.SCATTER, wire.BROADCAST, wire.ALL_TO_ALL)
_KNOWN = (
    "all-reduce 0, reduce 1, all-gather 2, gather 3, scatter 4, broadcast 5, all-to-all 6, reduce-scatter 7 and 8, "
    "barrier 9"
)


def collective_tasks(
    kind: int, members: tuple[int, ...], sizes: tuple[int, ...], root: int, time_s: float
) -> Tasks:
    """Return the tasks of a collective. Raises `ValueError`: "of type 12: known are ..."."""
    if kind == wire.ALL_TO_ALL:
        return _sent(_everybody(members, sizes))
    if len(set(sizes)) > 1:
        raise ValueError(f"of {sorted(set(sizes))} bytes: ranks do not agree")
    size = sizes[0]
    if kind == wire.ALL_REDUCE:
        return 1, partial(chakra_tasks.add_reduce, members=members, size_bytes=size, time_s=time_s)
    share = -(-size // len(members))
    if kind in (wire.ALL_GATHER, wire.REDUCE_SCATTER, wire.REDUCE_SCATTER_BLOCK):
        each = size if kind == wire.ALL_GATHER else share
        tasks = len(members) * (len(members) - 1) + 2
        return tasks, partial(chakra_tasks.add_ring, members=members, size_bytes=each)
    if kind not in _MESSAGES:
        raise ValueError(f"of type {kind}: known are {_KNOWN}")
    if root not in members:
        raise ValueError(f"with root {root}, which is not of its members {members}")
    return _sent(_rooted(kind, members, root, size, share))


def _sent(messages: tuple[tuple[int, int, int], ...]) -> Tasks:
    return len(messages) + 2, partial(chakra_tasks.add_messages, messages=messages)


def _everybody(members: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    return tuple(
        (one, other, -(-size // len(members)))
        for one, size in zip(members, sizes, strict=True)
        for other in members
        if one != other
    )


def _rooted(
    kind: int, members: tuple[int, ...], root: int, size: int, share: int
) -> tuple[tuple[int, int, int], ...]:
    place = members.index(root)
    line = members[place:] + members[:place]
    if kind in (wire.BROADCAST, wire.REDUCE):
        hops = itertools.pairwise(line)
        return tuple((a, b, size) if kind == wire.BROADCAST else (b, a, size) for a, b in hops)
    return tuple((root, other, share) if kind == wire.SCATTER else (other, root, share) for other in line[1:])
