"""Bit slices of references, and the order in which modules evaluate their stalls."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter

from fpga.count_action.graph import Graph
from fpga.count_action.model import Module, Ref, SignalKind

PartOfModule = tuple[str, str]
"""A module and one of its counts, targets or outputs."""


@dataclass(frozen=True, slots=True)
class BitSlice:
    """`width` bits from bit `low` of an input port, or of a register that an action drives."""

    port: str
    """Name of the port; empty for a register."""
    register: PartOfModule
    low: int
    width: int
    signed: bool = False


def find_sample_slice(graph: Graph, ref: Ref) -> BitSlice:
    """Return the bits of a sample, a flag or a number. Raise KeyError if there is no such signal."""
    shape = graph.find_source(ref)
    is_stream = shape.kind is SignalKind.STREAM
    low = (ref.index * shape.lanes + ref.lane if is_stream else ref.index) * shape.width
    if ref.module is not None:
        return BitSlice("", (ref.module, ref.name), low, shape.width, shape.signed)
    port = f"{ref.name}_data_i" if is_stream else f"{ref.name}_i"
    return BitSlice(port, ("", ref.name), low, shape.width, shape.signed)


def find_valid_slice(ref: Ref) -> BitSlice:
    """Return the valid bit of a stream; for a module's stream it is a separate register."""
    if ref.module is not None:
        return BitSlice("", (ref.module, ref.name), 0, 1)
    return BitSlice(f"{ref.name}_valid_i", ("", ref.name), ref.index, 1)


def sort_by_stalls(graph: Graph) -> tuple[Module, ...]:
    """Return the modules, each after the modules that read its streams.

    Stalls travel upstream (R7), so the readers are evaluated first. Raise ValueError if streams form a cycle.
    """
    consumers: dict[str, list[str]] = {module.name: [] for module in graph.datapath.modules}
    for (driver, _, _), counts in graph.consumers.items():
        if driver is not None:
            consumers[driver].extend(module.name for module, _ in counts)
    return tuple(graph.datapath.module(name) for name in TopologicalSorter(consumers).static_order())


def find_driven_streams(module: Module) -> tuple[PartOfModule, ...]:
    """Return the streams that a module drives."""
    return tuple((module.name, action.output) for action in module.list_streams())
