"""The generated top-level module: ports, targets, streams, modules and status outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fpga.count_action.actions import samples_every_cycle
from fpga.count_action.arbitration import find_arbitrating_counts
from fpga.count_action.model import FORMULA_PREFIX, Action, Datapath, Module, Ref, Signal, SignalKind
from fpga.count_action.ports import Port, list_buffer_ports
from fpga.count_action.verilog.actions import write_action
from fpga.count_action.verilog.counts import find_move_bit, find_term_bits, write_count, write_pick_wires
from fpga.count_action.verilog.formulas import find_summed_formulas, write_formulas, write_move_wires
from fpga.count_action.verilog.text import (
    CLOCK_CONNECTIONS,
    concatenate,
    declare_wire,
    fold_line,
    format_bit_range,
    format_citation,
    join_or,
    join_with_commas,
    replicate,
    write_instance,
)
from fpga.count_action.verilog.wiring import Slice, Wiring, check_names, join_slices

_RTL = Path(__file__).resolve().parents[2] / "rtl"


def list_core_files() -> tuple[Path, ...]:
    """Return the files of the hand-written blocks that generated top-level modules instantiate."""
    return tuple(sorted(_RTL.glob("count_action*.sv")))


def write_top_module(datapath: Datapath, texts: Mapping[str, str] | None = None) -> str:
    """Return the top-level module of `datapath` as SystemVerilog.

    `texts` are the source texts by file name; if given, the source line of each part is quoted above the part. Raise
    ValueError for a name that is not valid in SystemVerilog, and KeyError for a reference that names no signal.
    """
    wiring = Wiring(datapath)
    check_names(wiring, frozenset(path.stem for path in list_core_files()))
    body = [line for part in _write_parts(wiring, texts or {}) for line in ("", *part)]
    ports = list(_write_ports(wiring))
    unread_names = _find_unread_names(wiring, ports, body)
    folded_lines = (
        part for line in _mark_unread_declarations(body, unread_names) for part in fold_line(line)
    )
    head = [*_write_header(datapath), *_mark_unread_declarations(ports, unread_names)]
    return "\n".join([*head, *folded_lines, "", "endmodule"]) + "\n"


def _write_header(datapath: Datapath) -> Iterator[str]:
    yield f"// Datapath {datapath.name}, digest {datapath.digest:08x}."
    yield "// Generated: change its count-action modules instead. Rules: docs/reference/count-action.md."
    yield f"module {datapath.name} ("


def _write_ports(wiring: Wiring) -> Iterator[str]:
    ports = [("input ", port) for port in (Port("clk_i", 1, 0), Port("rst_i", 1, 0), *wiring.ports.inputs)]
    ports += [("output", port) for port in wiring.ports.outputs]
    max_range_length = max(len(format_bit_range(port.width)) for _, port in ports)
    column_width = max_range_length + 1 if max_range_length else 0
    yield from join_with_commas(
        f"{direction} logic {format_bit_range(port.width):<{column_width}}{port.name}"
        for direction, port in ports
    )
    yield ");"


def _write_parts(wiring: Wiring, texts: Mapping[str, str]) -> Iterator[Iterable[str]]:
    """Yield the parts of the body, in an order that declares everything before it is used."""
    yield _write_declarations(wiring)
    yield _write_targets(wiring)
    # Formulas come first: every later part may read their wires.
    for module in wiring.datapath.modules:
        if module.values:
            yield [f"// Formulas of {module.name} (R13).", *write_formulas(wiring, module)]
        for count in find_arbitrating_counts(module):
            title = f"// Stream that {module.name}.{count.name} takes next, chosen by {count.order} (R19)."
            yield [title, *write_pick_wires(wiring, module, count)]
    yield from _write_streams(wiring)
    for module in wiring.datapath.modules:
        if find_summed_formulas(wiring, module):
            yield [
                f"// Beats that move on the streams that the formulas of {module.name} read.",
                *write_move_wires(wiring, module),
            ]
    for module in wiring.datapath.modules:
        yield [
            f"// ---- Module {module.name}{format_citation(module.location, texts)}",
            *_write_stall(wiring, module),
        ]
        for count in module.counts:
            title = f"// {count.kind.value.capitalize()} count {count.name}, target {count.target}"
            yield [title + format_citation(count.location, texts), *write_count(wiring, module, count)]
        for action in module.actions:
            title = f"// On {_describe_action(action)}" if action.on else f"// Memory {action.output} (R25)"
            title += format_citation(action.location, texts)
            yield [title, *write_action(wiring, module, action)]
    yield _write_status(wiring)


def _describe_action(action: Action) -> str:
    """Return the count, kind and output of an action, for a comment."""
    subject = ".".join(action.clears) if action.clears else action.output
    return f"{action.on}: {action.kind.value} {subject or action.memory}"


def _write_declarations(wiring: Wiring) -> Iterator[str]:
    yield "// Wires between modules."
    for module in wiring.datapath.modules:
        yield declare_wire(wiring.find_stall_wire(module.name))
        yield from (declare_wire(wiring.find_fire_wire(module.name, count.name)) for count in module.counts)
        for count in module.counts:
            if count.accumulates:
                yield declare_wire(f"{wiring.find_prefix(module.name, count.name)}_count", count.width)
    yield from (
        declare_wire(f"{module}_{output}_ready") for module, output in sorted(wiring.consumed_streams)
    )
    yield from declare_buffer_wires(wiring)


def _write_targets(wiring: Wiring) -> Iterator[str]:
    targets = list(wiring.datapath.list_targets())
    width = sum(target.width for _, target in targets)
    yield "// Targets in force, lowest bits first; commit_i replaces all of them at one clock edge (R8):"
    yield from (f"// {module.name}.{target.name}" for module, target in targets)
    yield declare_wire("target", width)
    reset_values = concatenate([f"{target.width}'d{target.reset}" for _, target in targets])
    yield from write_instance(
        "count_action_targets",
        "u_targets",
        {"Width": width, "Reset": reset_values},
        {**CLOCK_CONNECTIONS, "commit_i": "commit_i", "shadow_i": "target_shadow_i", "target_o": "target"},
    )


def _write_streams(wiring: Wiring) -> Iterator[Iterable[str]]:
    """Yield the parts that assign ready for all streams, and the wires of their moving beats (R7)."""
    move_wires = _find_move_wires(wiring)
    for signal in wiring.datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            refs = [Ref(signal.name, None, index) for index in range(signal.size)]
            ready_suffix = "held" if signal.buffered else "o"
            yield _write_stream(wiring, refs, f"{signal.name}_ready_{ready_suffix}", signal.name, move_wires)
            if signal.buffered:
                yield [f"// Two beats of {signal.name} may wait (R20).", *write_buffers(wiring, signal)]
    for module in wiring.datapath.modules:
        for action in module.list_streams():
            ref, name = Ref(action.output, module.name), f"{module.name}_{action.output}"
            title = f"{module.name}.{action.output}"
            if (module.name, action.output) in wiring.consumed_streams:
                yield _write_stream(wiring, [ref], f"{name}_ready", title, move_wires)
            elif wiring.find_source(ref).move_wire in move_wires:
                yield [
                    f"// A beat of {title} leaves when valid and ready are 1.",
                    *_write_move_wire(wiring, [ref], f"{name}_ready_i"),
                ]


def _write_stream(
    wiring: Wiring, refs: list[Ref], ready_wire: str, name: str, move_wires: frozenset[str]
) -> Iterator[str]:
    """Yield the ready bits of the streams of one name, and a wire of moving beats if something reads it."""
    ready_bits = [wiring.write_ready_condition(ref) for ref in refs]
    yield f"// A beat of {name} moves when valid and ready are 1 (R7)."
    if len(set(ready_bits)) == 1:
        yield f"assign {ready_wire} = {replicate(ready_bits[0], len(refs))};"
    else:
        yield f"assign {ready_wire} = {{"
        yield from join_with_commas(reversed(ready_bits))
        yield "};"
    if wiring.find_source(refs[0]).move_wire in move_wires:
        yield from _write_move_wire(wiring, refs, ready_wire)


def _write_move_wire(wiring: Wiring, refs: list[Ref], ready_wire: str) -> Iterator[str]:
    source = wiring.find_source(refs[0])
    valid_bits = join_slices(source.slice_valid_bit(ref.index) for ref in refs)
    yield declare_wire(source.move_wire, len(refs))
    yield f"assign {source.move_wire} = {valid_bits} & {ready_wire};"


def _find_move_wires(wiring: Wiring) -> frozenset[str]:
    """Return the wires that carry moving beats and are read by a count or a sum."""
    wires = {
        find_term_bits(wiring, count, ref).wire
        for _, count in wiring.datapath.list_counts()
        for ref in count.counted
        if not count.order
    }
    for module in wiring.datapath.modules:
        for action in filter(samples_every_cycle, module.actions):
            move_bits = (find_move_bit(wiring, module.count(action.on), ref) for ref in action.refs)
            wires |= {move_bit.wire for move_bit in move_bits if move_bit is not None}
        for ref in find_summed_formulas(wiring, module):
            wires |= {
                wiring.find_source(stream).slice_move_bit(stream.index).wire
                for stream in wiring.graph.find_streams(ref)
            }
    return frozenset(wires)


def _write_stall(wiring: Wiring, module: Module) -> Iterator[str]:
    stall_wires = [f"{module.name}_{action.output}_stalled" for action in module.list_streams()]
    yield from map(declare_wire, stall_wires)
    yield f"assign {wiring.find_stall_wire(module.name)} = {join_or(stall_wires)};"


def _write_status(wiring: Wiring) -> Iterator[str]:
    yield "// Status of the counts for drivers, the first count lowest. A level count keeps nothing (R1)."
    counts = [
        (wiring.find_prefix(module.name, count.name), count)
        for module, count in wiring.datapath.list_counts()
    ]
    for port in ("fire", "count", "overshoot", "saturated"):
        bits = [
            f"{prefix}_{port}"
            if count.accumulates or port == "fire"
            else f"{count.width if port == 'count' else 1}'d0"
            for prefix, count in counts
        ]
        yield f"assign {port}_o = {concatenate(bits)};"


_DECLARATION_PATTERN = re.compile(r"(?:(?:input |output) )?logic (?:signed )?(?:\[(\d+):0\])? *(\w+)[;,]?")
"""A declared port or wire: its highest bit and its name."""


def _mark_unread_declarations(lines: list[str], unread_names: frozenset[str]) -> Iterator[str]:
    """Yield lines with a pragma around the declarations of `unread_names`, so that linters do not report them."""
    for line in lines:
        declaration = _DECLARATION_PATTERN.fullmatch(line.strip())
        if declaration and declaration[2] in unread_names:
            spaces = line[: len(line) - len(line.lstrip())]
            pragma = "(* maybe_unused *) " if line.lstrip().startswith("input") else ""
            yield f"{spaces}// verilator lint_off UNUSEDSIGNAL"
            yield f"{spaces}{pragma}{line.lstrip()}"
            yield f"{spaces}// verilator lint_on UNUSEDSIGNAL"
        else:
            yield line


def _find_unread_names(wiring: Wiring, ports: list[str], body: list[str]) -> frozenset[str]:
    """Return the ports and wires with unread bits. A port has every bit of its signal, even bits that nothing reads."""
    lines = [line.strip() for line in body]
    ignored_prefixes = ("//", "logic ", ".data_o(", ".valid_o(")  # beginnings of lines that read no wire
    code = "\n".join(line.split(" = ")[-1] for line in lines if not line.startswith(ignored_prefixes))
    declarations = [
        declaration
        for line in (*ports, *lines)
        if (declaration := _DECLARATION_PATTERN.fullmatch(line.strip()))
    ]
    widths = {declaration[2]: int(declaration[1] or 0) + 1 for declaration in declarations}
    names = [*(port.name for port in wiring.ports.inputs), "target", *_find_move_wires(wiring)]
    names += list_buffer_wires(wiring)
    for module in wiring.datapath.modules:
        names += [
            wiring.find_value_wire(Ref(f"{FORMULA_PREFIX}{index}", module.name))
            for index in range(len(module.values))
        ]
    return frozenset(
        name for name in names if not name.endswith("_o") and not _reads_all_bits(code, name, widths[name])
    )


def _reads_all_bits(code: str, name: str, width: int) -> bool:
    """Return whether the code reads every bit of a wire, as a whole or in parts."""
    if re.search(rf"(?<![.\w]){name}\b(?!\[)|\.{name}\b(?!\()", code):
        return True
    read_bits: set[int] = set()
    for high, low in re.findall(rf"(?<![.\w]){name}\[(\d+)(?::(\d+))?\]", code):
        read_bits |= set(range(int(low or high), int(high) + 1))
    return len(read_bits) == width


def list_buffer_wires(wiring: Wiring) -> Iterator[str]:
    """Yield the output wires of buffers, which modules read in place of the ports."""
    return (
        wire for signal in find_buffered_inputs(wiring) for _, wire, _ in _list_buffered_ports(wiring, signal)
    )


def declare_buffer_wires(wiring: Wiring) -> Iterator[str]:
    """Yield the declarations of the wires between buffers and modules."""
    for signal in find_buffered_inputs(wiring):
        yield declare_wire(f"{signal.name}_ready_held", signal.size)
        for port, wire, _ in _list_buffered_ports(wiring, signal):
            yield declare_wire(wire, wiring.ports.find_input(port).width)


def write_buffers(wiring: Wiring, signal: Signal) -> Iterator[str]:
    """Yield the instances of the buffers of the streams under one name."""
    buffered_ports = list(_list_buffered_ports(wiring, signal))[1:]
    for index in range(signal.size):
        inputs = [_slice_stream(port, signal, index, width) for port, _, width in buffered_ports]
        outputs = [_slice_stream(wire, signal, index, width) for _, wire, width in buffered_ports]
        suffix = f"_{index}" if signal.size > 1 else ""
        yield from write_instance(
            "count_action_buffer",
            f"u_{signal.name}{suffix}_buffer",
            {"Width": sum(width for _, _, width in buffered_ports)},
            {
                **CLOCK_CONNECTIONS,
                "valid_i": _slice_stream(f"{signal.name}_valid_i", signal, index, 1),
                "data_i": concatenate(inputs),
                "ready_o": _slice_stream(f"{signal.name}_ready_o", signal, index, 1),
                "valid_o": _slice_stream(f"{signal.name}_valid_held", signal, index, 1),
                "data_o": concatenate(outputs),
                "ready_i": _slice_stream(f"{signal.name}_ready_held", signal, index, 1),
            },
        )  # fmt: skip


def find_buffered_inputs(wiring: Wiring) -> list[Signal]:
    """Return the buffered streams."""
    return [
        signal for signal in wiring.datapath.inputs if signal.buffered and signal.kind is SignalKind.STREAM
    ]


def _list_buffered_ports(wiring: Wiring, signal: Signal) -> Iterator[tuple[str, str, int]]:
    """Yield, for each port of a stream, the port's name, its wire behind the buffer, and its bits per stream."""
    for port, width in ((f"{signal.name}_valid_i", 1), *list_buffer_ports(wiring.datapath, signal)):
        yield port, f"{port.removesuffix('_i')}_held", width


def _slice_stream(wire: str, signal: Signal, index: int, width: int) -> str:
    """Return the bits of stream `index` in a wire of all streams under one name."""
    return str(Slice(wire, signal.size * width, index * width, width))
