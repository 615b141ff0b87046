"""The tops that go on a board: a datapath with its registers on AXI4-Lite, and its streams behind a portal of
registers (`NAME_axi`) or on AXI-Stream ports (`NAME_axis`).

Ports are named as block-design tools expect them: `aclk`, `aresetn`, `s_axi_*`, `s_axis_*`, `m_axis_*`. Inside,
`dp_*` are the ports of the datapath, and `*_i`, `*_o` with the name of a register those of the register file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from fpga.count_action.model import ActionKind, Datapath, SignalKind
from fpga.count_action.ports import consumed_streams, ports_of
from fpga.registers.axi_portal import portal_parts
from fpga.registers.axi_stream import axi_stream_parts
from fpga.registers.blocks import Part, bit_range, concatenated, cut, instance, joined, padded, rest
from fpga.registers.layout import Streams, effects, register_map
from fpga.registers.table import RegisterMap
from fpga.registers.text import RESET_SIGNAL
from fpga.registers.wrapper import axi_signals, vectors

_RTL = Path(__file__).resolve().parent.parent / "rtl"


def portal_files(streams: Streams) -> tuple[Path, ...]:
    """The hand-written blocks that a top needs beside those of its datapath."""
    needed = "portal_*.sv" if streams is Streams.REGISTERS else "portal_pulses.sv"
    return tuple(sorted(_RTL.glob(needed)))


def top_name(datapath: Datapath, streams: Streams) -> str:
    """Module name of a top."""
    return f"{datapath.name}_{'axi' if streams is Streams.REGISTERS else 'axis'}"


def top_table(datapath: Datapath, streams: Streams) -> RegisterMap:
    """The registers of a top, in a module named after it."""
    table = register_map(datapath, streams)
    return RegisterMap(top_name(datapath, streams), table.digest, table.registers)


def emit_top(datapath: Datapath, streams: Streams) -> str:
    """SystemVerilog of one top. It needs the datapath, its blocks, `portal_files` and the register file.

    Raises ValueError when two of its ports would have one name.
    """
    table = top_table(datapath, streams)
    outside = portal_parts(datapath, table) if streams is Streams.REGISTERS else axi_stream_parts(datapath)
    streams_part = joined(outside)
    levels = joined((_control(datapath, table), *_inputs(datapath, table), *_effects(datapath, table)))
    ports = ["input  wire aclk", "input  wire aresetn", *_axi_ports(table), *streams_part.ports]
    _check_distinct(table.name, ports)
    blocks = (
        _wires(datapath, table),
        levels.body,
        streams_part.body,
        _register_file(table),
        _datapath(datapath),
        _unused((*levels.unused, *streams_part.unused)),
    )
    return "\n".join(_lines(datapath, table, ports, blocks)) + "\n"


def _lines(
    datapath: Datapath, table: RegisterMap, ports: list[str], blocks: Iterable[Iterable[str]]
) -> Iterator[str]:
    yield f"// {datapath.name} (hash {table.digest:08x}) with its registers on AXI4-Lite. Generated."
    yield f"module {table.name} ("
    yield ",\n".join(f"  {port}" for port in ports)
    yield ");"
    for block in blocks:
        yield ""
        yield from (f"  {line}" for line in block)
    yield from ("", "endmodule")


def _check_distinct(top: str, ports: list[str]) -> None:
    for name, times in Counter(port.split()[-1] for port in ports).items():
        if times > 1:
            raise ValueError(
                f"{top} would have two ports {name}: streams are numbered under a name. Rename one."
            )


def _axi_ports(table: RegisterMap) -> Iterator[str]:
    for signal in axi_signals(table.address_bits):
        direction = "output" if signal.driven else "input "
        yield f"{direction} wire {bit_range(signal.width)}s_axi_{signal.name}"


def _wires(datapath: Datapath, table: RegisterMap) -> Iterator[str]:
    for register in table:
        for vector in vectors(register):
            yield f"wire {bit_range(vector.width)}{vector.name};"
    ports = ports_of(datapath)
    for port in (*ports.inputs, *ports.outputs):
        yield f"wire {bit_range(port.width)}dp_{port.name};"
    yield "wire reset = !aresetn;"
    # CONTROL.RESET is as good as aresetn, for all but the bus itself.
    yield f"wire {RESET_SIGNAL} = reset || {table['CONTROL',].name}_o[2];"


def _control(datapath: Datapath, table: RegisterMap) -> Part:
    """Targets and COMMIT, counts and status."""
    targets = (table["TARGET", module.name, target.name] for module, target in datapath.targets())
    counts = (table["COUNT", module.name, count.name] for module, count in datapath.counts())
    inner = [
        f"dp_{module}_{name}_{part}_o"
        for module, name in sorted(consumed_streams(datapath))
        for part in ("valid", "data")
    ]
    spare = table["OVERSHOOT",].words * table["OVERSHOOT",].width - sum(1 for _ in datapath.counts())
    return Part(
        body=(
            f"assign dp_target_shadow_i = {concatenated(f'{each.name}_o' for each in targets)};",
            "assign dp_commit_i = CONTROL_o[0];",
            "assign dp_clear_status_i = CONTROL_o[1];",
            f"assign OVERSHOOT_i = {padded('dp_overshoot_o', spare)};",
            f"assign SATURATED_i = {padded('dp_saturated_o', spare)};",
            f"assign {concatenated(f'{each.name}_i' for each in counts)} = dp_count_o;",
        ),
        unused=("dp_fire_o", *inner),
    )


def _inputs(datapath: Datapath, table: RegisterMap) -> Iterator[Part]:
    """Flags and numbers that the driver sets."""
    for signal in datapath.inputs:
        if signal.kind is not SignalKind.STREAM:
            register = table["IN", signal.name]
            whole, bits = register.words * register.width, signal.size * signal.width
            line = f"assign dp_{signal.name}_i = {cut(f'{register.name}_o', whole, bits)};"
            yield Part(body=(line,), unused=rest(f"{register.name}_o", whole, bits))


def _effects(datapath: Datapath, table: RegisterMap) -> Iterator[Part]:
    """Pulses, flags and numbers that the datapath drives."""
    for module, name, kind, _ in effects(datapath):
        source, sink = f"dp_{module}_{name}_o", f"{table['OUT', module, name].name}_i"
        if kind is ActionKind.PULSE:
            ports = {"clk_i": "aclk", "rst_i": RESET_SIGNAL, "pulse_i": source, "pulses_o": sink}
            yield Part(body=tuple(instance("portal_pulses", f"pulses_{module}_{name}", ports)))
        else:
            yield Part(body=(f"assign {sink} = {source};",))


def _register_file(table: RegisterMap) -> Iterator[str]:
    ports = {"clk": "aclk", "rst": "reset", RESET_SIGNAL: RESET_SIGNAL}
    ports |= {f"s_axil_{each.name}": f"s_axi_{each.name}" for each in axi_signals(table.address_bits)}
    ports |= {vector.name: vector.name for register in table for vector in vectors(register)}
    return instance(f"{table.name}_registers", "registers", ports)


def _datapath(datapath: Datapath) -> Iterator[str]:
    ports = ports_of(datapath)
    names = {port.name: f"dp_{port.name}" for port in (*ports.inputs, *ports.outputs)}
    return instance(datapath.name, "datapath", {"clk_i": "aclk", "rst_i": RESET_SIGNAL, **names})


def _unused(bits: Iterable[str]) -> Iterator[str]:
    yield "// Not on the bus, or more bits than the datapath has."
    yield f"wire unused = ^{{{', '.join(bits)}}};"
