"""AXI4-Lite on the pins of a simulated top, cycle by cycle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fpga.bus.protocol import Access, BusFault, check_access
from fpga.count_action.ports import Ports, Rows
from fpga.hdl.verilator import Simulator
from fpga.registers.register_file import count_read_cycles

Row = NDArray[np.uint64]

_MAX_WAIT_CYCLES = 64
"""Cycles within which the register file must answer; it needs about four."""
_READ_CHANNELS = ("ar", "r")
_WRITE_CHANNELS = ("aw", "b")


class AxiPinsBus:
    """`BurstBus` on the pins of a simulated AXI4-Lite top."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        ports: Ports = simulator.design.ports
        self._input_columns = {port.name: port.column for port in ports.inputs}
        self._output_columns = {port.name: port.column for port in ports.outputs}
        self._input_column_count = ports.input_column_count
        self._slot_cycle_count = count_read_cycles(ports.find_input("araddr").width)
        """Cycles per access in a burst: the request is sent in the first, and the response arrives by the last."""
        self.cycle_count = 0
        """Number of clock cycles so far, except cycles of reset."""

    def read32(self, offset: int) -> int:
        """Return the word at `offset`."""
        check_access(offset)
        self._send_requests({"ar": {"araddr": offset}})
        response = self._await_response("r")
        return self._get_output(response, "rdata")

    def write32(self, offset: int, value: int) -> None:
        """Write a word at `offset`."""
        check_access(offset, value)
        self._send_requests({"aw": {"awaddr": offset}, "w": {"wdata": value, "wstrb": 15}})
        self._await_response("b")

    def transfer(self, accesses: Sequence[Access]) -> list[int]:
        """Execute accesses in order, in one run of the simulator; return the words that were read."""
        if not accesses:
            return []
        rows = np.zeros((self._slot_cycle_count * len(accesses), self._input_column_count), np.uint64)
        rows[:, self._input_columns["bready"]] = rows[:, self._input_columns["rready"]] = 1
        for index, (offset, value) in enumerate(accesses):
            self._put_access(rows[self._slot_cycle_count * index], offset, value)
        outputs = self._simulator.run(rows).reshape(len(accesses), self._slot_cycle_count, -1)
        self.cycle_count += len(rows)
        responses = [
            self._find_response(access_outputs, _READ_CHANNELS if value is None else _WRITE_CHANNELS)
            for access_outputs, (_, value) in zip(outputs.tolist(), accesses, strict=True)
        ]
        return [
            response[self._output_columns["rdata"]]
            for response, (_, value) in zip(responses, accesses, strict=True)
            if value is None
        ]

    def _put_access(self, row: Row, offset: int, value: int | None) -> None:
        check_access(offset, value or 0)
        columns = self._input_columns
        if value is None:
            row[columns["arvalid"]], row[columns["araddr"]] = 1, offset
            return
        row[columns["awvalid"]], row[columns["awaddr"]] = 1, offset
        row[columns["wvalid"]], row[columns["wdata"]], row[columns["wstrb"]] = 1, value, 15

    def _find_response(self, access_outputs: list[list[int]], channels: tuple[str, str]) -> list[int]:
        """Return the outputs of the cycle with the response. Raise BusFault if it is missing or an error."""
        request_channel, response_channel = channels
        is_accepted = access_outputs[0][self._output_columns[f"{request_channel}ready"]] and (
            request_channel != "aw" or access_outputs[0][self._output_columns["wready"]]
        )
        valid_cycles = [
            cycle for cycle in access_outputs if cycle[self._output_columns[f"{response_channel}valid"]]
        ]
        if not is_accepted or len(valid_cycles) != 1:
            raise BusFault(
                f"the register file did not answer a burst within {self._slot_cycle_count} cycles per access"
            )
        if response := valid_cycles[0][self._output_columns[f"{response_channel}resp"]]:
            raise BusFault(f"the register file answered with an error ({response_channel}resp = {response})")
        return valid_cycles[0]

    def close(self) -> None:
        """Release the simulator."""
        self._simulator.close()

    def _send_requests(self, requests: dict[str, dict[str, int]]) -> None:
        """Hold each request valid until it is accepted. Raise BusFault if that takes more than 64 cycles."""
        for _ in range(_MAX_WAIT_CYCLES):
            pins = {f"{channel}valid": 1 for channel in requests}
            for values in requests.values():
                pins |= values
            outputs = self._run_cycle(pins)
            requests = {
                channel: values
                for channel, values in requests.items()
                if not self._get_output(outputs, f"{channel}ready")
            }
            if not requests:
                return
        raise BusFault(f"the register file did not accept a request within {_MAX_WAIT_CYCLES} cycles")

    def _await_response(self, channel: str) -> Rows:
        for _ in range(_MAX_WAIT_CYCLES):
            outputs = self._run_cycle({f"{channel}ready": 1})
            if self._get_output(outputs, f"{channel}valid"):
                if response := self._get_output(outputs, f"{channel}resp"):
                    raise BusFault(f"the register file answered with an error ({channel}resp = {response})")
                return outputs
        raise BusFault(f"the register file did not answer within {_MAX_WAIT_CYCLES} cycles")

    def _run_cycle(self, pins: dict[str, int]) -> Rows:
        row = np.zeros((1, self._input_column_count), np.uint64)
        for name, value in pins.items():
            row[0, self._input_columns[name]] = value
        self.cycle_count += 1
        outputs: Rows = self._simulator.run(row)[0]
        return outputs

    def _get_output(self, outputs: Rows, name: str) -> int:
        return int(outputs[self._output_columns[name]])
