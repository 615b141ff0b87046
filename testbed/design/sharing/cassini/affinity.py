"""The affinity graph of jobs and links that several of them use, and Cassini's Algorithm 1 on it.

An edge's weight is the shift of a job on a link. Without a loop, a walk from any job of a component gives every job
one start that has the shifts of all its links at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Shifts = Mapping[str, Mapping[str, int]]
"""Shift of each job on each link, by the names of link and job."""


@dataclass(slots=True)
class Forest:
    """Sets of jobs and links that are connected; `join` says when an edge would close a loop."""

    parents: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def root(self, node: tuple[str, str]) -> tuple[str, str]:
        """Return the node that stands for all that are connected with this one."""
        while (parent := self.parents.setdefault(node, node)) != node:
            self.parents[node] = self.parents[parent]
            node = parent
        return node

    def join(self, job: str, link: str) -> bool:
        """Connect a job and a link; return False when they are connected already."""
        one, other = self.root(("job", job)), self.root(("link", link))
        self.parents[one] = other
        return one != other


def has_loop(users: Mapping[str, Sequence[str]]) -> bool:
    """Return True when the graph of links and their jobs has a loop."""
    forest = Forest()
    return not all(forest.join(job, link) for link, jobs in users.items() for job in jobs)


def spanning_forest(
    users: Mapping[str, Sequence[str]], gains: Mapping[str, float]
) -> dict[str, tuple[str, ...]]:
    """Return the links with those of their jobs that close no loop, links with the most gain first."""
    forest = Forest()
    order = sorted(users, key=lambda link: -gains[link])
    kept = {link: tuple(job for job in users[link] if forest.join(job, link)) for link in order}
    return {link: kept[link] for link in users}


def starts(shifts: Shifts, periods: Mapping[str, int]) -> dict[str, int]:
    """Return the start of each job, in the unit of `shifts` and `periods`: Algorithm 1.

    >>> starts({"l": {"a": 0, "b": 10}, "m": {"b": 5, "c": 35}}, {"a": 40, "b": 60, "c": 60})
    {'a': 0, 'b': 10, 'c': 40}
    """
    links_of: dict[str, list[str]] = {job: [] for job in periods}
    for link, jobs in shifts.items():
        for job in jobs:
            links_of[job].append(link)
    found: dict[str, int] = {}
    for root in periods:
        if root in found:
            continue
        found[root] = 0
        queue = deque([root])
        while queue:
            job = queue.popleft()
            for link in links_of[job]:
                for other, shift in shifts[link].items():
                    if other not in found:
                        found[other] = (found[job] - shifts[link][job] + shift) % periods[other]
                        queue.append(other)
    return {job: found[job] for job in periods}
