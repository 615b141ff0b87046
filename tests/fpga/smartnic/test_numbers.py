"""The smartNIC's float arithmetic against numpy's float32, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from needs import needs

import fpga
from fpga.count_action.ports import Port, Ports
from fpga.hdl import explain_missing
from fpga.hdl.design import Design

RTL = Path(fpga.__file__).parent / "rtl"
LATENCY = {"float_product": 7, "float_steps": 14}
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float32).tiny)


TOP = """module numbers (
  input  logic        clk_i, rst_i,
  input  logic        whole_valid_i,
  input  logic [23:0] whole_i,
  input  logic [31:0] scale_i,
  input  logic        real_valid_i,
  input  logic [31:0] real_i, step_i,
  output logic        product_valid_o,
  output logic [31:0] product_o,
  output logic        steps_valid_o,
  output logic [7:0]  steps_o
);
  float_product u_product (.clk_i, .rst_i, .valid_i(whole_valid_i), .whole_i, .scale_i,
                           .valid_o(product_valid_o), .product_o);
  float_steps u_steps (.clk_i, .rst_i, .valid_i(real_valid_i), .real_i, .step_i, .valid_o(steps_valid_o), .steps_o);
endmodule
"""
"""Both blocks, so that one build serves all."""
INPUTS = {"whole_valid_i": 1, "whole_i": 24, "scale_i": 32, "real_valid_i": 1, "real_i": 32, "step_i": 32}
OUTPUTS = {"product_valid_o": 1, "product_o": 32, "steps_valid_o": 1, "steps_o": 8}


def design() -> Design:
    blocks = [(f"{name}.sv", (RTL / f"{name}.sv").read_text(encoding="ascii")) for name in LATENCY]
    inputs, outputs = (
        tuple(Port(name, width, place) for place, (name, width) in enumerate(widths.items()))
        for widths in (INPUTS, OUTPUTS)
    )
    return Design("numbers", (*blocks, ("numbers.sv", TOP)), Ports(inputs, outputs))


def bits(values) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def send(run, name: str, first, second, valid=1) -> np.ndarray:
    """Return valid and result for every pair of operands, a fixed number of cycles after it; before them is nothing."""
    latency, block = LATENCY[name], list(LATENCY).index(name)
    rows = np.zeros((len(first) + latency, len(INPUTS)), np.uint64)
    operands = rows[: len(first), 3 * block : 3 * block + 3]
    operands[:, 0] = valid
    operands[:, 1] = np.asarray(first) & 0xFFFFFF if name == "float_product" else bits(first)
    operands[:, 2] = bits(second)
    out = run(rows)[:, 2 * block : 2 * block + 2].astype(np.uint32)
    assert not out[:latency].any()
    return out[latency:]


@pytest.fixture(scope="module")
@needs("hdl")
def verilated():
    """Return `verilated(name, first, second)`: the results of a block under Verilator, one a cycle."""
    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)
    from fpga.hdl import verilator

    simulator = verilator.build(design(), optimise_flag="-O1")

    def run(name, first, second):
        simulator.reset()
        found = send(simulator.run, name, first, second)
        assert found[:, 0].all()
        return found[:, 1]

    yield run
    simulator.close()


@pytest.fixture
@needs("hdl")
def simulated():
    """Return `simulated(name, first, second, valid)`: valid and results of a block under Icarus."""
    if reason := explain_missing("iverilog", "vvp"):
        pytest.skip(reason)
    from fpga.hdl import icarus

    return lambda *operands: send(lambda rows: icarus.run(design(), rows), *operands)


def expected_products(whole, scale) -> np.ndarray:
    return bits(np.asarray(whole).astype(np.float32) * np.asarray(scale, np.float32))


def expected_steps(real, step) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        quotient = np.asarray(real, np.float32) / np.asarray(step, np.float32)
    return np.clip(np.rint(quotient), 0, 255).astype(np.uint32)


def random_scales(random, count, exponents=(-126, 104)) -> np.ndarray:
    """Return normal floats; a third of them has mantissas near the ends, where roundings carry."""
    mantissas = random.integers(0, 2**23, count)
    edge = random.integers(0, 3, count)
    mantissas = np.where(edge == 1, random.integers(0, 8, count), mantissas)
    mantissas = np.where(edge == 2, 2**23 - 1 - random.integers(0, 8, count), mantissas)
    biased = random.integers(exponents[0] + 127, exponents[1] + 128, count)
    return (biased << 23 | mantissas).astype(np.uint32).view(np.float32)


def product_cases(random, count):
    """Return whole numbers of all sizes, and scales; products are normal, some are ties."""
    size = random.integers(0, 24, count)
    whole = random.integers(-(2**23) + 1, 2**23, count) >> size
    powers = (1 << random.integers(0, 23, count)) + random.integers(-1, 2, count)
    whole = np.where(random.integers(0, 4, count) == 0, powers, whole)
    edges = [0, 1, -1, 2, 3, 2**22, 2**23 - 1, -(2**23) + 1, -(2**23)]
    whole = np.concatenate([whole, np.repeat(edges, 200)])
    return whole, random_scales(random, len(whole), (-126, 103))


def step_cases(random, count):
    """Return real numbers and steps whose quotients are up to a few last places from n / 2, and others."""
    step = random_scales(random, count, (-100, 100))
    halves = random.integers(0, 520, count)
    near = (halves / 2 * step.astype(np.float64)).astype(np.float32)
    nudged = (near.view(np.int32) + random.integers(-3, 4, count, np.int32)).view(np.float32)
    others = np.float32(random.normal(60, 100, count)) * step
    real = np.where(random.integers(0, 4, count) > 0, np.where(halves > 0, nudged, 0), others)
    anywhere = random_scales(random, count // 4)
    return np.concatenate([real, anywhere, -anywhere]).astype(np.float32), np.concatenate(
        [step, random_scales(random, count // 4), step[: count // 4]]
    )


def step_edges():
    """Return quotients at and next to every half, for steps that are powers of two and for others."""
    halves = np.arange(1, 520, dtype=np.float32) / 2
    around = np.concatenate(
        [np.nextafter(halves, np.float32(0)), halves, np.nextafter(halves, np.float32(1e9))]
    )
    steps = np.float32([1, 2**-20, 2**90, 3, 1 / 3, 0.1, 1.9999999, SMALLEST * 4, 1e30])
    real = np.concatenate([around * step for step in steps] + [np.float32([0, -0.0, -1, SMALLEST, LARGEST])])
    return real, np.concatenate([np.repeat(steps, len(around)), np.float32([1, 1, 1, LARGEST, SMALLEST])])


def double_roundings(random, count):
    """Return operands whose quotient is so near to a half that its float32 is that half.

    Rounding the quotient at once gives another number than rounding it to float32 first, for every other half.
    `2 * real = odd * step - error` in integers: the lowest bits of the step are such that the error is small, and
    the real number has 24 bits nevertheless.
    """
    odd = 2 * random.integers(64, 255, count) + 1
    step = random.integers(2**23, 2**24 - 2**9, count)
    error = 2 * random.integers(0, 8, count) - 7
    dropped = (
        np.array([int(each).bit_length() for each in odd * step]) - 24
    )  # bits of 2 * real that must be 0
    inverse = np.array([pow(int(each), -1, 2**9) for each in odd])
    modulus = 1 << dropped
    step += (error * inverse - step) % modulus
    real = (odd * step - error) / 2
    return real.astype(np.float32), step.astype(np.float32)


@pytest.fixture
def random():
    return np.random.default_rng(20)


@pytest.mark.long
@pytest.mark.hdl
def test_products_of_all_sizes(verilated, random):
    whole, scale = product_cases(random, 200_000)
    expected = expected_products(whole, scale)
    assert (verilated("float_product", whole, scale) == expected).all()
    exact = whole.astype(np.float64) * scale
    lost = np.abs(expected.view(np.float32) - exact)
    assert np.count_nonzero(lost) > 100_000  # rounded
    carries = (expected & 0x7FFFFF == 0) & (lost > 0)
    assert np.count_nonzero(carries) > 50  # rounded up to a power of two


@pytest.mark.long
@pytest.mark.hdl
def test_products_that_are_ties(verilated, random):
    """A product of 25 bits, odd, is a tie of two floats: 3 times a mantissa of 24 bits, say."""
    scale = (random.integers(2**22, 2**23, 50_000) * 2 + 1).astype(np.float32)
    factors = random.choice([3, -3, 5, -7, 12, 2**20 + 1], 50_000)
    exact = np.abs(factors.astype(np.int64)) * scale.astype(np.int64)
    beyond = np.array([int(each).bit_length() - 24 for each in exact])
    ties = exact % (1 << beyond) == 1 << (beyond - 1)
    assert np.count_nonzero(ties) > 5_000
    assert (verilated("float_product", factors, scale) == expected_products(factors, scale)).all()


@pytest.mark.long
@pytest.mark.hdl
def test_steps_near_halves_and_anywhere(verilated, random):
    real, step = step_cases(random, 200_000)
    expected = expected_steps(real, step)
    assert (verilated("float_steps", real, step) == expected).all()
    assert len(np.unique(expected)) == 256


@pytest.mark.long
@pytest.mark.hdl
def test_steps_next_to_every_half(verilated):
    real, step = step_edges()
    assert (verilated("float_steps", real, step) == expected_steps(real, step)).all()


@pytest.mark.long
@pytest.mark.hdl
def test_quotients_are_rounded_to_a_float_before_they_are_rounded_to_steps(verilated, random):
    real, step = double_roundings(random, 50_000)
    expected = expected_steps(real, step)
    at_once = np.rint(real.astype(np.float64) / step)
    assert np.count_nonzero(at_once < expected) > 10_000
    assert np.count_nonzero(at_once > expected) > 10_000
    assert (verilated("float_steps", real, step) == expected).all()


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
def test_ten_million_numbers_of_each_kind(verilated, seed):
    random = np.random.default_rng(seed)
    whole, scale = product_cases(random, 500_000)
    assert (verilated("float_product", whole, scale) == expected_products(whole, scale)).all()
    for real, step in (step_cases(random, 400_000), double_roundings(random, 100_000)):
        assert (verilated("float_steps", real, step) == expected_steps(real, step)).all()


@pytest.mark.hdl
def test_both_blocks_under_icarus(simulated, random):
    whole, scale = (np.concatenate([each[:300], each[-40:]]) for each in product_cases(random, 300))
    assert (simulated("float_product", whole, scale)[:, 1] == expected_products(whole, scale)).all()
    cases = [
        step_cases(random, 300),
        tuple(each[::40] for each in step_edges()),
        double_roundings(random, 100),
    ]
    real, step = (np.concatenate(each) for each in zip(*cases, strict=True))
    assert (simulated("float_steps", real, step)[:, 1] == expected_steps(real, step)).all()


@pytest.mark.hdl
@pytest.mark.parametrize("name", LATENCY)
def test_gaps_stay_gaps_and_their_results_are_0(simulated, random, name):
    first, second = product_cases(random, 100) if name == "float_product" else step_cases(random, 100)
    valid = random.integers(0, 2, len(first))
    out = simulated(name, first, second, valid)
    expected = (expected_products if name == "float_product" else expected_steps)(first, second)
    assert (out[:, 0] == valid).all()
    assert (out[:, 1] == np.where(valid, expected, 0)).all()
