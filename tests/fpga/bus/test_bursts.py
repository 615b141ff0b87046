"""Several accesses in one go: the words are those of single accesses, and a register file that is late is reported."""

from types import SimpleNamespace

import numpy as np
import pytest

from fpga.bus import BusFault
from fpga.bus.axi_pins import AxiPinsBus
from fpga.bus.protocol import choose_transfer
from fpga.count_action.ports import Port, Ports
from fpga.registers.register_ports import list_axi_signals


class Memory:
    """A bus that keeps what is written."""

    def __init__(self):
        self.words = {}

    def read32(self, offset):
        return self.words.get(offset, 0)

    def write32(self, offset, value):
        self.words[offset] = value

    def close(self):
        pass


def test_a_bus_without_bursts_takes_accesses_one_by_one():
    accesses = [(0, 5), (4, 6), (0, None), (0, 7), (4, None), (0, None)]
    assert choose_transfer(Memory())(accesses) == [5, 6, 7]


@pytest.mark.long
def test_a_burst_is_the_same_accesses(axi_simulator):
    """Registers of targets, which keep what is written; and nothing at all."""
    axi_simulator.reset()
    bus = AxiPinsBus(axi_simulator)
    assert bus.transfer([]) == []
    identity, digest = bus.transfer([(0, None), (4, None)])
    assert (bus.read32(0), bus.read32(4)) == (identity, digest)
    assert identity == 0x4341_0101


class Slow:
    """Pins of a register file that takes requests, and answers them `late` cycles after, wrongly if `wrong`."""

    def __init__(self, late, wrong=0):
        signals = list_axi_signals(8)
        made = [
            tuple(
                Port(each.name, each.width, column)
                for column, each in enumerate(signal for signal in signals if signal.is_output is driven)
            )
            for driven in (False, True)
        ]
        self.design = SimpleNamespace(ports=Ports(*made))
        self._late, self._wrong = late, wrong

    def run(self, rows):
        ports = self.design.ports
        out = np.zeros((len(rows), ports.output_column_count), np.uint64)
        for name in ("awready", "wready", "arready"):
            out[:, ports.find_output(name).column] = 1
        for request, response in (("awvalid", "b"), ("arvalid", "r")):
            requested = np.flatnonzero(rows[:, ports.find_input(request).column]) + self._late
            requested = requested[requested < len(rows)]
            out[requested, ports.find_output(f"{response}valid").column] = 1
            out[requested, ports.find_output(f"{response}resp").column] = self._wrong
        return out


@pytest.mark.parametrize("access", [(8, None), (8, 1)])
def test_an_answer_that_comes_too_late_or_says_error_is_a_fault(access):
    assert AxiPinsBus(Slow(3)).transfer([access, (8, None)])[-1] == 0
    with pytest.raises(BusFault, match="the register file did not answer a burst within 4 cycles per access"):
        AxiPinsBus(Slow(4)).transfer([access])
    with pytest.raises(BusFault, match="answered with an error"):
        AxiPinsBus(Slow(1, wrong=2)).transfer([access])
