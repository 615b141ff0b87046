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
        given = [_of_one(port, signal, index, width) for port, _, width in parts]
        kept = [_of_one(held, signal, index, width) for _, held, width in parts]
        suffix = f"_{index}" if signal.size > 1 else ""
        yield from instance(
            "count_action_buffer",
            f"u_{signal.name}{suffix}_buffer",
            {"Width": sum(width for _, _, width in parts)},
            {
                **CLOCKED,
                "valid_i": _of_one(f"{signal.name}_valid_i", signal, index, 1),
                "data_i": concatenation(given),
                "ready_o": _of_one(f"{signal.name}_ready_o", signal, index, 1),
                "valid_o": _of_one(f"{signal.name}_valid_held", signal, index, 1),
                "data_o": concatenation(kept),
                "ready_i": _of_one(f"{signal.name}_ready_held", signal, index, 1),
            },
        )  # fmt: skip


def buffered(wiring: Wiring) -> list[Signal]:
    """Return the streams that have a buffer."""
    return [each for each in wiring.datapath.inputs if each.buffered and each.kind is SignalKind.STREAM]


def _wires(wiring: Wiring, signal: Signal) -> Iterator[tuple[str, str, int]]:
    """Return the ports of a stream, the wires that stand for them behind the buffer, and the bits of one stream."""
    for port, width in ((f"{signal.name}_valid_i", 1), *buffered_parts(wiring.datapath, signal)):
        yield port, f"{port.removesuffix('_i')}_held", width


def _of_one(wire: str, signal: Signal, index: int, width: int) -> str:
    """Return the bits of one stream, of a wire that has those of all under the name."""
    return str(Slice(wire, signal.size * width, index * width, width))
