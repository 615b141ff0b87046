"""The simulated register file against the real one, access by access."""

import random

import pytest

from fpga.bus import make_simulated_bus
from fpga.bus.protocol import check_access
from fpga.registers import Access, make_register_map

CONTROL = 8


@pytest.fixture
def axi_bus(axi_simulator):
    from fpga.bus.axi_pins import AxiPinsBus

    axi_simulator.reset()
    return AxiPinsBus(axi_simulator)


def test_random_accesses(demo, axi_bus):
    """Words of any value at any offset, registers or not, and resets: read back they are alike."""
    table = make_register_map(demo)
    steady = [each for each in table if each.access is not Access.READ]
    acting = {
        each.get_offset(word)
        for each in table
        if each.access in {Access.PULSE, Access.PUSH}
        for word in range(each.word_count)
    }
    generator = random.Random(7)
    simulated = make_simulated_bus(demo, "reference")
    kept = 0
    for turn in range(600):
        offset = generator.randrange(0, table.size_bytes + 32, 4)
        value = generator.choice([0, 1, 0xFFFFFFFF, generator.getrandbits(32)])
        if offset not in acting:
            axi_bus.write32(offset, value)
            simulated.write32(offset, value)
        if turn % 100 == 50:
            axi_bus.write32(CONTROL, 4)
            simulated.write32(CONTROL, 4)
        register = generator.choice(steady)
        where = register.get_offset(generator.randrange(register.word_count))
        assert axi_bus.read32(where) == simulated.read32(where), register.name
        kept += simulated.read32(where) != register.reset_value
    assert kept > 100  # it was not all zeros


def test_offsets_without_a_register_read_zero(demo, axi_bus):
    table = make_register_map(demo)
    for offset in range(table.size_bytes, 1 << table.address_width, 4):
        axi_bus.write32(offset, 0xFFFFFFFF)
        assert axi_bus.read32(offset) == 0
    assert make_simulated_bus(demo, "reference").read32(table.size_bytes) == 0


def test_constants_take_no_writes(demo, axi_bus):
    axi_bus.write32(4, 0)
    assert axi_bus.read32(4) == demo.digest


def test_popping_an_empty_fifo_does_nothing(demo, axi_bus):
    table = make_register_map(demo)
    for bus in (axi_bus, make_simulated_bus(demo, "reference")):
        bus.write32(table["OUT", "adder", "total", "POP"].offset, 1)
        assert bus.read32(table["OUT", "adder", "total", "LEVEL"].offset) == 0
        assert bus.read32(table["OUT", "adder", "total", "DATA"].offset) == 0


@pytest.mark.parametrize("offset", [-4, 1, 2, 3, 6])
def test_offsets_are_those_of_words(offset):
    with pytest.raises(ValueError, match="is not a word offset"):
        check_access(offset)


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_values_are_words(value):
    with pytest.raises(ValueError, match="does not fit in a register"):
        check_access(0, value)
