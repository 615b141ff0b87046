"""Buffers of streams in SystemVerilog: one instance for each stream under a name (R20)."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.model import Signal, SignalKind
from fpga.count_action.ports import buffered_parts
from fpga.count_action.verilog.text import CLOCKED, concatenation, declared, instance
from fpga.count_action.verilog.wiring import Slice, Wiring


def held_wires(wiring: Wiring) -> Iterator[str]:
    """Return the wires that leave the buffers: what the modules see in the place of the ports."""
    return (held for signal in buffered(wiring) for _, held, _ in _wires(wiring, signal))


def held_declarations(wiring: Wiring) -> Iterator[str]:
    """Return the declarations of the wires between buffers and modules."""
    for signal in buffered(wiring):
        yield declared(f"{signal.name}_ready_held", signal.size)
        for port, held, _ in _wires(wiring, signal):
            yield declared(held, wiring.ports.input(port).width)


def buffer_lines(wiring: Wiring, signal: Signal) -> Iterator[str]:
    """Return the buffers of the streams under one name."""
    parts = list(_wires(wiring, signal))[1:]
    for index in range(signal.size):
        given, kept = (
            concatenation(
                [str(Slice(each[side], signal.size * each[2], index * each[2], each[2])) for each in parts]
            )
            for side in (0, 1)
        )
        suffix = f"_{index}" if signal.size > 1 else ""
        yield from instance(
            "count_action_buffer",
            f"u_{signal.name}{suffix}_buffer",
            {"Width": sum(width for _, _, width in parts)},
            {
                **CLOCKED,
                "valid_i": str(Slice(f"{signal.name}_valid_i", signal.size, index)),
                "data_i": given,
                "ready_o": str(Slice(f"{signal.name}_ready_o", signal.size, index)),
                "valid_o": str(Slice(f"{signal.name}_valid_held", signal.size, index)),
                "data_o": kept,
                "ready_i": str(Slice(f"{signal.name}_ready_held", signal.size, index)),
            },
        )  # fmt: skip


def buffered(wiring: Wiring) -> list[Signal]:
    """Return the streams that have a buffer."""
    return [each for each in wiring.datapath.inputs if each.buffered and each.kind is SignalKind.STREAM]


def _wires(wiring: Wiring, signal: Signal) -> Iterator[tuple[str, str, int]]:
    """Return the ports of a stream, the wires that stand for them behind the buffer, and the bits of one stream."""
    for port, width in ((f"{signal.name}_valid_i", 1), *buffered_parts(wiring.datapath, signal)):
        yield port, f"{port.removesuffix('_i')}_held", width
