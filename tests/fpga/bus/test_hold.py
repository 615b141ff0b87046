"""Loading without a gap: the first cycle of a datapath has the targets of its layer, not those of the text."""

import pytest
from libraries import skip_without

skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")

import fpga
from fpga.bus.simulated import SimulatedBus
from fpga.count_action import parse_text
from fpga.count_action.simulate import ReferenceSimulator
from fpga.registers.register_list import COMMIT, HOLD, RESET, make_register_map

TEXT = "module m { counts: { n: sum 1 over cycles } targets: { n: 1 } actions: { pulse p } }"
"""It counts every cycle, and fires in every one with the target of the text."""


@pytest.fixture
def datapath():
    return parse_text(TEXT, "m.ca").datapath


@pytest.fixture
def bus(datapath):
    return SimulatedBus(datapath, ReferenceSimulator(datapath))


@pytest.mark.slow
def test_a_datapath_that_counts_by_itself_never_has_the_targets_of_the_text(datapath, bus):
    driver = fpga.Datapath(bus)
    driver.load(fpga.Program(datapath, ({"m.n": 1000},)))
    assert driver.outputs() == {"m.p": 0}
    assert 0 < driver.counts()["m.n"] < 10
    driver.reset()  # those of the text again
    assert [driver.outputs()["m.p"] for _ in range(4)][-1] > 0


def test_a_hold_lasts_until_the_commit(datapath, bus):
    registers = make_register_map(datapath)
    control, target = registers["CONTROL",].offset, registers["TARGET", "m", "n"].offset
    count, pulses = registers["COUNT", "m", "n"].offset, registers["OUT", "m", "p"].offset
    bus.write32(control, RESET | HOLD)
    for _ in range(5):
        assert bus.read32(count) == bus.read32(pulses) == 0
    bus.write32(target, 3)
    bus.write32(control, COMMIT)
    assert [bus.read32(count) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_a_commit_with_a_reset_begins_again_with_what_the_bank_held(datapath, bus):
    registers = make_register_map(datapath)
    bus.write32(registers["TARGET", "m", "n"].offset, 4)
    bus.write32(registers["CONTROL",].offset, RESET | COMMIT)
    count = registers["COUNT", "m", "n"].offset
    assert [bus.read32(count) for _ in range(5)] == [0, 1, 2, 3, 0]
    assert bus.read32(registers["TARGET", "m", "n"].offset) == 1
