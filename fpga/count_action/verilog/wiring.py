"""Names of the wires of the generated top, and the wires of references.

`Wiring` names every part of a datapath in SystemVerilog and lists the takers of each stream; other modules write the
text. A `Slice` becomes text only at the end, so that neighbours can merge into one range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from fpga.count_action.arbitration import find_pick_formula
from fpga.count_action.expressions import STORED_OPERATORS, count_bits
from fpga.count_action.graph import Graph
from fpga.count_action.model import (
    FORMULA_PREFIX,
    Count,
    CountKind,
    Datapath,
    Operand,
    Operation,
    Ref,
    SignalKind,
    is_formula_ref,
)
from fpga.count_action.ports import Ports, make_ports
from fpga.count_action.verilog.text import KEYWORDS, concatenate, join_or, write_bit


@dataclass(frozen=True, slots=True)
class Slice:
    """`width` bits from bit `low` of a wire that has `wire_width` bits."""

    wire: str
    wire_width: int
    low: int = 0
    width: int = 1

    def __str__(self) -> str:
        if self.width == self.wire_width:
            return self.wire
        if self.width == 1:
            return f"{self.wire}[{self.low}]"
        return f"{self.wire}[{self.low + self.width - 1}:{self.low}]"


def join_slices(slices: Iterable[Slice]) -> str:
    """Return the concatenation of slices, the first lowest; neighbours in one wire become one range."""
    merged_slices: list[Slice] = []
    for bit_slice in slices:
        previous_slice = merged_slices[-1] if merged_slices else None
        if (
            previous_slice
            and previous_slice.wire == bit_slice.wire
            and previous_slice.low + previous_slice.width == bit_slice.low
        ):
            merged_slices[-1] = Slice(
                bit_slice.wire,
                bit_slice.wire_width,
                previous_slice.low,
                previous_slice.width + bit_slice.width,
            )
        else:
            merged_slices.append(bit_slice)
    return concatenate([str(merged_slice) for merged_slice in merged_slices])


@dataclass(frozen=True, slots=True)
class Source:
    """The signal of a reference: an external input, an output of a module, or a formula."""

    kind: SignalKind
    name: str
    size: int
    lanes: int
    width: int
    signed: bool
    is_external: bool
    formula: str = ""
    """The wire of the formula, if the reference names one."""
    is_buffered: bool = False
    """True if modules read the output of a buffer instead of the port (R20)."""

    @property
    def _port_suffix(self) -> str:
        return "held" if self.is_buffered else "i" if self.is_external else "o"

    def slice_valid_bit(self, index: int) -> Slice:
        """Return the valid bit of stream `index`."""
        return Slice(f"{self.name}_valid_{self._port_suffix}", self.size, index)

    def slice_move_bit(self, index: int) -> Slice:
        """Return the bit that is 1 if a beat of stream `index` moves in this cycle."""
        return Slice(self.move_wire, self.size, index)

    @property
    def move_wire(self) -> str:
        """The wire of moving beats, with a bit for every stream under the name."""
        return f"{self.name}_{'moves' if self.is_external else 'leaves'}"

    def slice_sample(self, index: int, lane: int) -> Slice:
        """Return a sample of a stream, or the flag or number itself."""
        if self.kind is not SignalKind.STREAM:
            return self.slice_value(index)
        signal_width = self.size * self.lanes * self.width
        low = (index * self.lanes + lane) * self.width
        return Slice(f"{self.name}_data_{self._port_suffix}", signal_width, low, self.width)

    def slice_value(self, index: int) -> Slice:
        """Return the flag or number `index`, or the value of a formula."""
        if self.formula:
            return Slice(self.formula, self.size, 0, self.width)
        return Slice(
            f"{self.name}_{self._port_suffix}", self.size * self.width, index * self.width, self.width
        )


@dataclass(frozen=True)
class Wiring:
    """Names of a datapath in SystemVerilog."""

    datapath: Datapath

    @cached_property
    def graph(self) -> Graph:
        """Drivers and readers of signals."""
        return Graph(self.datapath)

    @cached_property
    def ports(self) -> Ports:
        """The ports of the top."""
        return make_ports(self.datapath)

    @cached_property
    def buffered_inputs(self) -> frozenset[str]:
        """Buffered inputs: streams, and the `last` and `keep` of their packets (R20)."""
        streams = {signal.name for signal in self.datapath.inputs if signal.buffered}
        return frozenset(
            signal.name for signal in self.datapath.inputs if {signal.name, signal.part_of} & streams
        )

    @cached_property
    def consumed_streams(self) -> frozenset[tuple[str, str]]:
        """Streams that a module of the datapath takes."""
        return self.datapath.consumed

    @cached_property
    def consumers(self) -> dict[Ref, dict[tuple[str, str], Count]]:
        """Counts that take each stream, by the reference to its lane 0."""
        consumers: dict[Ref, dict[tuple[str, str], Count]] = {}
        for module, count in self.datapath.list_counts():
            for term in count.counted:
                if self.find_source(term).kind is SignalKind.STREAM:
                    stream = Ref(term.name, term.module, term.index)
                    consumers.setdefault(stream, {})[module.name, count.name] = count
        return consumers

    def find_source(self, ref: Ref) -> Source:
        """Return the signal of `ref`. Raise KeyError if there is none."""
        if ref.module is None:
            signal = self.datapath.input(ref.name)
            return Source(
                signal.kind,
                signal.name,
                signal.size,
                signal.lanes,
                signal.width,
                signal.signed,
                is_external=True,
                is_buffered=signal.name in self.buffered_inputs,
            )
        if is_formula_ref(ref):
            width, signed = count_bits(*self.graph.compute_interval(self.graph.find_formula(ref)))
            wire = self.find_value_wire(ref)
            wire_width = self.compute_value_width(ref)
            return Source(
                SignalKind.NUMBER, wire, wire_width, 1, width, signed, is_external=False, formula=wire
            )
        source = self.graph.find_source(ref)
        name = f"{ref.module}_{ref.name}"
        return Source(source.kind, name, 1, source.lanes, source.width, source.signed, is_external=False)

    def find_value_wire(self, ref: Ref) -> str:
        """Return the wire of a formula."""
        return f"value_{ref.module}_{ref.name.removeprefix(FORMULA_PREFIX)}"

    def compute_value_width(self, ref: Ref) -> int:
        """Return the signed width in which a formula is computed: enough for every part of it."""
        return max(_find_widths(self.graph, self.graph.find_formula(ref)))

    def find_move_wire(self, ref: Ref) -> str:
        """Return the wire that is 1 if all beats of a formula move."""
        return f"{self.find_value_wire(ref)}_moves"

    @cached_property
    def _prefixes(self) -> dict[tuple[str, str], str]:
        prefixes: dict[tuple[str, str], str] = {}
        for module, count in self.datapath.list_counts():
            name = plain_name = f"{module.name}_{count.name}"
            number = 2
            while name in prefixes.values():
                name, number = f"{plain_name}_{number}", number + 1
            prefixes[module.name, count.name] = name
        return prefixes

    def find_prefix(self, module: str, count: str) -> str:
        """Return the prefix of the wires of a count: module and count, numbered if two would be equal."""
        return self._prefixes[module, count]

    def find_fire_wire(self, module: str, count: str) -> str:
        """Return the wire that is 1 if the count fires."""
        return f"{self.find_prefix(module, count)}_fire"

    def find_pick_wire(self, module: str, count: Count, stream: Ref) -> Slice:
        """Return the bit that is 1 if a count selects a stream that has a beat (R19)."""
        names = [(term.module, term.name, term.index) for term in count.terms]
        index = names.index((stream.module, stream.name, stream.index))
        return Slice(f"{self.find_prefix(module, count.name)}_picked", len(names), index)

    def find_stall_wire(self, module: str) -> str:
        """Return the wire that is 1 while the module is stalled."""
        return f"{module}_stall"

    def write_ready_condition(self, stream: Ref) -> str:
        """Return the condition that the takers of `stream` are ready: a level count fires, or no module stalls (R7)."""
        consumers = self.consumers.get(stream, {})
        level_conditions = [
            f"{self.find_fire_wire(*key)} && {self.find_pick_wire(key[0], count, stream)}"
            if find_pick_formula(count, stream)
            else self.find_fire_wire(*key)
            for key, count in consumers.items()
            if count.kind is CountKind.LEVEL
        ]
        if len(level_conditions) > 1:
            return join_or(
                f"({condition})" if "&&" in condition else condition for condition in level_conditions
            )
        no_stall_conditions = dict.fromkeys(f"!{self.find_stall_wire(module)}" for module, _ in consumers)
        return " && ".join(level_conditions or no_stall_conditions) or write_bit(1)


def _find_widths(graph: Graph, operand: Operand) -> Iterator[int]:
    low, high = graph.compute_interval(operand)
    yield count_bits(min(low, -1), high)[0]
    if isinstance(operand, Operation) and operand.operator not in STORED_OPERATORS | {"valid"}:
        for part in operand.operands:
            yield from _find_widths(graph, part)


def check_names(wiring: Wiring, blocks: frozenset[str]) -> None:
    """Raise ValueError for names that are keywords, names of `blocks`, duplicate or not valid in SystemVerilog."""
    top_name = wiring.datapath.name
    if top_name in KEYWORDS or top_name in blocks:
        raise ValueError(
            f"{top_name!r} is a SystemVerilog keyword or a block of fpga/rtl. Rename the datapath."
        )
    ports = [port.name for port in (*wiring.ports.inputs, *wiring.ports.outputs)]
    duplicates = sorted(
        {name for name in ["clk_i", "rst_i", *ports] if [*ports, "clk_i", "rst_i"].count(name) > 1}
    )
    if duplicates:
        raise ValueError(
            f"two ports would be named {', '.join(duplicates)}. Rename an input, a module or an output."
        )
    for name in (top_name, *ports):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(
                f"{name!r} is not a valid name in SystemVerilog. Use letters, digits and underscores."
            )
