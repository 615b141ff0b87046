"""Streams of a top as AXI-Stream ports: `s_axis_STREAM_*`, `m_axis_MODULE_STREAM_*`.

Streams of several under one name have their number in it. Samples lie in `tdata` from bit 0 on, filled up to
whole bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.model import Datapath, Signal, SignalKind
from fpga.registers.fragments import Fragment, bit_range, concatenated, cut, padded, rest
from fpga.registers.register_list import output_streams


def axi_stream_parts(datapath: Datapath) -> Iterator[Fragment]:
    """Return one part for every external stream."""
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            yield from (_slave(signal, index) for index in range(signal.size))
            yield from (_end_in(signal, each) for each in datapath.inputs if each.part_of == signal.name)
    for module, name, samples, width, _ in output_streams(datapath):
        yield _master(f"{module}_{name}", samples * width)
        ends = (each for each in datapath.module(module).actions if each.part_of == name)
        yield from (
            _end_out(f"{module}_{name}", f"{module}_{each.output}", each.width, width) for each in ends
        )


def _end_in(stream: Signal, end: Signal) -> Fragment:
    """Return `tlast`, or `tkeep`, of which a lane looks at the lowest of its bytes (R18)."""
    prefix, size = f"s_axis_{stream.name}", stream.width // 8
    if end.name == f"{stream.name}_last":
        port = f"input  wire {prefix}_tlast"
        return Fragment(ports=(port,), body=(f"assign dp_{end.name}_i = {prefix}_tlast;",))
    kept = concatenated(f"{prefix}_tkeep[{lane * size}]" for lane in range(end.size))
    port = f"input  wire [{end.size * size - 1}:0] {prefix}_tkeep"
    spare = [lane * size + byte for lane in range(end.size) for byte in range(1, size)]
    return Fragment(
        ports=(port,),
        body=(f"assign dp_{end.name}_i = {kept};",),
        unused=tuple(f"{prefix}_tkeep[{bit}]" for bit in spare),
    )


def _end_out(stream: str, end: str, lanes: int, width: int) -> Fragment:
    """Return `tlast`, or `tkeep`, of which every byte of a lane is what the lane is (R18)."""
    if end == f"{stream}_last":
        port = f"output wire m_axis_{stream}_tlast"
        return Fragment(ports=(port,), body=(f"assign m_axis_{stream}_tlast = dp_{end}_o;",))
    size, bits = width // 8, [f"dp_{end}_o[{lane}]" if lanes > 1 else f"dp_{end}_o" for lane in range(lanes)]
    kept = concatenated(each for each in bits for _ in range(size))
    port = f"output wire [{lanes * size - 1}:0] m_axis_{stream}_tkeep"
    return Fragment(ports=(port,), body=(f"assign m_axis_{stream}_tkeep = {kept};",))


def _whole_bytes(bits: int) -> int:
    return -(-bits // 8) * 8


def _slave(signal: Signal, index: int) -> Fragment:
    several = signal.size > 1
    prefix = f"s_axis_{signal.name}" + (f"_{index}" if several else "")
    bits = signal.lanes * signal.width
    whole = _whole_bytes(bits)
    bit = f"[{index}]" if several else ""
    span = f"[{index * bits}+:{bits}]" if several else ""
    return Fragment(
        ports=(
            f"input  wire {prefix}_tvalid",
            f"output wire {prefix}_tready",
            f"input  wire {bit_range(whole)}{prefix}_tdata",
        ),
        body=(
            f"assign dp_{signal.name}_valid_i{bit} = {prefix}_tvalid;",
            f"assign dp_{signal.name}_data_i{span} = {cut(f'{prefix}_tdata', whole, bits)};",
            f"assign {prefix}_tready = dp_{signal.name}_ready_o{bit};",
        ),
        unused=rest(f"{prefix}_tdata", whole, bits),
    )


def _master(stream: str, bits: int) -> Fragment:
    whole = _whole_bytes(bits)
    return Fragment(
        ports=(
            f"output wire m_axis_{stream}_tvalid",
            f"input  wire m_axis_{stream}_tready",
            f"output wire {bit_range(whole)}m_axis_{stream}_tdata",
        ),
        body=(
            f"assign m_axis_{stream}_tvalid = dp_{stream}_valid_o;",
            f"assign m_axis_{stream}_tdata = {padded(f'dp_{stream}_data_o', whole - bits)};",
            f"assign dp_{stream}_ready_i = m_axis_{stream}_tready;",
        ),
    )
