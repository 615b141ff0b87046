"""AXI4-Lite, signal by signal, on a simulator that is stepped cycle by cycle."""

from __future__ import annotations

import numpy as np

from fpga.bus.protocol import BusFault, checked
from fpga.count_action.ports import Ports, Rows
from fpga.hdl.verilator import Simulator

_PATIENCE = 64
"""Cycles within which the register file must answer; it needs about four."""


class AxiPinsBus:
    """`RegisterBus` on the pins of a simulated AXI4-Lite top, one access at a time."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._ports: Ports = simulator.design.ports
        self.cycles = 0
        """Clock cycles so far, those of reset apart."""

    def read32(self, offset: int) -> int:
        """The word at `offset`."""
        checked(offset)
        self._hand_over({"ar": {"araddr": offset}})
        answer = self._await("r")
        return self._value(answer, "rdata")

    def write32(self, offset: int, value: int) -> None:
        """Put a word at `offset`."""
        checked(offset, value)
        self._hand_over({"aw": {"awaddr": offset}, "w": {"wdata": value, "wstrb": 15}})
        self._await("b")

    def close(self) -> None:
        """Let go of the simulator."""
        self._simulator.close()

    def _hand_over(self, requests: dict[str, dict[str, int]]) -> None:
        """Hold each request valid until it is taken."""
        for _ in range(_PATIENCE):
            pins = {f"{channel}valid": 1 for channel in requests}
            for values in requests.values():
                pins |= values
            outputs = self._cycle(pins)
            requests = {
                channel: values
                for channel, values in requests.items()
                if not self._value(outputs, f"{channel}ready")
            }
            if not requests:
                return
        raise BusFault(f"the register file does not take a request within {_PATIENCE} cycles")

    def _await(self, channel: str) -> Rows:
        for _ in range(_PATIENCE):
            outputs = self._cycle({f"{channel}ready": 1})
            if self._value(outputs, f"{channel}valid"):
                if self._value(outputs, f"{channel}resp"):
                    raise BusFault("the register file answers with an error")
                return outputs
        raise BusFault(f"the register file does not answer within {_PATIENCE} cycles")

    def _cycle(self, pins: dict[str, int]) -> Rows:
        row = np.zeros((1, self._ports.input_columns), np.uint64)
        for name, value in pins.items():
            row[0, self._ports.input(name).column] = value
        self.cycles += 1
        outputs: Rows = self._simulator.run(row)[0]
        return outputs

    def _value(self, outputs: Rows, name: str) -> int:
        return int(outputs[self._ports.output(name).column])
