"""The checks of buffered streams (R20), and the wires between buffers and modules that no port shows."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.actions.proof import CLOCKED, Check, concatenated, hidden
from fpga.count_action.model import Signal
from fpga.count_action.ports import buffered_parts
from fpga.formal.meaning import Meaning


def hidden_wires(meaning: Meaning) -> Iterator[str]:
    """Return the wires that stand for the ports of buffered streams, and two registers of each buffer."""
    for signal, ports in _streams(meaning):
        yield hidden(f"{signal.name}_valid_held", signal.size)
        yield hidden(f"{signal.name}_ready_held", signal.size)
        yield from (hidden(f"{port}_held", width * signal.size) for port, width in ports)
        for index in range(signal.size):
            yield hidden(f"{_buffer(signal, index)}.full_q", 1)
            yield hidden(f"{_buffer(signal, index)}.second_q", sum(width for _, width in ports))


def buffers_of(meaning: Meaning) -> Iterator[Check]:
    """Return the checks of every buffer; like those of targets they are of no module."""
    for signal, ports in _streams(meaning):
        for index in range(signal.size):
            outside, inside = (
                concatenated(f"{name.format(port)}[{index * width}+:{width}]" for port, width in ports)
                for name in ("{}_i", "\\dut.{}_held ")
            )
            wires = {
                **CLOCKED,
                "valid_i": f"{signal.name}_valid_i[{index}]",
                "data_i": outside,
                "ready_o": f"{signal.name}_ready_o[{index}]",
                "valid_o": f"\\dut.{signal.name}_valid_held [{index}]",
                "data_o": inside,
                "ready_i": f"\\dut.{signal.name}_ready_held [{index}]",
                "full_i": f"\\dut.{_buffer(signal, index)}.full_q ",
                "second_i": f"\\dut.{_buffer(signal, index)}.second_q ",
            }
            width = {"Width": sum(bits for _, bits in ports)}
            yield Check("count_action_buffer", "", signal.name, width, wires)


def _streams(meaning: Meaning) -> Iterator[tuple[Signal, list[tuple[str, int]]]]:
    for signal in meaning.datapath.inputs:
        if signal.buffered:
            parts = buffered_parts(meaning.datapath, signal)
            yield signal, [(port.removesuffix("_i"), width) for port, width in parts]


def _buffer(signal: Signal, index: int) -> str:
    return f"u_{signal.name}{f'_{index}' if signal.size > 1 else ''}_buffer"
