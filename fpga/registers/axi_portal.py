"""Streams of a top behind registers: sources that a driver pushes into, FIFOs that it pops from."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.model import Datapath, Signal, SignalKind
from fpga.registers.blocks import Part, bit_range, cut, instance, padded, rest
from fpga.registers.layout import FIFO_DEPTH, output_streams
from fpga.registers.table import Register, RegisterMap
from fpga.registers.text import RESET_SIGNAL


def portal_parts(datapath: Datapath, table: RegisterMap) -> Iterator[Part]:
    """One part for every external stream."""
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            yield _source(signal, table)
    for module, name, samples, width, _ in output_streams(datapath):
        yield _sink(module, name, samples * width, table)


def _bits(register: Register) -> int:
    return register.words * register.width


def _source(signal: Signal, table: RegisterMap) -> Part:
    name = signal.name
    data, push, waiting = (table["IN", name, each] for each in ("DATA", "PUSH", "WAITING"))
    bits = signal.size * signal.lanes * signal.width
    ports = {
        "clk_i": "aclk",
        "rst_i": RESET_SIGNAL,
        "push_i": f"{push.name}_push_o",
        "mask_i": cut(f"{push.name}_o", _bits(push), signal.size),
        "ready_i": f"dp_{name}_ready_o",
        "valid_o": f"dp_{name}_valid_i",
        "waiting_o": f"waiting_{name}",
    }
    return Part(
        body=(
            f"wire {bit_range(signal.size)}waiting_{name};",
            f"assign {waiting.name}_i = {padded(f'waiting_{name}', _bits(waiting) - signal.size)};",
            f"assign dp_{name}_data_i = {cut(f'{data.name}_o', _bits(data), bits)};",
            *instance("portal_source", f"source_{name}", ports, Streams=signal.size),
        ),
        unused=(
            *rest(f"{data.name}_o", _bits(data), bits),
            *rest(f"{push.name}_o", _bits(push), signal.size),
        ),
    )


def _sink(module: str, name: str, bits: int, table: RegisterMap) -> Part:
    stream = f"{module}_{name}"
    data, level, pop = (table["OUT", module, name, each] for each in ("DATA", "LEVEL", "POP"))
    ports = {
        "clk_i": "aclk",
        "rst_i": RESET_SIGNAL,
        "valid_i": f"dp_{stream}_valid_o",
        "data_i": f"dp_{stream}_data_o",
        "ready_o": f"dp_{stream}_ready_i",
        "pop_i": f"{pop.name}_o",
        "data_o": f"head_{stream}",
        "level_o": f"{level.name}_i",
    }
    sink = instance(
        "portal_sink",
        f"sink_{stream}",
        ports,
        Width=bits,
        Depth=FIFO_DEPTH,
        LevelWidth=FIFO_DEPTH.bit_length(),
    )
    return Part(
        body=(
            f"wire {bit_range(bits)}head_{stream};",
            f"assign {data.name}_i = {padded(f'head_{stream}', _bits(data) - bits)};",
            *sink,
        )
    )
