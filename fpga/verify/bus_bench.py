"""Test bench for a delivered top: random accesses to its registers and random beats, with a log of every cycle.

The datapath inside is replaced by one with the same ports and random outputs, so that every path between it and the
pins of the top is exercised. The bench logs the pins of the top in every cycle, and the random datapath its own ports.
Delivered files must keep only the names of the top, of the datapath and of their ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Port, list_end_signal_actions, make_ports
from fpga.registers.model import RegisterMap
from fpga.registers.register_blocks import format_bit_range
from fpga.registers.register_ports import list_axi_signals
from fpga.verify.accesses import ReadAccess, WriteAccess

BEGIN_CYCLE = 12
"""The first cycle in which the bench drives inputs, after the bus reset."""
MAX_PAUSE_CYCLES = 24
"""Largest number of cycles for which outputs of the random datapath stay constant."""
PATIENCE_CYCLES = 64
"""Largest number of cycles for which a ready waits for its valid. It waits in one of four answers or beats."""
_SPELL_CYCLES = 24
"""Cycles of an occasional pause in which the random datapath takes no beats."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin of a top; the bench drives its inputs."""

    name: str
    width: int
    is_driven: bool


@dataclass(frozen=True, slots=True)
class StreamPins:
    """An AXI-Stream port: its pins besides `tvalid` and `tready`, and whether it is an input of the top."""

    prefix: str
    payload: tuple[Pin, ...]
    is_input: bool


def write_random_datapath(datapath: Datapath, seed: int = 0) -> str:
    """Return the text of a module with the ports of the datapath and random outputs, which writes `datapath.log`."""
    ports = make_ports(datapath)
    streams = [port.name[: -len("_valid_o")] for port in ports.outputs if port.name.endswith("_valid_o")]
    beat_ports = {
        name: [f"{name}_data_o", *end_ports] for name, end_ports in _find_end_ports(datapath).items()
    }
    stream_ports = {f"{name}_valid_o" for name in streams} | {
        port for stream_beat_ports in beat_ports.values() for port in stream_beat_ports
    }
    lines = [f"module {datapath.name} (", "  input  logic clk_i,", "  input  logic rst_i,"]
    lines += [f"  input  logic [{port.width - 1}:0] {port.name}," for port in ports.inputs]
    lines += [
        ",\n".join(f"  output logic [{port.width - 1}:0] {port.name}" for port in ports.outputs),
        ");",
        "  integer log, left, spell, seed;",
        '  initial begin log = $fopen("datapath.log", "w"); left = 0; spell = 0;',
        f"    seed = {7 + 1000 * seed}; end",
        "  always @(posedge clk_i) begin",
        f"    $fdisplay(log, {_write_arguments(['rst_i', *(port.name for port in (*ports.inputs, *ports.outputs))])});",
    ]
    input_names = {port.name for port in ports.inputs}
    for name in streams:
        ready = f"{name}_ready_i" if f"{name}_ready_i" in input_names else "1'b1"
        lines += [
            f"    if (rst_i) {name}_valid_o <= '0;",
            f"    else if (!{name}_valid_o || {ready}) begin",
            f"      {name}_valid_o <= {_write_random(1)};",
            *(
                f"      {port} <= {_write_random(ports.find_output(port).width)};"
                for port in beat_ports[name]
            ),
            "    end",
        ]
    # Now and then every ready is 0 for a spell, so that beats pile up in front of the datapath.
    ready_ports = [port for port in ports.outputs if port.name.endswith("_ready_o")]
    lines.append(f"    spell <= spell > 0 ? spell - 1 : $urandom(seed) % 40 == 0 ? {_SPELL_CYCLES} : 0;")
    lines += [f"    {port.name} <= spell > 0 ? '0 : {_write_random(port.width)};" for port in ready_ports]
    lines += [
        "    left <= left - 1;",
        f"    if (left <= 0) begin left <= $urandom(seed) % {MAX_PAUSE_CYCLES};",
    ]
    other_outputs = [
        port for port in ports.outputs if port.name not in stream_ports and port not in ready_ports
    ]
    lines += [f"      {port.name} <= {_write_random(port.width)};" for port in other_outputs]
    initial_assignments = [f"{port.name} = '0;" for port in ports.outputs]
    return "\n".join(
        [*lines, "    end", "  end", f"  initial begin {' '.join(initial_assignments)} end", "endmodule", ""]
    )


def _find_end_ports(datapath: Datapath) -> dict[str, list[str]]:
    """Return the ports for `last` and `keep` of each output stream."""
    return {
        f"{module.name}_{action.output}": [
            f"{module.name}_{end.output}_o" for _, end in list_end_signal_actions(module, action.output)
        ]
        for module in datapath.modules
        for action in module.list_streams()
    }


def _write_random(width: int) -> str:
    words = ", ".join(["$urandom(seed)"] * -(-width // 32))
    return f"{{{words}}}"


def _write_arguments(names: Iterable[str]) -> str:
    columns = list(names)
    return ", ".join([f'"{" ".join(["%h"] * len(columns))}"', *columns])


def list_datapath_log_ports(datapath: Datapath) -> tuple[Port, ...]:
    """Return the ports in `datapath.log`, whose columns follow the column of the reset."""
    ports = make_ports(datapath)
    return (*ports.inputs, *ports.outputs)


def write_bench(
    register_map: RegisterMap,
    streams: Iterable[StreamPins],
    writes: list[WriteAccess],
    reads: list[ReadAccess],
    cycle_count: int,
    seed: int = 0,
) -> str:
    """Return the text of the bench of a top, with the given accesses and random delays on each channel."""
    axi_pins = [
        Pin(f"s_axi_{axi_signal.name}", axi_signal.width, not axi_signal.is_output)
        for axi_signal in list_axi_signals(register_map.address_width)
    ]
    stream_list = list(streams)
    pins = [*axi_pins, *(pin for stream in stream_list for pin in _list_pins(stream))]
    lines = ["`timescale 1ns / 1ps", "module bench;", "  logic aclk, aresetn;"]
    lines += [
        f"  {'logic' if pin.is_driven else 'wire'} {format_bit_range(pin.width)}{pin.name};" for pin in pins
    ]
    names = ["aclk", "aresetn", *(pin.name for pin in pins)]
    lines.append(f"  {register_map.name} top ({', '.join(f'.{name}({name})' for name in names)});")
    lines += _write_memories(writes, reads)
    lines += [
        "  integer log, cycle, seed, aw, w, b, ar, r, aw_wait, w_wait, ar_wait, busy;",
        "  initial begin",
    ]
    lines += [f"    {pin.name} = '0;" for pin in pins if pin.is_driven]
    lines += [
        '    log = $fopen("top.log", "w");',
        f"    seed = {3 + 1000 * seed}; aclk = 0; aresetn = 0; busy = 8;",
        *(f"    {name}_patient = 1; {name}_low = 0;" for name in _list_ready_channels(stream_list)),
        "    aw = 0; w = 0; b = 0; ar = 0; r = 0; aw_wait = 2; w_wait = 0; ar_wait = 5;",
        f"    for (cycle = 0; cycle < {cycle_count}; cycle = cycle + 1) begin",
        "      if (cycle == 4) aresetn = 1;",
        "      if (cycle % 64 == 0) busy = 1 + $urandom(seed) % 16;",
        f"      if (cycle >= {BEGIN_CYCLE}) begin",
        *(f"        {line}" for line in _write_drive_statements(stream_list, len(writes), len(reads))),
        "      end",
        f"      #1 $fdisplay(log, {_write_arguments(['aresetn', *(pin.name for pin in pins)])});",
        "      #1 aclk = 1; #1 aclk = 0;",
        *(f"      {line}" for line in _write_handshakes(stream_list)),
        "    end",
        "    $finish(0);",
        "  end",
    ]
    lines += [f"  integer {name}_patient, {name}_low;" for name in _list_ready_channels(stream_list)]
    # Handshakes are sampled at the edge, because the pins change after it.
    lines += [f"  reg {name}_moves;" for name in _list_channels(stream_list)]
    lines.append("  always @(posedge aclk) begin")
    lines += [
        f"    {name}_moves = {valid} && {ready};"
        for name, (valid, ready) in _list_channels(stream_list).items()
    ]
    return "\n".join([*lines, "  end", "endmodule", ""])


def list_top_log_pins(register_map: RegisterMap, streams: Iterable[StreamPins]) -> list[str]:
    """Return the pins in the columns of `top.log`."""
    axi_names = [f"s_axi_{axi_signal.name}" for axi_signal in list_axi_signals(register_map.address_width)]
    return ["aresetn", *axi_names, *(pin.name for stream in streams for pin in _list_pins(stream))]


def _list_pins(stream: StreamPins) -> list[Pin]:
    return [
        Pin(f"{stream.prefix}_tvalid", 1, stream.is_input),
        Pin(f"{stream.prefix}_tready", 1, not stream.is_input),
        *stream.payload,
    ]


def _write_memories(writes: list[WriteAccess], reads: list[ReadAccess]) -> Iterator[str]:
    yield f"  reg [103:0] writes[0:{max(len(writes) - 1, 0)}];"
    yield f"  reg [63:0] reads[0:{max(len(reads) - 1, 0)}];"
    yield '  initial begin $readmemh("writes.hex", writes); $readmemh("reads.hex", reads); end'


def write_memory_files(writes: list[WriteAccess], reads: list[ReadAccess]) -> dict[str, str]:
    """Return the memory files of the bench by name: waits, address, data and strobes of each access."""
    write_lines = (
        f"{write.address_wait_cycles:04x}{write.data_wait_cycles:04x}{write.address:08x}{write.data:08x}{write.strobes:02x}\n"
        for write in writes
    )
    read_lines = (f"{read.wait_cycles:08x}{read.address:08x}\n" for read in reads)
    return {"writes.hex": "".join(write_lines), "reads.hex": "".join(read_lines)}


def _list_channels(streams: Iterable[StreamPins]) -> dict[str, tuple[str, str]]:
    names = {f"s_axi_{channel}": ("valid", "ready") for channel in ("aw", "w", "b", "ar", "r")}
    names |= {f"{stream.prefix}_t": ("valid", "ready") for stream in streams}
    return {name: (f"{name}{valid}", f"{name}{ready}") for name, (valid, ready) in names.items()}


def _write_drive_statements(
    streams: Iterable[StreamPins], write_count: int, read_count: int
) -> Iterator[str]:
    """Yield the statements that drive the pins at the start of a cycle; a valid stays until its ready."""
    for name, number in (("aw", write_count), ("w", write_count), ("ar", read_count)):
        source = "reads[ar]" if name == "ar" else f"writes[{name}]"
        wait_slice = {"aw": "[103:88]", "w": "[87:72]", "ar": "[63:32]"}[name]
        yield f"if (!s_axi_{name}valid && {name} < {number}) begin"
        yield f"  if ({name}_wait >= {source}{wait_slice}) begin s_axi_{name}valid = 1;"
        if name == "w":
            yield f"    s_axi_wdata = {source}[39:8]; s_axi_wstrb = {source}[3:0];"
        else:
            yield f"    s_axi_{name}addr = {source}{'[31:0]' if name == 'ar' else '[71:40]'};"
        yield f"  end else {name}_wait = {name}_wait + 1;"
        yield "end"
    for name in ("s_axi_b", "s_axi_r"):
        yield from _write_ready_statements(name, "$urandom(seed) % 4 != 0")
    for stream in streams:
        if stream.is_input:
            yield f"if (!{stream.prefix}_tvalid && $urandom(seed) % 16 < busy) begin"
            yield f"  {stream.prefix}_tvalid = 1;"
            yield from (f"  {pin.name} = {_write_random(pin.width)};" for pin in stream.payload)
            yield "end"
        else:
            yield from _write_ready_statements(f"{stream.prefix}_t", "$urandom(seed) % 16 >= busy / 2")


def _list_ready_channels(streams: Iterable[StreamPins]) -> list[str]:
    """Return the channels on which the bench drives ready."""
    return ["s_axi_b", "s_axi_r", *(f"{stream.prefix}_t" for stream in streams if not stream.is_input)]


def _write_ready_statements(name: str, condition: str) -> Iterator[str]:
    """Yield the statements for a ready. It sometimes waits for its valid, which must not wait for ready."""
    yield f"if ({name}_patient && !{name}valid && {name}_low < {PATIENCE_CYCLES}) begin"
    yield f"  {name}ready = 0; {name}_low = {name}_low + 1;"
    yield f"end else {name}ready = {condition};"


def _write_handshakes(streams: Iterable[StreamPins]) -> Iterator[str]:
    """Yield the statements that react to the handshakes of a cycle."""
    stream_list = list(streams)
    for name in _list_ready_channels(stream_list):
        yield f"if ({name}_moves) begin {name}_patient = $urandom(seed) % 4 == 0; {name}_low = 0; end"
    for name in ("aw", "w", "ar"):
        yield f"if (s_axi_{name}_moves) begin s_axi_{name}valid = 0; {name} = {name} + 1; {name}_wait = 0; end"
    for stream in stream_list:
        if stream.is_input:
            yield f"if ({stream.prefix}_t_moves) {stream.prefix}_tvalid = 0;"
