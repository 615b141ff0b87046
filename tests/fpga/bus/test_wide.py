"""Counts, targets and numbers of more than 32 bits: two registers each."""

import pytest
from libraries import skip_without

skip_without("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")

from fpga import Datapath, DatapathError, Program
from fpga.bus import make_simulated_bus
from fpga.count_action import parse_text
from fpga.registers import Access, make_register_map

TEXT = """
module wide {
  inputs:  { number n of 32 bits; stream x of 48 bits buffered }
  counts:  { total: sum n over cycles to far width 48; beats: sum x.valid over cycles to each width 40 }
  targets: { far: 200000000000000 width 48; each: 1 width 40 }
  actions: { on beats: store x.data as kept; on beats: stream x.data as out }
}
"""


@pytest.fixture
def loaded():
    datapath = parse_text(TEXT, "wide.ca").datapath
    driver = Datapath(make_simulated_bus(datapath, "reference"))
    driver.load(Program(datapath, ({}, {"wide.far": 2**47 + 5, "wide.each": 2})))
    return driver


def test_the_upper_bits_have_a_register_of_their_own():
    table = make_register_map(parse_text(TEXT, "wide.ca").datapath)
    low, high = table["TARGET", "wide", "far"], table["TARGET", "wide", "far", "HIGH"]
    assert high.offset == low.offset + 4
    assert high.reset_value << 32 | low.reset_value == 200_000_000_000_000
    assert (low.width, high.width, high.access) == (32, 16, Access.WRITE)
    assert ("OUT", "wide", "kept", "HIGH") in table
    assert ("TARGET", "wide", "each", "HIGH") in table


def test_samples_of_48_bits_go_through(loaded):
    assert loaded.run({"x": [2**48 - 1]})["wide.out"].tolist() == [[2**48 - 1]]
    assert loaded.outputs()["wide.kept"] == 2**48 - 1


def test_a_target_of_48_bits_is_put_in_force_at_once(loaded):
    loaded.use(1)
    table = loaded.registers
    words = [loaded.bus.read32(table["TARGET", "wide", "far", *end].offset) for end in ([], ["HIGH"])]
    assert words[1] << 32 | words[0] == 2**47 + 5


@pytest.mark.slow
def test_a_count_that_carries_between_two_reads_is_read_right(loaded):
    loaded.set_input("n", 100_000_007)
    read = [loaded.counts()["wide.total"] for _ in range(300)]
    assert read == sorted(read)
    assert read[-1] > 2**34
    assert all(each % (100_000_007) == 0 for each in read), "halves of two counts"


def test_a_count_that_is_too_fast_is_not_read(loaded):
    loaded.set_input("n", 2**32 - 1)
    with pytest.raises(DatapathError, match="changes faster than it can be read"):
        loaded.counts()
