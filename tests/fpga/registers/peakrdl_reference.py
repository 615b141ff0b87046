"""PeakRDL's register file of a map, with the ports of ours: a second opinion about its SystemRDL."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from peakrdl_regblock import RegblockExporter
from peakrdl_regblock.cpuif.axi4lite import AXI4Lite_Cpuif_flattened
from peakrdl_regblock.udps import ALL_UDPS
from systemrdl import RDLCompiler

from fpga.registers.model import Access, Register, RegisterMap
from fpga.registers.register_blocks import format_bit_range
from fpga.registers.register_ports import declare_port, list_axi_signals, list_vectors
from fpga.registers.text import list_fields, to_rdl


def reference_sources(table: RegisterMap) -> tuple[tuple[str, str], ...]:
    """Return the sources of `NAME_registers` as PeakRDL makes it."""
    with tempfile.TemporaryDirectory(prefix="registers-") as name:
        folder = Path(name)
        (folder / "registers.rdl").write_text(to_rdl(table), encoding="ascii")
        rdl = RDLCompiler()
        for extension in ALL_UDPS:
            rdl.register_udp(extension)
        rdl.compile_file(str(folder / "registers.rdl"))
        RegblockExporter().export(
            rdl.elaborate(),
            str(folder),
            cpuif_cls=AXI4Lite_Cpuif_flattened,
            module_name=f"{table.name}_regblock",
            package_name=f"{table.name}_regblock_pkg",
            address_width=table.address_width,
        )
        files = [f"{table.name}_regblock_pkg.sv", f"{table.name}_regblock.sv"]
        sources = [(file, (folder / file).read_text(encoding="utf-8")) for file in files]
    return (*sources, (f"{table.name}_registers.sv", _wrapper(table)))


def _wrapper(table: RegisterMap) -> str:
    """Return the module that has vectors for the structs of PeakRDL."""
    signals = list_axi_signals(table.address_width)
    ports = [declare_port(name, 1, is_output=False) for name in ("clk_i", "rst_i", "datapath_reset_i")]
    ports += [declare_port(f"s_axil_{each.name}", each.width, is_output=each.is_output) for each in signals]
    ports += [vector.declaration for register in table for vector in list_vectors(register)]
    package = f"{table.name}_regblock_pkg::{table.name}_registers"
    axi = "".join(f", .s_axil_{each.name}" for each in signals)
    lines = [
        f"module {table.name}_registers ({', '.join(ports)});",
        f"  {package}__in_t hwif_in;",
        f"  {package}__out_t hwif_out;",
        f"  {table.name}_regblock registers (.clk(clk_i), .rst(rst_i), .hwif_in, .hwif_out{axi});",
        "  assign hwif_in.datapath_reset = datapath_reset_i;",
        *(f"  {line}" for register in table for line in _connect(register)),
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _words(register: Register) -> list[str]:
    if register.word_count == 1:
        return [register.name]
    return [f"{register.name}[{word}]" for word in range(register.word_count)]


def _connect(register: Register) -> Iterator[str]:
    words, signal = _words(register), register.signal_bit_count or register.bit_count
    whole = f"{register.name}_whole"
    if register.access is not Access.CONSTANT:
        yield f"wire {format_bit_range(register.bit_count)}{whole};"
    if register.access is Access.READ:
        yield f"assign {whole} = {register.bit_count}'({register.name}_i);"
        for number, word in enumerate(words):
            span = f"[{number * register.width}+:{register.width}]" if len(words) > 1 else ""
            yield f"assign hwif_in.{word}.VALUE.next = {whole}{span};"
    elif register.access is Access.WRITE:
        yield f"assign {whole} = {{{', '.join(f'hwif_out.{word}.VALUE.value' for word in reversed(words))}}};"
        yield f"assign {register.name}_o = {signal}'({whole});"
    elif register.access is not Access.CONSTANT:
        yield from _connect_acting(register, words)
        yield f"assign {register.name}_o = {signal}'({whole});"


def _connect_acting(register: Register, words: list[str]) -> Iterator[str]:
    """Yield the connection of a register that acts on a write: only bits whose byte was written act.

    PeakRDL keeps bits without strobe, even those of a pulse, so a bit from an earlier write would act again.
    """
    *before, last = words
    fields = [(f"hwif_out.{last}.{bits.name}", bits.width) for bits in reversed(list_fields(register))]
    wire = f"{register.name}_written_q"
    # The write is decoded one cycle before the value is available, hence the register.
    yield f"logic {format_bit_range(len(fields))}{wire};"
    decoded = ", ".join(f"{name}.swmod" for name, _ in fields)
    yield f"always_ff @(posedge clk_i) {wire} <= rst_i ? '0 : {{{decoded}}};"
    strobes = [f"{wire}[{place}]" if len(fields) > 1 else wire for place in reversed(range(len(fields)))]
    values = [
        f"{name}.value & {{{width}{{{strobe}}}}}"
        for (name, width), strobe in zip(fields, strobes, strict=True)
    ]
    values += [
        f"hwif_out.{word}.{bits.name}.value"
        for word in reversed(before)
        for bits in reversed(list_fields(register))
    ]
    yield f"assign {register.name}_whole = {{{', '.join(values)}}};"
    if register.access is Access.PUSH:
        yield f"assign {register.name}_push_o = |{wire};"
