"""Streams of a top as AXI-Stream ports: `s_axis_STREAM_*`, `m_axis_MODULE_STREAM_*`.

Streams of several under one name have their number in it. Samples lie in `tdata` from bit 0 on, filled up to
whole bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.model import Datapath, Signal, SignalKind
from fpga.registers.fragments import Fragment, bit_range, cut, padded, rest
from fpga.registers.register_list import output_streams


def axi_stream_parts(datapath: Datapath) -> Iterator[Fragment]:
    """Return one part for every external stream."""
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            yield from (_slave(signal, index) for index in range(signal.size))
    for module, name, samples, width, _ in output_streams(datapath):
        yield _master(f"{module}_{name}", samples * width)


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
