"""Perfect scaling in the RTL: 255 / largest in float64, and activations that numpy rounds to even."""

from pathlib import Path

import numpy as np
import pytest
from needs import needs

import fpga
from fpga.count_action.ports import Port, Ports
from fpga.hdl import explain_missing
from fpga.hdl.design import Design

RTL = Path(fpga.__file__).parent / "rtl"
BLOCKS = ("highest_bit", "normalised_activation", "perfect_factor", "scaled_activation")
LATENCY = 4
FACTOR_CYCLES = 29
TOP = """module scaling (
  input logic clk_i, input logic rst_i, input logic start_i, input logic [19:0] largest_i, input logic [19:0] result_i,
  output logic ready_o, output logic [7:0] activation_o
);
  logic [4:0]  places;
  logic [53:0] factor;
  perfect_factor u_factor (.clk_i, .rst_i, .start_i, .largest_i, .ready_o, .places_o(places), .factor_o(factor));
  scaled_activation u_activation (
    .clk_i, .perfect_i(1'b1), .result_i, .highest_i(5'd0), .places_i(places), .factor_i(factor), .activation_o
  );
endmodule
"""
PORTS = Ports(
    (Port("start_i", 1, 0), Port("largest_i", 20, 1), Port("result_i", 20, 2)),
    (Port("ready_o", 1, 0), Port("activation_o", 8, 1)),
)


@pytest.fixture(scope="module")
@needs("hdl")
def scaling():
    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)
    from fpga.hdl import verilator

    sources = [(f"{name}.sv", (RTL / f"{name}.sv").read_text(encoding="ascii")) for name in BLOCKS]
    return verilator.build(Design("scaling", (*sources, ("scaling.sv", TOP)), PORTS), optimise_flag="-O1")


def activations(scaling, largest, results):
    rows = np.zeros((1 + FACTOR_CYCLES + len(results) + LATENCY, 3), np.uint64)
    rows[0, :2] = 1, largest
    rows[1 + FACTOR_CYCLES : 1 + FACTOR_CYCLES + len(results), 2] = np.asarray(results) & 0xFFFFF
    outputs = scaling.run(rows)
    assert outputs[1:FACTOR_CYCLES, 0].sum() == 0
    assert outputs[1 + FACTOR_CYCLES :, 0].all()
    return outputs[1 + FACTOR_CYCLES + LATENCY :, 1].astype(np.int64)


def cases(seed, count):
    """Yield a largest number and results up to it, half of them such that 255 times their share ends in a half."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        largest = int(random.integers(1, 1 << int(random.integers(1, 20))))
        if random.random() < 0.6:
            largest = min(30 * int(random.integers(1, 17_000)), (1 << 19) - 1)
        results = np.concatenate(
            [random.integers(0, largest + 1, 40), -random.integers(0, 1000, 4), [largest, 0]]
        )
        halves = (2 * np.arange(255) + 1) * largest
        yield largest, np.concatenate([results, halves[halves % 510 == 0] // 510])


@pytest.mark.translates
@pytest.mark.parametrize("count", [300, pytest.param(60_000, marks=pytest.mark.long)])
def test_activations_are_those_of_float64(scaling, count):
    scaling.reset()
    odd, halves = 0, 0
    for largest, results in cases(count, count):
        exact = 255 * np.maximum(results, 0) / largest
        expected = np.rint(np.maximum(results, 0) * (255 / largest)).astype(np.int64)
        assert (activations(scaling, largest, results) == expected).all()
        is_half = 510 * np.maximum(results, 0) % (2 * largest) == largest
        halves += int(is_half.sum())
        odd += int((is_half & (expected != np.rint(exact))).sum())
    assert halves > 10 * count
    assert odd > count / 3  # halves that float64 does not round to even, as its factor is rounded


def test_the_cases_reach_every_activation():
    seen = set()
    for largest, results in cases(300, 300):
        seen |= set(np.rint(np.maximum(results, 0) * (255 / largest)).astype(int).tolist())
    assert seen == set(range(256))
