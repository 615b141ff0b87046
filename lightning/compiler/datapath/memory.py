"""Memory plan of the activations: each tensor has memory from its first write to its last read.

Buffers are placed largest first, each in the smallest gap that is free for its whole lifetime. The method is "greedy by
size for offset calculation" of Y. Pisarchyk and J. Lee, "Efficient memory management for deep neural net inference"
(MLSys 2020 workshop, arXiv:2001.03288).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from lightning.compiler.model import CompiledModel
from lightning.networks.network import Network

ALIGNMENT = 64
"""Alignment in bytes: 16 activations of float32, or two words of the published datapath."""
_VIEW_OPERATIONS = frozenset({"Flatten", "Reshape"})


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of one tensor, and of tensors that hold the same bytes in another shape."""

    tensors: tuple[str, ...]
    size: int
    """Size in bytes, a multiple of `ALIGNMENT`."""
    first: int
    """Index of the node that writes the buffer; -1 for the network's input."""
    last: int
    """Index of the last node that reads the buffer; the number of nodes for the network's output."""
    offset: int = 0

    def overlaps(self, other: Buffer) -> bool:
        """Return whether the lifetimes of both buffers overlap."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Placed buffers."""

    buffers: tuple[Buffer, ...]

    @property
    def size_bytes(self) -> int:
        """Total size in bytes."""
        return max((buffer.offset + buffer.size for buffer in self.buffers), default=0)

    @property
    def unshared_bytes(self) -> int:
        """Total size in bytes if no buffers shared memory."""
        return sum(buffer.size for buffer in self.buffers)


def memory_plan(model: CompiledModel) -> MemoryPlan:
    """Plan the memory for the activations of one image: float32, or 16-bit sums in the `published` scheme."""
    return plan_memory(find_buffers(model.network, 2 if model.shift_normalised else 4))


def find_buffers(network: Network, bytes_per_value: int) -> tuple[Buffer, ...]:
    """Return the buffers of all activations with their lifetimes, without offsets."""
    owner_by_tensor = _find_owners(network)
    lifetime_by_owner: dict[str, tuple[int, int]] = {network.input: (-1, -1)}
    tensors_by_owner: dict[str, list[str]] = {network.input: [network.input]}
    for index, node in enumerate(network.nodes):
        for name in {owner_by_tensor[name] for name in node.inputs if name in owner_by_tensor}:
            lifetime_by_owner[name] = (lifetime_by_owner[name][0], index)
        if owner_by_tensor[node.output] == node.output:
            lifetime_by_owner[node.output] = (index, index)
        tensors_by_owner.setdefault(owner_by_tensor[node.output], []).append(node.output)
    output_owner = owner_by_tensor[network.output]
    lifetime_by_owner[output_owner] = (lifetime_by_owner[output_owner][0], len(network.nodes))
    return tuple(
        Buffer(
            tuple(tensors_by_owner[name]), _round_up(prod(network.shapes[name]) * bytes_per_value), *lifetime
        )
        for name, lifetime in lifetime_by_owner.items()
    )


def plan_memory(buffers: Iterable[Buffer]) -> MemoryPlan:
    """Place the buffers. The plan lists them in the order of their first writes."""
    placed_buffers: list[Buffer] = []
    for buffer in sorted(
        buffers, key=lambda candidate: (-candidate.size, candidate.first, candidate.tensors)
    ):
        overlapping_buffers = sorted(
            (neighbour for neighbour in placed_buffers if neighbour.overlaps(buffer)),
            key=lambda neighbour: neighbour.offset,
        )
        placed_buffers.append(replace(buffer, offset=_find_gap(overlapping_buffers, buffer.size)))
    return MemoryPlan(tuple(sorted(placed_buffers, key=lambda placed: (placed.first, placed.offset))))


def _find_gap(overlapping_buffers: list[Buffer], size: int) -> int:
    """Return the start of the smallest gap of at least `size` bytes between sorted neighbours, else their end."""
    end, gaps = 0, []
    for neighbour in overlapping_buffers:
        if neighbour.offset - end >= size:
            gaps.append((neighbour.offset - end, end))
        end = max(end, neighbour.offset + neighbour.size)
    return min(gaps)[1] if gaps else end


def _find_owners(network: Network) -> dict[str, str]:
    """Return for every tensor the tensor that owns its bytes."""
    owner_by_tensor = {network.input: network.input}
    for node in network.nodes:
        is_view = node.operation in _VIEW_OPERATIONS and node.inputs[0] in owner_by_tensor
        owner_by_tensor[node.output] = owner_by_tensor[node.inputs[0]] if is_view else node.output
    return owner_by_tensor


def _round_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
