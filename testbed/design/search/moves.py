"""Moves between strategies: one operator, two that swap, a whole class, a run of layers, two servers that swap.

An operator may also take the sharding of a neighbour, which a random draw among all servers would hardly find.

Moves of single operators rarely cross a ridge of the cost: cutting all tables of a kind over every server costs less,
cutting one of them costs more. Operators of equal sizes therefore form a class that is laid out together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from testbed.design.search.chains import Point
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.sharding import Sharding, place_sharding

Shape = tuple[str, int, int, bool]
"""Way, replicas, shards, and whether the servers of the first replica have consecutive numbers."""

Item = TypeVar("Item")

LONGEST_RUN = 6
"""Operators that are laid out together in one move at most."""


class Moves:
    """Moves between the points of one problem; `shardings` are the legal ones of each operator."""

    def __init__(self, workload: Workload, shardings: Sequence[Sequence[Sharding]], nodes: int) -> None:
        self._nodes = nodes
        self._shardings = shardings
        self._at = [{sharding: at for at, sharding in enumerate(known)} for known in shardings]
        self.free = [place for place, known in enumerate(shardings) if len(known) > 1]
        self._shapes = [group_by_shape(known) for known in shardings]
        self._outputs = [operator.output_bytes for operator in workload.operators]
        self.classes = _classes(workload, self.free)
        self._classes = [members for members in self.classes if len(members) > 1]
        alone = ([place] for members in self._classes for place in members)
        self._chains = _chains(workload, self.free)
        self.groups = [*self.classes, *self._chains, *alone]
        """Operators that a descent lays out together: classes, chains, and members of classes alone."""
        self.largest = [one for one in self.groups if not any(set(one) < set(other) for other in self.groups)]
        """Those of the groups that are not a part of another."""
        self._neighbours: list[list[int]] = [[] for _ in workload.operators]
        """For each operator those that feed it, and those that it feeds."""
        for producer, consumer in workload.edges:
            self._neighbours[producer].append(consumer)
            self._neighbours[consumer].append(producer)
        self._next = {producer: consumer for producer, consumer in workload.edges if consumer in self.free}
        self._kinds: list[Callable[[Point, np.random.Generator], Point]] = [
            self.move_one,
            self.join,
            self.run,
        ]
        if self._classes:
            self._kinds += [self.swap, self.relay]
        if any(sharding.way == "place" for known in shardings for sharding in known):
            self._kinds.append(self.swap_servers)

    def propose(self, point: Point, chance: np.random.Generator) -> Point:
        """Return a strategy near this one, of a random kind of move."""
        if not self.free:
            return point
        return self._kinds[int(chance.integers(len(self._kinds)))](point, chance)

    def move_one(self, point: Point, chance: np.random.Generator) -> Point:
        """Return the point with one operator laid out in another way.

        The shape is drawn first, then the servers: otherwise the hundred servers on which a table may be placed would
        almost never let it be cut over all of them.
        """
        place = _draw(self.free, chance)
        others = [[at for at in shape if at != point[place]] for shape in self._shapes[place].values()]
        shapes = [shape for shape in others if shape]
        return _change(point, {place: _draw(_draw(shapes, chance), chance)})

    def join(self, point: Point, chance: np.random.Generator) -> Point:
        """Return the point with one operator laid out like an operator that feeds it, or that it feeds."""
        place = _draw(self.free, chance)
        choices = self._find_neighbour_layouts(point, place)
        return _change(point, {place: _draw(choices, chance)}) if choices else self.move_one(point, chance)

    def _find_neighbour_layouts(self, point: Point, place: int) -> list[int]:
        """Return the places of an operator's shardings that equal a neighbour's: then nothing is sent between them."""
        shardings = [self._shardings[other][point[other]] for other in self._neighbours[place]]
        known = (self._at[place].get(sharding, point[place]) for sharding in shardings)
        return [at for at in dict.fromkeys(known) if at != point[place]]

    def run(self, point: Point, chance: np.random.Generator) -> Point:
        """Return the point with up to `LONGEST_RUN` consecutive operators in one sharding, as far as it is legal."""
        place = _draw(self.free, chance)
        sharding = self._shardings[place][_draw(_draw(list(self._shapes[place].values()), chance), chance)]
        changes: dict[int, int] = {}
        for _ in range(1 + int(chance.integers(LONGEST_RUN))):
            if sharding not in self._at[place]:
                break
            changes[place] = self._at[place][sharding]
            if place not in self._next:
                break
            place = self._next[place]
        return _change(point, changes)

    def swap(self, point: Point, chance: np.random.Generator) -> Point:
        """Return the point with the shardings of two operators of a class swapped."""
        members = _draw(self._classes, chance)
        one, other = chance.choice(len(members), 2, replace=False)
        return _change(point, {members[one]: point[members[other]], members[other]: point[members[one]]})

    def relay(self, point: Point, chance: np.random.Generator) -> Point:
        """Return the point with all of a class in one shape; its shardings are assigned in turn, in random order."""
        members = _draw(self._classes, chance)
        choices = _draw(list(self._shapes[members[0]].values()), chance)
        order = chance.permutation(len(choices))
        return _change(
            point, {place: choices[int(order[turn % len(order)])] for turn, place in enumerate(members)}
        )

    def layouts(self, point: Point, members: Sequence[int]) -> Iterator[Point]:
        """Yield strategies with a group laid out in each shape of its first member.

        A shape that places operators on single servers comes twice, spread and together: spread puts each operator on
        the server that sends least so far (the first of several), together puts all on one server. A single operator
        is also laid out like each of its neighbours, and a group is also split as in `_split_group`.
        """
        if len(members) == 1:
            yield from (
                _change(point, {members[0]: at}) for at in self._find_neighbour_layouts(point, members[0])
            )
        yield from self._split_group(point, members)
        for choices in self._shapes[members[0]].values():
            first = self._shardings[members[0]][choices[0]]
            if self._home(members[0], choices[0]) is None:
                yield self._lay(point, dict.fromkeys(members, first))
                continue
            for together in (False, True)[: len(members)]:
                load = self._bytes_out(point, members)
                changes = {}
                for place in members:
                    server = min(range(self._nodes), key=load.__getitem__)
                    changes[place] = place_sharding((server,))
                    load[server] += 0 if together else self._outputs[place]
                yield self._lay(point, changes)

    def _split_group(self, point: Point, members: Sequence[int]) -> Iterator[Point]:
        """Yield strategies with one of a group on each server that sends nothing else, the others in another shape.

        Moves of single operators do not lead there from a group that is cut: each of them alone is slower.
        """
        free = [server for server, sent in enumerate(self._bytes_out(point, members)) if not sent]
        alone = [place_sharding((server,)) for server in free]
        if not 0 < len(free) < len(members) or alone[0] not in self._at[members[0]]:
            return
        for choices in self._shapes[members[0]].values():
            if self._home(members[0], choices[0]) is None:
                rest = dict.fromkeys(members[len(free) :], self._shardings[members[0]][choices[0]])
                yield self._lay(point, dict(zip(members, alone, strict=False)) | rest)

    def gather_chains(self, point: Point) -> Iterator[Point]:
        """Yield strategies in which a chain's operators on single servers move to a server of another chain.

        A server that becomes empty gets one operator of a class that is partly cut and partly placed.
        Moves of single operators do not lead there, and `layouts` takes the server that sends least.
        """
        homes = {place: self._home(place, at) for place, at in enumerate(point)}
        for chain in self._chains:
            members = [place for place in chain if homes[place] is not None]
            others = {homes[place] for other in self._chains if other is not chain for place in other}
            for server in sorted({home for home in others if home is not None} if members else ()):
                yield self._fill_free_servers(
                    self._lay(point, dict.fromkeys(members, place_sharding((server,))))
                )

    def _fill_free_servers(self, point: Point) -> Point:
        """Return the point with one cut operator of each partly placed class on each server that sends nothing else."""
        for members in self._classes:
            cut = [place for place in members if self._home(place, point[place]) is None]
            if cut and len(cut) < len(members):
                free = [server for server, sent in enumerate(self._bytes_out(point, cut)) if not sent]
                alone = (place_sharding((server,)) for server in free)
                point = self._lay(point, dict(zip(cut, alone, strict=False)))
        return point

    def _lay(self, point: Point, shardings: dict[int, Sharding]) -> Point:
        """Return the point with these shardings; an operator for which its sharding is not legal keeps the old one."""
        return _change(
            point, {place: self._at[place].get(known, point[place]) for place, known in shardings.items()}
        )

    def _bytes_out(self, point: Point, without: Sequence[int]) -> list[float]:
        """Return the output bytes per sample of the operators placed on each server, except for those in `without`."""
        load = [0.0] * self._nodes
        for place, at in enumerate(point):
            sharding = self._shardings[place][at]
            if place not in without and sharding.way == "place":
                for server in sharding.servers:
                    load[server] += self._outputs[place] / sharding.shards
        return load

    def swap_servers(self, point: Point, chance: np.random.Generator) -> Point:
        """Return the point with the operators placed on two servers exchanged."""
        homes = {place: self._home(place, point[place]) for place in self.free}
        used = sorted({home for home in homes.values() if home is not None})
        if not used:
            return self.move_one(point, chance)
        one, other = _draw(used, chance), int(chance.integers(self._nodes))
        exchanged = {one: other, other: one}
        changes = {}
        for place, home in homes.items():
            if home in exchanged:
                target = place_sharding((exchanged[home],))
                changes[place] = self._at[place].get(target, point[place])
        return _change(point, changes)

    def _home(self, place: int, at: int) -> int | None:
        """Return the server of an operator that is placed on a single server, or None."""
        sharding = self._shardings[place][at]
        return sharding.grid[0][0] if sharding.way == "place" and sharding.shards == 1 else None


def group_by_shape(shardings: Sequence[Sharding]) -> dict[Shape, list[int]]:
    """Return the places of the shardings, grouped by shape."""
    shapes: dict[Shape, list[int]] = {}
    for at, sharding in enumerate(shardings):
        row = sharding.grid[0]
        beside = len(row) > 1 and row[-1] - row[0] == len(row) - 1
        shapes.setdefault((sharding.way, sharding.replicas, sharding.shards, beside), []).append(at)
    return shapes


def _classes(workload: Workload, free: Sequence[int]) -> list[list[int]]:
    """Return the free operators in groups that differ only in name, segment and `backward_reduce_bytes`."""
    classes: dict[Operator, list[int]] = {}
    for place in free:
        alike = replace(workload.operators[place], name="", segment=0, backward_reduce_bytes=0)
        classes.setdefault(alike, []).append(place)
    return list(classes.values())


def _chains(workload: Workload, free: Sequence[int]) -> list[list[int]]:
    """Return runs of free operators in which each feeds only the next, and the next is fed by no other."""
    fed = Counter(consumer for _, consumer in workload.edges)
    feeds = Counter(producer for producer, _ in workload.edges)
    chains: list[list[int]] = []
    for place in free:
        joined = [chain for chain in chains if (chain[-1], place) in workload.edges and fed[place] == 1]
        if joined and feeds[joined[0][-1]] == 1:
            joined[0].append(place)
        else:
            chains.append([place])
    return [chain for chain in chains if len(chain) > 1]


def _change(point: Point, changes: dict[int, int]) -> Point:
    return tuple(changes.get(place, at) for place, at in enumerate(point))


def _draw(items: Sequence[Item], chance: np.random.Generator) -> Item:
    return items[int(chance.integers(len(items)))]
