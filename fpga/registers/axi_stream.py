"""AXI-Stream ports for the streams of a top: `s_axis_STREAM_*`, `m_axis_MODULE_STREAM_*`.

Several streams under one name are numbered. Samples are in `tdata` from bit 0 on, padded to whole bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.model import Datapath, Signal, SignalKind
from fpga.count_action.ports import list_end_signal_actions
from fpga.registers.register_blocks import (
    Fragment,
    concatenate,
    format_bit_range,
    join_fragments,
    list_omitted_bits,
    sign_extend,
    truncate,
    write_instance,
    zero_extend,
)
from fpga.registers.register_list import list_output_streams
from fpga.registers.text import CORE_RESET_SIGNAL, HELD

OUTPUT_BLOCK = "axis_hold"
"""The hand-written block of every output stream."""


def make_axi_stream_fragments(datapath: Datapath) -> Iterator[Fragment]:
    """Yield the fragments of the external streams."""
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            yield from (_make_input(signal, index) for index in range(signal.size))
            yield from (
                _make_input_marker(signal, end_signal)
                for end_signal in datapath.inputs
                if end_signal.part_of == signal.name
            )
    for module, name, sample_count, width, signed in list_output_streams(datapath):
        actions = list_end_signal_actions(datapath.module(module), name)
        end_signals = [(f"{module}_{action.output}", action.width) for _, action in actions]
        yield _make_output(f"{module}_{name}", sample_count * width, width, end_signals, signed=signed)


def _make_input_marker(stream: Signal, end_signal: Signal) -> Fragment:
    """Return the fragment for `tlast` or `tkeep` of an input; a lane uses the `tkeep` bit of its lowest byte (R18)."""
    prefix, lane_bytes = f"s_axis_{stream.name}", stream.width // 8
    if end_signal.name == f"{stream.name}_last":
        port = f"input  wire {prefix}_tlast"
        return Fragment(ports=(port,), body=(f"assign dp_{end_signal.name}_i = {prefix}_tlast;",))
    lanes = concatenate(f"{prefix}_tkeep[{lane * lane_bytes}]" for lane in range(end_signal.size))
    port = f"input  wire [{end_signal.size * lane_bytes - 1}:0] {prefix}_tkeep"
    spare_bits = [
        lane * lane_bytes + byte for lane in range(end_signal.size) for byte in range(1, lane_bytes)
    ]
    return Fragment(
        ports=(port,),
        body=(f"assign dp_{end_signal.name}_i = {lanes};",),
        unread_bits=tuple(f"{prefix}_tkeep[{bit}]" for bit in spare_bits),
    )


def _make_output_marker(stream: str, wire: str, end_signal: str, lane_count: int, width: int) -> Fragment:
    """Return the fragment for `tlast` or `tkeep` of an output. Each byte of a lane gets the bit of the lane (R18)."""
    if end_signal == f"{stream}_last":
        port = f"output wire m_axis_{stream}_tlast"
        return Fragment(ports=(port,), body=(f"assign m_axis_{stream}_tlast = {wire};",))
    lane_bytes, lane_wires = (
        width // 8,
        [f"{wire}[{lane}]" if lane_count > 1 else wire for lane in range(lane_count)],
    )
    bytes_of_lanes = concatenate(lane_wire for lane_wire in lane_wires for _ in range(lane_bytes))
    port = f"output wire [{lane_count * lane_bytes - 1}:0] m_axis_{stream}_tkeep"
    return Fragment(ports=(port,), body=(f"assign m_axis_{stream}_tkeep = {bytes_of_lanes};",))


def _round_up_to_bytes(bits: int) -> int:
    return -(-bits // 8) * 8


def _make_input(signal: Signal, index: int) -> Fragment:
    is_numbered = signal.size > 1
    prefix = f"s_axis_{signal.name}" + (f"_{index}" if is_numbered else "")
    bits = signal.lanes * signal.width
    padded_bits = _round_up_to_bytes(bits)
    bit = f"[{index}]" if is_numbered else ""
    bit_slice = f"[{index * bits}+:{bits}]" if is_numbered else ""
    return Fragment(
        ports=(
            f"input  wire {prefix}_tvalid",
            f"output wire {prefix}_tready",
            f"input  wire {format_bit_range(padded_bits)}{prefix}_tdata",
        ),
        body=(
            f"assign dp_{signal.name}_valid_i{bit} = {prefix}_tvalid;",
            f"assign dp_{signal.name}_data_i{bit_slice} = {truncate(f'{prefix}_tdata', padded_bits, bits)};",
            f"assign {prefix}_tready = dp_{signal.name}_ready_o{bit} && !{HELD};",
        ),
        unread_bits=list_omitted_bits(f"{prefix}_tdata", padded_bits, bits),
    )


def _make_output(
    stream: str, beat_bits: int, width: int, end_signals: list[tuple[str, int]], *, signed: bool
) -> Fragment:
    """Return the fragment of an output stream, whose beats survive a reset of the datapath.

    Padding repeats the sign if `signed`, and is 0 otherwise.
    """
    padded_bits = _round_up_to_bytes(beat_bits)
    wires_by_port = {f"dp_{stream}_data_o": (f"held_{stream}_data", beat_bits)}
    wires_by_port |= {
        f"dp_{end_signal}_o": (f"held_{end_signal}", lanes) for end_signal, lanes in end_signals
    }
    wires = [f"wire {format_bit_range(wire_bits)}{name};" for name, wire_bits in wires_by_port.values()]
    hold_instance = write_instance(
        OUTPUT_BLOCK,
        f"hold_{stream}",
        {
            "clk_i": "aclk",
            "rst_i": "reset",
            "restart_i": CORE_RESET_SIGNAL,
            "valid_i": f"dp_{stream}_valid_o",
            "data_i": concatenate(wires_by_port),
            "ready_o": f"dp_{stream}_ready_i",
            "valid_o": f"m_axis_{stream}_tvalid",
            "data_o": concatenate(name for name, _ in wires_by_port.values()),
            "ready_i": f"m_axis_{stream}_tready",
        },
        Width=sum(wire_bits for _, wire_bits in wires_by_port.values()),
    )
    data = sign_extend(f"held_{stream}_data", beat_bits, padded_bits) if signed else None
    beat_fragment = Fragment(
        ports=(
            f"output wire m_axis_{stream}_tvalid",
            f"input  wire m_axis_{stream}_tready",
            f"output wire {format_bit_range(padded_bits)}m_axis_{stream}_tdata",
        ),
        body=(
            *wires,
            *hold_instance,
            f"assign m_axis_{stream}_tdata = {data or zero_extend(f'held_{stream}_data', padded_bits - beat_bits)};",
        ),
    )
    return join_fragments(
        [
            beat_fragment,
            *(
                _make_output_marker(stream, f"held_{end_signal}", end_signal, lanes, width)
                for end_signal, lanes in end_signals
            ),
        ]
    )
