"""The chain of sixteen lanes that is measured: its text and its builder are one datapath, and it adds up."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from fpga.count_action import load
from fpga.count_action.ports import make_ports
from fpga.count_action.simulate import ReferenceSimulator, simulate
from fpga.count_action.simulate.port_values import read_series

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location(
        "count_action_benchmark", ROOT / "benchmarks" / "count_action.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_text_and_builder_are_the_same(benchmark):
    pytest.importorskip("lark")
    assert load(ROOT / "examples" / "count_action" / "chain16.ca").datapath == benchmark.chain16()


def test_dot_products(benchmark):
    """Every total is the sum of as many beats of sixteen products as the target said: by numpy, without cycles."""
    pytest.importorskip("numba")
    datapath = benchmark.chain16()
    ports, cycles = make_ports(datapath), 5000
    rows = benchmark.stimulus(datapath, cycles)
    rows[:, ports.find_input("commit_i").column] = 0
    outputs = simulate(datapath, rows)
    assert np.array_equal(outputs[:300], ReferenceSimulator(datapath).run(rows[:300]))
    port = ports.find_input("product_data_i")
    samples = rows[:, port.column : port.column + port.word_count].copy().view(np.int16).astype(np.int64)
    taken = np.array(read_series(ports.find_output("product_ready_o"), outputs)) == 0xFFFF
    beats = samples[taken].sum(axis=1)
    totals = beats[: len(beats) // 49 * 49].reshape(-1, 49).sum(axis=1)
    left = np.array(read_series(ports.find_output("dot_total_valid_o"), outputs)) & rows[
        :, ports.find_input("dot_total_ready_i").column
    ].astype(int)
    seen = (
        np.array(read_series(ports.find_output("dot_total_data_o"), outputs))
        .astype(np.uint32)
        .view(np.int32)[left == 1]
    )
    assert len(totals) - len(seen) in {0, 1}
    assert len(seen) > 60
    assert np.array_equal(totals[: len(seen)], seen)
