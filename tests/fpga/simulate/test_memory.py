"""Memories (R25) in both simulators: a histogram of random beats, loads, resets and addresses outside."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without

skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")

from fpga.count_action import load, parse_text
from fpga.count_action.ports import make_ports
from fpga.count_action.simulate import ReferenceSimulator, compile_datapath
from fpga.count_action.simulate.port_values import write_series

HISTOGRAM = Path(__file__).resolve().parents[1] / "language" / "newcomers" / "histogram.ca"


def fast(datapath):
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    return compile_datapath(datapath)


SIMULATORS = (ReferenceSimulator, fast)


def rows_of(datapath, cycles, **series):
    """Return rows in which the ports have these values, and all others are 0."""
    ports = make_ports(datapath)
    rows = np.zeros((cycles, ports.input_column_count), np.uint64)
    for name, values in series.items():
        write_series(rows, ports.find_input(f"{name}_i"), values)
    return rows


@pytest.mark.parametrize("make", SIMULATORS)
def test_a_histogram_counts_every_beat_of_a_run_without_pauses(make):
    datapath = load(HISTOGRAM).datapath
    generator = np.random.default_rng(7)
    samples = generator.integers(0, 4, 500).tolist()
    valid = (generator.random(500) < 0.8).astype(int).tolist()
    taken = Counter(sample for sample, beat in zip(samples, valid, strict=True) if beat)
    assert sum(one == other for one, other in pairwise(samples)) > 100
    simulator = make(datapath)
    simulator.run(rows_of(datapath, 500, x_valid=valid, x_data=samples))
    simulator.run(rows_of(datapath, 4))
    addresses = [0, 1, 2, 3, 0]
    shown = simulator.run(rows_of(datapath, 5, histogram_bins_address=addresses))
    column = make_ports(datapath).find_output("histogram_bins_o").column
    assert shown[1:, column].tolist() == [taken[place] for place in range(4)]


@pytest.mark.parametrize("make", SIMULATORS)
def test_words_loaded_without_a_cycle_survive_a_reset(make):
    text = """module m { inputs: { flag go; number at of 3 bits } memory w: 5 of 48 bits;
      counts: { sum go } targets: { 1 } actions: { read w[at] as word } }"""
    datapath = parse_text(text, "m.ca").datapath
    simulator = make(datapath)
    for address in (0, 4, 5, 9):  # the memory has no words 5 and 9
        simulator.load_word("m", "w", address, (1 << 48) - 1 - address)
    simulator.reset()
    rows = rows_of(datapath, 5, go=[1] * 5, at=[0, 4, 5, 7, 1])
    column = make_ports(datapath).find_output("m_word_o").column
    assert simulator.run(rows)[:, column].tolist() == [0, (1 << 48) - 1, (1 << 48) - 5, 0, 0]
    with pytest.raises(KeyError, match=r"no memory m\.v; there are: m\.w"):
        simulator.load_word("m", "v", 0, 0)
