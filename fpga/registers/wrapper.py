"""SystemVerilog wrapper of PeakRDL's register file, with vectors instead of structs: up to two ports per register.

The register file and this wrapper are then flattened into one Verilog module, `NAME_registers`. Its ports are `clk`,
`rst`, `datapath_reset`, the AXI4-Lite signals `s_axil_*`, and for each register that the datapath reads or drives, a
vector of all its words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fpga.registers.model import Access, Register, RegisterMap
from fpga.registers.register_blocks import bit_range
from fpga.registers.text import RESET_SIGNAL, fields_of


@dataclass(frozen=True, slots=True)
class AxiSignal:
    """A signal of AXI4-Lite without its prefix; `driven` is true for outputs of the register file."""

    name: str
    width: int
    driven: bool


@dataclass(frozen=True, slots=True)
class Vector:
    """A port of the register file towards the datapath; `driven` is true for outputs of the register file."""

    name: str
    width: int
    driven: bool

    @property
    def declaration(self) -> str:
        """The declaration of the port in a module header."""
        direction = "output" if self.driven else "input"
        return f"{direction} wire {bit_range(self.width)}{self.name}"


def axi_signals(address_bits: int) -> tuple[AxiSignal, ...]:
    """Return the signals of 32-bit AXI4-Lite, in the order of PeakRDL's `axi4-lite-flat`."""
    request = (("valid", 1, False), ("ready", 1, True))
    channels = {
        "aw": (*request, ("addr", address_bits, False), ("prot", 3, False)),
        "w": (*request, ("data", 32, False), ("strb", 4, False)),
        "b": (("valid", 1, True), ("ready", 1, False), ("resp", 2, True)),
        "ar": (*request, ("addr", address_bits, False), ("prot", 3, False)),
        "r": (("valid", 1, True), ("ready", 1, False), ("data", 32, True), ("resp", 2, True)),
    }
    return tuple(
        AxiSignal(channel + name, width, out)
        for channel, all_of in channels.items()
        for name, width, out in all_of
    )


def vectors(register: Register) -> Iterator[Vector]:
    """Yield the ports of a register: `_o` towards the datapath, `_i` from it, and `_push_o` for a write that acts."""
    bits = register.width * register.words
    if register.access is Access.READ:
        yield Vector(f"{register.name}_i", bits, driven=False)
    elif register.access is not Access.CONSTANT:
        yield Vector(f"{register.name}_o", bits, driven=True)
    if register.access is Access.PUSH:
        yield Vector(f"{register.name}_push_o", 1, driven=True)


def emit_wrapper(table: RegisterMap) -> str:
    """Return the text of the wrapper, which instantiates `NAME_regblock`."""
    ports = ["input wire clk", "input wire rst"]
    ports += [f"input wire {RESET_SIGNAL}"]
    ports += [_axi_port(signal) for signal in axi_signals(table.address_bits)]
    ports += [vector.declaration for register in table for vector in vectors(register)]
    lines = [f"module {table.name}_registers (", ",\n".join(f"  {port}" for port in ports), ");"]
    lines += [f"  {table.name}_regblock_pkg::{table.name}_registers__in_t hwif_in;"]
    lines += [f"  {table.name}_regblock_pkg::{table.name}_registers__out_t hwif_out;"]
    connections = ["clk", "rst", "hwif_in", "hwif_out"]
    connections += [f"s_axil_{signal.name}" for signal in axi_signals(table.address_bits)]
    lines += [f"  {table.name}_regblock registers ({', '.join(f'.{name}({name})' for name in connections)});"]
    lines += [f"  assign hwif_in.{RESET_SIGNAL} = {RESET_SIGNAL};"]
    lines += [f"  {line}" for register in table for line in _connect(register)]
    return "\n".join([*lines, "endmodule"]) + "\n"


def _axi_port(signal: AxiSignal) -> str:
    return f"{'output' if signal.driven else 'input'} wire {bit_range(signal.width)}s_axil_{signal.name}"


def _words(register: Register) -> list[str]:
    if register.words == 1:
        return [register.name]
    return [f"{register.name}[{word}]" for word in range(register.words)]


def _connect(register: Register) -> Iterator[str]:
    words = _words(register)
    if register.access is Access.READ:
        for number, word in enumerate(words):
            span = f"[{number * register.width}+:{register.width}]" if len(words) > 1 else ""
            yield f"assign hwif_in.{word}.VALUE.next = {register.name}_i{span};"
    elif register.access is Access.WRITE:
        values = ", ".join(f"hwif_out.{word}.VALUE.value" for word in reversed(words))
        yield f"assign {register.name}_o = {{{values}}};"
    elif register.access is not Access.CONSTANT:
        yield from _connect_acting(register, words)


def _connect_acting(register: Register, words: list[str]) -> Iterator[str]:
    """Yield the connection of a register that acts on a write: only bits whose byte was written act.

    PeakRDL keeps bits without strobe, even those of a pulse, so a bit from an earlier write would act again.
    """
    *before, last = words
    fields = [(f"hwif_out.{last}.{bits.name}", bits.width) for bits in reversed(fields_of(register))]
    wire = f"{register.name}_written_q"
    # The write is decoded one cycle before the value is available, hence the register.
    yield f"logic {bit_range(len(fields))}{wire};"
    decoded = ", ".join(f"{name}.swmod" for name, _ in fields)
    yield f"always_ff @(posedge clk) {wire} <= rst ? '0 : {{{decoded}}};"
    strobes = [f"{wire}[{place}]" if len(fields) > 1 else wire for place in reversed(range(len(fields)))]
    values = [
        f"{name}.value & {{{width}{{{strobe}}}}}"
        for (name, width), strobe in zip(fields, strobes, strict=True)
    ]
    values += [
        f"hwif_out.{word}.{bits.name}.value"
        for word in reversed(before)
        for bits in reversed(fields_of(register))
    ]
    yield f"assign {register.name}_o = {{{', '.join(values)}}};"
    if register.access is Access.PUSH:
        yield f"assign {register.name}_push_o = |{wire};"
