"""A place for every tensor of activations, from when it is made to when it is last read, in as few bytes as can be.

Placed by size, the largest first, each into the smallest gap that is free all its life: "greedy by size for offset
calculation" of Y. Pisarchyk and J. Lee, "Efficient memory management for deep neural net inference" (MLSys 2020
workshop, arXiv:2001.03288).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from lightning.compiler.model import CompiledModel
from lightning.networks.network import Network

ALIGNMENT = 64
"""Bytes: a row of 16 activations of float32, or two of the published datapath's words."""
_SAME_BYTES = frozenset({"Flatten", "Reshape"})


@dataclass(frozen=True, slots=True)
class Buffer:
    """Room for one tensor, and for those that only see its values in another shape."""

    tensors: tuple[str, ...]
    size: int
    """Bytes, a multiple of `ALIGNMENT`."""
    first: int
    """The node that writes it; -1: there from the start."""
    last: int
    """The node that is the last to read it; the number of nodes: the answer."""
    offset: int = 0

    def meets(self, other: Buffer) -> bool:
        """Return whether both are alive at one time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Buffers and their places."""

    buffers: tuple[Buffer, ...]

    @property
    def size(self) -> int:
        """Bytes that all of it takes."""
        return max((each.offset + each.size for each in self.buffers), default=0)

    @property
    def unshared(self) -> int:
        """Bytes that it would take if every buffer had its own."""
        return sum(each.size for each in self.buffers)


def memory_plan(model: CompiledModel) -> MemoryPlan:
    """Plan the memory for the activations of one image: float32, or 16-bit sums in the `published` scheme."""
    return plan_memory(buffers_of(model.network, 2 if model.shift_normalised else 4))


def buffers_of(network: Network, width: int) -> tuple[Buffer, ...]:
    """Return every tensor of activations with its life, `width` bytes a value; not placed yet."""
    owner = _owners(network)
    lives: dict[str, tuple[int, int]] = {network.input: (-1, -1)}
    members: dict[str, list[str]] = {network.input: [network.input]}
    for place, node in enumerate(network.nodes):
        for name in {owner[name] for name in node.inputs if name in owner}:
            lives[name] = (lives[name][0], place)
        if owner[node.output] == node.output:
            lives[node.output] = (place, place)
        members.setdefault(owner[node.output], []).append(node.output)
    answer = owner[network.output]
    lives[answer] = (lives[answer][0], len(network.nodes))
    return tuple(
        Buffer(tuple(members[name]), _round_up(prod(network.shapes[name]) * width), *life)
        for name, life in lives.items()
    )


def plan_memory(buffers: Iterable[Buffer]) -> MemoryPlan:
    """Return the plan, in the order in which buffers are written."""
    done: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda each: (-each.size, each.first, each.tensors)):
        neighbours = sorted((each for each in done if each.meets(buffer)), key=lambda each: each.offset)
        done.append(replace(buffer, offset=_gap(neighbours, buffer.size)))
    return MemoryPlan(tuple(sorted(done, key=lambda each: (each.first, each.offset))))


def _gap(neighbours: list[Buffer], size: int) -> int:
    """Return the start of the smallest gap between neighbours, sorted by their offsets, that holds `size` bytes."""
    end, gaps = 0, []
    for each in neighbours:
        if each.offset - end >= size:
            gaps.append((each.offset - end, end))
        end = max(end, each.offset + each.size)
    return min(gaps)[1] if gaps else end


def _owners(network: Network) -> dict[str, str]:
    """Return for every tensor the one in whose bytes it lies."""
    owner = {network.input: network.input}
    for node in network.nodes:
        is_view = node.operation in _SAME_BYTES and node.inputs[0] in owner
        owner[node.output] = owner[node.inputs[0]] if is_view else node.output
    return owner


def _round_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
