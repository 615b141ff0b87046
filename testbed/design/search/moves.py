"""Moves between strategies. A move changes one operator, two operators, a class, a run of layers, or two servers.

An operator may also take the sharding of a neighbour, which a random draw among all servers would hardly find.

Moves of single operators can get stuck. For example, cutting all tables over every server may lower the cost although
cutting only one table raises it. So operators of equal sizes form a class that is laid out together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from testbed.design.search.chains import Point
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.sharding import Sharding, make_placed_sharding

Shape = tuple[str, int, int, bool]
"""Way, replicas, shards, and whether the servers of the first replica have consecutive numbers."""

Item = TypeVar("Item")

MAX_RUN_LENGTH = 6
"""Maximum number of consecutive operators that one move lays out together."""


class Moves:
    """Moves between the points of one problem. `shardings` are the legal shardings of each operator."""

    def __init__(self, workload: Workload, shardings: Sequence[Sequence[Sharding]], nodes: int) -> None:
        self._nodes = nodes
        self._shardings = shardings
        self._sharding_index_of = [
            {sharding: sharding_index for sharding_index, sharding in enumerate(legal_shardings)}
            for legal_shardings in shardings
        ]
        self.free_operators = [
            op_index for op_index, legal_shardings in enumerate(shardings) if len(legal_shardings) > 1
        ]
        self._shapes = [group_by_shape(legal_shardings) for legal_shardings in shardings]
        self._output_bytes = [operator.output_bytes for operator in workload.operators]
        self.classes = _group_classes(workload, self.free_operators)
        self._swappable_classes = [members for members in self.classes if len(members) > 1]
        single_placements = ([op_index] for members in self._swappable_classes for op_index in members)
        self._chains = _find_chains(workload, self.free_operators)
        self.groups = [*self.classes, *self._chains, *single_placements]
        """Operators that a descent lays out together: classes, chains, and single members of classes."""
        self.largest_groups = [
            group for group in self.groups if not any(set(group) < set(larger) for larger in self.groups)
        ]
        """Groups that are not part of another group."""
        self._neighbours: list[list[int]] = [[] for _ in workload.operators]
        """For each operator, its consumers and its producers."""
        for producer, consumer in workload.edges:
            self._neighbours[producer].append(consumer)
            self._neighbours[consumer].append(producer)
        self._next_operator = {
            producer: consumer for producer, consumer in workload.edges if consumer in self.free_operators
        }
        self._move_functions: list[Callable[[Point, np.random.Generator], Point]] = [
            self.lay_out_operator,
            self.copy_neighbour_layout,
            self.lay_out_run,
        ]
        if self._swappable_classes:
            self._move_functions += [self.swap_operators, self.lay_out_class]
        if any(sharding.way == "place" for legal_shardings in shardings for sharding in legal_shardings):
            self._move_functions.append(self.swap_servers)

    def propose_neighbour(self, point: Point, rng: np.random.Generator) -> Point:
        """Return the point after a random move of a random kind."""
        if not self.free_operators:
            return point
        return self._move_functions[int(rng.integers(len(self._move_functions)))](point, rng)

    def lay_out_operator(self, point: Point, rng: np.random.Generator) -> Point:
        """Return the point with one operator laid out in another way.

        The shape is drawn first, then the servers. Otherwise a table would almost never be cut over all servers, since
        there are many more ways to place it on a single one.
        """
        op_index = _draw_item(self.free_operators, rng)
        other_shardings = [
            [sharding_index for sharding_index in shape if sharding_index != point[op_index]]
            for shape in self._shapes[op_index].values()
        ]
        shapes = [shape for shape in other_shardings if shape]
        return _apply_changes(point, {op_index: _draw_item(_draw_item(shapes, rng), rng)})

    def copy_neighbour_layout(self, point: Point, rng: np.random.Generator) -> Point:
        """Return the point with one operator laid out like one of its producers or consumers."""
        op_index = _draw_item(self.free_operators, rng)
        sharding_indices = self._find_neighbour_layouts(point, op_index)
        return (
            _apply_changes(point, {op_index: _draw_item(sharding_indices, rng)})
            if sharding_indices
            else self.lay_out_operator(point, rng)
        )

    def _find_neighbour_layouts(self, point: Point, op_index: int) -> list[int]:
        """Return the indices of an operator's shardings that equal a neighbour's: nothing is then sent between them."""
        shardings = [self._shardings[neighbour][point[neighbour]] for neighbour in self._neighbours[op_index]]
        sharding_indices = (
            self._sharding_index_of[op_index].get(sharding, point[op_index]) for sharding in shardings
        )
        return [
            sharding_index
            for sharding_index in dict.fromkeys(sharding_indices)
            if sharding_index != point[op_index]
        ]

    def lay_out_run(self, point: Point, rng: np.random.Generator) -> Point:
        """Return the point with up to `MAX_RUN_LENGTH` consecutive operators in one sharding, as far as legal."""
        op_index = _draw_item(self.free_operators, rng)
        sharding = self._shardings[op_index][
            _draw_item(_draw_item(list(self._shapes[op_index].values()), rng), rng)
        ]
        changes: dict[int, int] = {}
        for _ in range(1 + int(rng.integers(MAX_RUN_LENGTH))):
            if sharding not in self._sharding_index_of[op_index]:
                break
            changes[op_index] = self._sharding_index_of[op_index][sharding]
            if op_index not in self._next_operator:
                break
            op_index = self._next_operator[op_index]
        return _apply_changes(point, changes)

    def swap_operators(self, point: Point, rng: np.random.Generator) -> Point:
        """Return the point with the shardings of two operators of a class swapped."""
        members = _draw_item(self._swappable_classes, rng)
        first_index, second_index = rng.choice(len(members), 2, replace=False)
        return _apply_changes(
            point,
            {
                members[first_index]: point[members[second_index]],
                members[second_index]: point[members[first_index]],
            },
        )

    def lay_out_class(self, point: Point, rng: np.random.Generator) -> Point:
        """Return the point with a whole class in one shape. The shape's shardings take turns, in random order."""
        members = _draw_item(self._swappable_classes, rng)
        sharding_indices = _draw_item(list(self._shapes[members[0]].values()), rng)
        order = rng.permutation(len(sharding_indices))
        return _apply_changes(
            point,
            {
                op_index: sharding_indices[int(order[position % len(order)])]
                for position, op_index in enumerate(members)
            },
        )

    def list_layouts(self, point: Point, members: Sequence[int]) -> Iterator[Point]:
        """Yield strategies with a group laid out in each shape of its first member.

        A shape that places operators on single servers comes twice: each operator on the server that sends least so
        far, and all operators on one server. A single operator is also laid out like each of its neighbours. A group is
        also split, see `_split_group`.
        """
        if len(members) == 1:
            yield from (
                _apply_changes(point, {members[0]: sharding_index})
                for sharding_index in self._find_neighbour_layouts(point, members[0])
            )
        yield from self._split_group(point, members)
        for sharding_indices in self._shapes[members[0]].values():
            first_sharding = self._shardings[members[0]][sharding_indices[0]]
            if self._find_home(members[0], sharding_indices[0]) is None:
                yield self._lay_out(point, dict.fromkeys(members, first_sharding))
                continue
            for is_joint in (False, True)[: len(members)]:
                sent_bytes_by_server = self._sum_output_bytes(point, members)
                changes = {}
                for op_index in members:
                    server = min(range(self._nodes), key=sent_bytes_by_server.__getitem__)
                    changes[op_index] = make_placed_sharding((server,))
                    sent_bytes_by_server[server] += 0 if is_joint else self._output_bytes[op_index]
                yield self._lay_out(point, changes)

    def _split_group(self, point: Point, members: Sequence[int]) -> Iterator[Point]:
        """Yield strategies with one member on each server that sends nothing else, and the others in another shape.

        Moves of single operators do not lead there from a group that is cut: each move alone is slower.
        """
        free_servers = [
            server
            for server, sent_bytes in enumerate(self._sum_output_bytes(point, members))
            if not sent_bytes
        ]
        single_placements = [make_placed_sharding((server,)) for server in free_servers]
        if (
            not 0 < len(free_servers) < len(members)
            or single_placements[0] not in self._sharding_index_of[members[0]]
        ):
            return
        for sharding_indices in self._shapes[members[0]].values():
            if self._find_home(members[0], sharding_indices[0]) is None:
                other_layouts = dict.fromkeys(
                    members[len(free_servers) :], self._shardings[members[0]][sharding_indices[0]]
                )
                yield self._lay_out(
                    point, dict(zip(members, single_placements, strict=False)) | other_layouts
                )

    def gather_chains(self, point: Point) -> Iterator[Point]:
        """Yield strategies in which a chain's operators on single servers move to a server of another chain.

        A server that becomes empty gets one cut operator, see `_fill_free_servers`. Neither moves of single operators
        nor `list_layouts` lead there.
        """
        home_by_operator = {
            op_index: self._find_home(op_index, sharding_index)
            for op_index, sharding_index in enumerate(point)
        }
        for chain in self._chains:
            members = [op_index for op_index in chain if home_by_operator[op_index] is not None]
            other_homes = {
                home_by_operator[op_index]
                for other_chain in self._chains
                if other_chain is not chain
                for op_index in other_chain
            }
            for server in sorted({home for home in other_homes if home is not None} if members else ()):
                yield self._fill_free_servers(
                    self._lay_out(point, dict.fromkeys(members, make_placed_sharding((server,))))
                )

    def _fill_free_servers(self, point: Point) -> Point:
        """Return the point with cut operators moved to servers that send nothing else, one operator per server.

        Only classes with both cut and placed operators change.
        """
        for members in self._swappable_classes:
            cut_operators = [
                op_index for op_index in members if self._find_home(op_index, point[op_index]) is None
            ]
            if cut_operators and len(cut_operators) < len(members):
                free_servers = [
                    server
                    for server, sent_bytes in enumerate(self._sum_output_bytes(point, cut_operators))
                    if not sent_bytes
                ]
                single_placements = (make_placed_sharding((server,)) for server in free_servers)
                point = self._lay_out(point, dict(zip(cut_operators, single_placements, strict=False)))
        return point

    def _lay_out(self, point: Point, shardings: dict[int, Sharding]) -> Point:
        """Return the point with these shardings. An operator keeps its old sharding if the new one is not legal."""
        return _apply_changes(
            point,
            {
                op_index: self._sharding_index_of[op_index].get(sharding, point[op_index])
                for op_index, sharding in shardings.items()
            },
        )

    def _sum_output_bytes(self, point: Point, excluded_operators: Sequence[int]) -> list[float]:
        """Return the output bytes per sample of the operators on each server, except `excluded_operators`."""
        sent_bytes_by_server = [0.0] * self._nodes
        for op_index, sharding_index in enumerate(point):
            sharding = self._shardings[op_index][sharding_index]
            if op_index not in excluded_operators and sharding.way == "place":
                for server in sharding.servers:
                    sent_bytes_by_server[server] += self._output_bytes[op_index] / sharding.shards
        return sent_bytes_by_server

    def swap_servers(self, point: Point, rng: np.random.Generator) -> Point:
        """Return the point with the operators placed on two servers exchanged."""
        home_by_operator = {
            op_index: self._find_home(op_index, point[op_index]) for op_index in self.free_operators
        }
        used_servers = sorted({home for home in home_by_operator.values() if home is not None})
        if not used_servers:
            return self.lay_out_operator(point, rng)
        first_server, second_server = _draw_item(used_servers, rng), int(rng.integers(self._nodes))
        exchanged = {first_server: second_server, second_server: first_server}
        changes = {}
        for op_index, home in home_by_operator.items():
            if home in exchanged:
                sharding = make_placed_sharding((exchanged[home],))
                changes[op_index] = self._sharding_index_of[op_index].get(sharding, point[op_index])
        return _apply_changes(point, changes)

    def _find_home(self, op_index: int, sharding_index: int) -> int | None:
        """Return the server of an operator that is placed on a single server, or None."""
        sharding = self._shardings[op_index][sharding_index]
        return sharding.grid[0][0] if sharding.way == "place" and sharding.shards == 1 else None


def group_by_shape(shardings: Sequence[Sharding]) -> dict[Shape, list[int]]:
    """Return the indices of the shardings, grouped by shape."""
    shapes: dict[Shape, list[int]] = {}
    for sharding_index, sharding in enumerate(shardings):
        row = sharding.grid[0]
        is_consecutive = len(row) > 1 and row[-1] - row[0] == len(row) - 1
        shapes.setdefault((sharding.way, sharding.replicas, sharding.shards, is_consecutive), []).append(
            sharding_index
        )
    return shapes


def _group_classes(workload: Workload, free_operators: Sequence[int]) -> list[list[int]]:
    """Return the free operators in classes whose members differ only in name, segment and `backward_reduce_bytes`."""
    classes: dict[Operator, list[int]] = {}
    for op_index in free_operators:
        without_names = replace(workload.operators[op_index], name="", segment=0, backward_reduce_bytes=0)
        classes.setdefault(without_names, []).append(op_index)
    return list(classes.values())


def _find_chains(workload: Workload, free_operators: Sequence[int]) -> list[list[int]]:
    """Return the runs of free operators that each have only the next as consumer, and the previous as producer."""
    producer_counts = Counter(consumer for _, consumer in workload.edges)
    consumer_counts = Counter(producer for producer, _ in workload.edges)
    chains: list[list[int]] = []
    for op_index in free_operators:
        extended_chains = [
            chain
            for chain in chains
            if (chain[-1], op_index) in workload.edges and producer_counts[op_index] == 1
        ]
        if extended_chains and consumer_counts[extended_chains[0][-1]] == 1:
            extended_chains[0].append(op_index)
        else:
            chains.append([op_index])
    return [chain for chain in chains if len(chain) > 1]


def _apply_changes(point: Point, changes: dict[int, int]) -> Point:
    return tuple(changes.get(op_index, sharding_index) for op_index, sharding_index in enumerate(point))


def _draw_item(items: Sequence[Item], rng: np.random.Generator) -> Item:
    return items[int(rng.integers(len(items)))]
