"""Moves between strategies: one operator, two that swap, a whole class, a run of layers, two servers that swap.

An operator may also join its neighbours, which chance alone would hardly find among all servers.

Single moves cross a ridge of the cost only by luck: that all tables of a kind are cut over every server costs less,
one of them cut costs more. Operators of equal sizes are a class, and are laid out together.
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
"""Way, replicas, shards, and whether the first replica's servers stand side by side."""

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
        self._shapes = [by_shape(known) for known in shardings]
        self._outputs = [operator.output_bytes for operator in workload.operators]
        self.classes = _classes(workload, self.free)
        self._classes = [members for members in self.classes if len(members) > 1]
        alone = ([place] for members in self._classes for place in members)
        self._chains = _chains(workload, self.free)
        self.groups = [*self.classes, *self._chains, *alone]
        """Operators that a descent lays out together: classes, chains, and members of classes alone."""
        self.largest = [one for one in self.groups if not any(set(one) < set(other) for other in self.groups)]
        """Those of the groups that are not a part of another."""
        self._beside: list[list[int]] = [[] for _ in workload.operators]
        """For each operator those that feed it, and those that it feeds."""
        for producer, consumer in workload.edges:
            self._beside[producer].append(consumer)
            self._beside[consumer].append(producer)
        self._next = {producer: consumer for producer, consumer in workload.edges if consumer in self.free}
        self._kinds: list[Callable[[Point, np.random.Generator], Point]] = [self.one, self.join, self.run]
        if self._classes:
            self._kinds += [self.swap, self.relay]
        if any(sharding.way == "place" for known in shardings for sharding in known):
            self._kinds.append(self.swap_servers)

    def propose(self, point: Point, chance: np.random.Generator) -> Point:
        """Return a strategy near this one, of a random kind of move."""
        if not self.free:
            return point
        return self._kinds[int(chance.integers(len(self._kinds)))](point, chance)

    def one(self, point: Point, chance: np.random.Generator) -> Point:
        """Return one operator laid out in another way.

        The shape is drawn first, then the servers: else the hundred servers on which a table may be placed would
        leave no chance to cutting it over all of them.
        """
        place = _any(self.free, chance)
        others = [[at for at in shape if at != point[place]] for shape in self._shapes[place].values()]
        shapes = [shape for shape in others if shape]
        return _change(point, {place: _any(_any(shapes, chance), chance)})

    def join(self, point: Point, chance: np.random.Generator) -> Point:
        """Return one operator laid out as one that feeds it, or that it feeds."""
        place = _any(self.free, chance)
        beside = self._as_beside(point, place)
        return _change(point, {place: _any(beside, chance)}) if beside else self.one(point, chance)

    def _as_beside(self, point: Point, place: int) -> list[int]:
        """Return where an operator stands as its neighbours do: nothing is then sent between them."""
        shardings = [self._shardings[other][point[other]] for other in self._beside[place]]
        known = (self._at[place].get(sharding, point[place]) for sharding in shardings)
        return [at for at in dict.fromkeys(known) if at != point[place]]

    def run(self, point: Point, chance: np.random.Generator) -> Point:
        """Return an operator and those behind it, as far as they may, laid out as one of them is, or in a new way."""
        place = _any(self.free, chance)
        sharding = self._shardings[place][_any(_any(list(self._shapes[place].values()), chance), chance)]
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
        """Return two operators of a class with each other's servers."""
        members = _any(self._classes, chance)
        one, other = chance.choice(len(members), 2, replace=False)
        return _change(point, {members[one]: point[members[other]], members[other]: point[members[one]]})

    def relay(self, point: Point, chance: np.random.Generator) -> Point:
        """Return all of a class laid out in one shape; what is placed on servers of their own takes turns."""
        members = _any(self._classes, chance)
        choices = _any(list(self._shapes[members[0]].values()), chance)
        order = chance.permutation(len(choices))
        return _change(
            point, {place: choices[int(order[turn % len(order)])] for turn, place in enumerate(members)}
        )

    def layouts(self, point: Point, members: Sequence[int]) -> Iterator[Point]:
        """Yield strategies with a group laid out in each shape of its first; what is placed is spread or put together.

        Spread means that each goes where least is sent from, the first of these servers where several are. A single
        operator is laid out as its neighbours are, too, and a group also parted as in `_part_group`.
        """
        if len(members) == 1:
            yield from (_change(point, {members[0]: at}) for at in self._as_beside(point, members[0]))
        yield from self._part_group(point, members)
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

    def _part_group(self, point: Point, members: Sequence[int]) -> Iterator[Point]:
        """Yield strategies with one of a group on each server that sends nothing else, the others in another shape.

        No step of single operators leads there from a group that is cut: each of them alone makes it slower.
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
        """Yield strategies in which what a chain has on servers of its own moves to a server of another chain.

        A server that it leaves empty gets one of a class that is cut while others of it are placed.
        No step of single operators leads there, and `layouts` takes the server that sends least.
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
        """Return a strategy with one of a class that is cut on each server that sends nothing else."""
        for members in self._classes:
            cut = [place for place in members if self._home(place, point[place]) is None]
            if cut and len(cut) < len(members):
                free = [server for server, sent in enumerate(self._bytes_out(point, cut)) if not sent]
                alone = (place_sharding((server,)) for server in free)
                point = self._lay(point, dict(zip(cut, alone, strict=False)))
        return point

    def _lay(self, point: Point, shardings: dict[int, Sharding]) -> Point:
        """Return operators laid out so; one that may not be stays as it is."""
        return _change(
            point, {place: self._at[place].get(known, point[place]) for place, known in shardings.items()}
        )

    def _bytes_out(self, point: Point, without: Sequence[int]) -> list[float]:
        """Return bytes a sample that leave each server for what is placed there, but for some operators."""
        load = [0.0] * self._nodes
        for place, at in enumerate(point):
            sharding = self._shardings[place][at]
            if place not in without and sharding.way == "place":
                for server in sharding.servers:
                    load[server] += self._outputs[place] / sharding.shards
        return load

    def swap_servers(self, point: Point, chance: np.random.Generator) -> Point:
        """Return everything that is placed on one server on another, and the other way round."""
        homes = {place: self._home(place, point[place]) for place in self.free}
        used = sorted({home for home in homes.values() if home is not None})
        if not used:
            return self.one(point, chance)
        one, other = _any(used, chance), int(chance.integers(self._nodes))
        turned = {one: other, other: one}
        changes = {}
        for place, home in homes.items():
            if home in turned:
                target = place_sharding((turned[home],))
                changes[place] = self._at[place].get(target, point[place])
        return _change(point, changes)

    def _home(self, place: int, at: int) -> int | None:
        """Return the server of an operator that is placed on a single one."""
        sharding = self._shardings[place][at]
        return sharding.grid[0][0] if sharding.way == "place" and sharding.shards == 1 else None


def by_shape(shardings: Sequence[Sharding]) -> dict[Shape, list[int]]:
    """Return places of the shardings, those of one shape together."""
    shapes: dict[Shape, list[int]] = {}
    for at, sharding in enumerate(shardings):
        row = sharding.grid[0]
        beside = len(row) > 1 and row[-1] - row[0] == len(row) - 1
        shapes.setdefault((sharding.way, sharding.replicas, sharding.shards, beside), []).append(at)
    return shapes


def _classes(workload: Workload, free: Sequence[int]) -> list[list[int]]:
    """Return free operators that differ in their name alone, together, or in what is computed again."""
    classes: dict[Operator, list[int]] = {}
    for place in free:
        alike = replace(workload.operators[place], name="", segment=0, backward_reduce_bytes=0)
        classes.setdefault(alike, []).append(place)
    return list(classes.values())


def _chains(workload: Workload, free: Sequence[int]) -> list[list[int]]:
    """Return runs of free operators that feed the next one alone, which is fed by them alone."""
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


def _any(items: Sequence[Item], chance: np.random.Generator) -> Item:
    return items[int(chance.integers(len(items)))]
