"""Memories through registers: the driver loads words, and reads back what a datapath has stored."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without

skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")

from fpga import Datapath, Program
from fpga.bus import make_simulated_bus
from fpga.count_action import load, parse_text
from fpga.registers.register_list import COMMIT, HOLD, RESET

HISTOGRAM = Path(__file__).resolve().parents[1] / "language" / "newcomers" / "histogram.ca"
LOOKUP = """module lookup {
  inputs: { stream x of 3 bits }
  memory curve: 5 of 40 bits;
  counts: { got: sum x.valid over cycles; next: sum read over cycles }
  targets: { 1 }
  actions: { on got: read curve[x.data] as word; on got: pulse read; on next: store word as last }
}"""
ENGINES = ("reference", "fast")


def driver_of(datapath, engine):
    if engine == "fast":
        pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    driver = Datapath(make_simulated_bus(datapath, engine))
    driver.load(Program(datapath))
    return driver


@pytest.mark.parametrize("engine", ENGINES)
def test_a_histogram_is_read_back(engine):
    samples = np.random.default_rng(1).integers(0, 6, 60).tolist()
    driver = driver_of(load(HISTOGRAM).datapath, engine)
    driver.run(samples)
    counted = Counter(samples)
    assert driver.read_memory("histogram", "bins") == [counted[place] for place in range(256)]
    driver.load_memory("histogram", "bins", [7, 8], start=2)
    assert driver.read_memory("histogram", "bins", 1, 4) == [counted[1], 7, 8, counted[4]]
    driver.reset()
    assert driver.read_memory("histogram", "bins", 2, 2) == [7, 8], "a reset keeps the words"


@pytest.mark.parametrize("engine", ENGINES)
def test_words_of_two_registers_are_loaded_and_looked_up(engine):
    datapath = parse_text(LOOKUP, "lookup.ca").datapath
    driver = driver_of(datapath, engine)
    words = [1, 1 << 32, (1 << 40) - 1, 0x12_3456_789A, 5]
    driver.load_memory("lookup", "curve", words)
    assert driver.read_memory("lookup", "curve") == words
    for address, word in [*enumerate(words), (5, 0), (7, 0)]:
        driver.run([address])
        assert driver.outputs()["lookup.last"] == word


@pytest.mark.parametrize("engine", ENGINES)
def test_words_are_loaded_before_the_first_cycle(engine):
    text = """module m { memory w: 4 of 8 bits; counts: { sum 1 over cycles } targets: { 1 }
      actions: { read w[3] as first } }"""
    driver = driver_of(datapath := parse_text(text, "m.ca").datapath, engine)
    driver.load(Program(datapath), memories={"m.w": [9, 8, 7, 6]})
    driver.counts()  # one cycle, whose fire reads the word
    assert driver.outputs() == {"m.first": 6}


@pytest.mark.parametrize("held", [False, True])
def test_the_address_wraps_in_a_hold_too(held):
    text = """module m { memory w: 4 of 8 bits; counts: { sum 1 over cycles } targets: { 1 }
      actions: { read w[3] as first } }"""
    driver = driver_of(parse_text(text, "m.ca").datapath, "reference")
    registers = {each.name: each.offset for each in driver.registers}
    driver.bus.write32(registers["CONTROL"], (RESET | HOLD) * held)
    driver.bus.write32(registers["MEMORY_m_w_ADDRESS"], 3)
    for word in (7, 9):
        driver.bus.write32(registers["MEMORY_m_w_LOAD"], word)
    driver.bus.write32(registers["CONTROL"], COMMIT)
    assert driver.read_memory("m", "w") == [9, 0, 0, 7]


def test_words_that_do_not_fit_keep_the_program():
    datapath = parse_text(LOOKUP, "lookup.ca").datapath
    driver = driver_of(datapath, "reference")
    for memories in ({"lookup.curv": [1]}, {"lookup.curve": [1 << 40]}, {"lookup.curve": [0] * 6}):
        with pytest.raises(ValueError, match=r"lookup\.curve?"):
            driver.load(Program(datapath), memories=memories)
    assert driver.outputs()["lookup.last"] == 0


def test_what_does_not_fit_is_refused_before_anything_is_written():
    driver = driver_of(parse_text(LOOKUP, "lookup.ca").datapath, "reference")
    with pytest.raises(ValueError, match=r"lookup\.curve has words 0 to 4, not 3 to 5"):
        driver.load_memory("lookup", "curve", [1, 2, 3], start=3)
    with pytest.raises(ValueError, match=r"words of 40 bits: 1099511627776 does not fit"):
        driver.load_memory("lookup", "curve", [1, 1 << 40])
    with pytest.raises(ValueError, match=r"no memory lookup\.curv; there are: lookup\.curve"):
        driver.read_memory("lookup", "curv")
    with pytest.raises(ValueError, match=r"has words 0 to 4, not 4 to 5"):
        driver.read_memory("lookup", "curve", 4, 2)
    assert driver.read_memory("lookup", "curve") == [0] * 5


def test_the_inputs_of_a_load_are_no_inputs_of_the_driver():
    driver = driver_of(parse_text(LOOKUP, "lookup.ca").datapath, "reference")
    with pytest.raises(ValueError, match=r"no input flag or number 'lookup_curve_load'"):
        driver.set_input("lookup_curve_load", 1)
    names = [each.name for each in driver.registers if "curve" in each.name]
    assert names == [f"MEMORY_lookup_curve_{each}" for each in ("ADDRESS", "LOAD", "WORD")]
    assert [each.word_count for each in driver.registers if "curve" in each.name] == [1, 2, 2]
