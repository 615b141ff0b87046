"""Every hand-written block of the datapath on its own, under Icarus, against numpy."""

import numpy as np
import pytest

from fpga.photonic_mac.network import Optics, normalise

pytestmark = pytest.mark.hdl


def packed(rows, width):
    """Return rows of numbers as one number each, the first lowest."""
    return [sum((int(value) % 2**width) << width * place for place, value in enumerate(row)) for row in rows]


def unpacked(words, width, number, *, signed=False):
    values = [[word >> width * place & 2**width - 1 for place in range(number)] for word in words]
    return signed_values(values, width) if signed else np.array(values)


def signed_values(values, width):
    numbers = np.array(values)
    return np.where(numbers >= 2 ** (width - 1), numbers - 2**width, numbers)


@pytest.mark.long
@pytest.mark.parametrize(("stages", "width"), [(4, 9), (2, 5), (1, 9)])
def test_the_adder_tree_adds_without_loss(unit, stages, width):
    lanes = 2**stages
    block = unit(
        "adder_tree", {"samples_i": lanes * width}, {"sum_o": width + stages}, Stages=stages, Width=width
    )
    random = np.random.default_rng(2)
    samples = random.integers(-(2 ** (width - 1)), 2 ** (width - 1), (300, lanes))
    samples[:2] = [[-(2 ** (width - 1))] * lanes, [2 ** (width - 1) - 1] * lanes]
    seen = signed_values(block.run({"samples_i": packed(samples, width)})["sum_o"], width + stages)
    assert seen[stages:].tolist() == samples.sum(axis=1)[:-stages].tolist()


@pytest.mark.parametrize("lanes", [16, 4])
def test_products_get_their_signs_and_those_not_kept_are_zero(unit, lanes):
    block = unit(
        "signed_products", {"magnitudes_i": 8 * lanes, "signs_i": lanes, "keep_i": lanes},
        {"products_o": 9 * lanes}, Lanes=lanes, Width=8,
    )  # fmt: skip
    random = np.random.default_rng(3)
    magnitudes = random.integers(0, 256, (200, lanes))
    signs, keep = random.integers(0, 2, (2, 200, lanes))
    driven = {"magnitudes_i": packed(magnitudes, 8), "signs_i": packed(signs, 1), "keep_i": packed(keep, 1)}
    seen = unpacked(block.run(driven)["products_o"], 9, lanes, signed=True)
    assert seen[1:].tolist() == (magnitudes * np.where(signs, 1, -1) * keep)[:-1].tolist()


def test_the_maximum_is_signed_and_the_first_of_equals(unit):
    block = unit(
        "running_maximum", {"clear_i": 1, "valid_i": 1, "sample_i": 16, "index_i": 4},
        {"largest_o": 16, "index_o": 4}, Width=16, IndexWidth=4,
    )  # fmt: skip
    samples = [-7, -3, -3, 5, 9, 9, -32768, 32767, 0, 0]
    driven = {
        "clear_i": [0] * 7 + [1, 0, 0], "valid_i": [1, 1, 1, 1, 0, 1, 1, 1, 0, 1],
        "sample_i": [each % 65536 for each in samples], "index_i": range(10),
    }  # fmt: skip
    seen = block.run(driven)
    assert signed_values(seen["largest_o"], 16).tolist() == [0, -7, -3, -3, 5, 5, 9, 9, 0, 0]
    assert seen["index_o"] == [0, 0, 1, 1, 3, 3, 5, 5, 0, 0]


def test_the_highest_bit_of_every_word(unit):
    block = unit("highest_bit", {"word_i": 8}, {"place_o": 3}, clocks=(), Width=8, PlaceWidth=3)
    seen = block.run({"word_i": range(256)})["place_o"]
    assert seen == [max(word.bit_length() - 1, 0) for word in range(256)]


def test_scaling_is_that_of_the_model(unit):
    block = unit("normalised_activation", {"result_i": 16, "highest_i": 4}, {"activation_o": 8}, clocks=())
    random = np.random.default_rng(4)
    largest = 2 ** random.integers(0, 15, 400) + random.integers(0, 2**14, 400) // 2 ** random.integers(
        0, 15, 400
    )
    other = random.integers(np.where(random.random(400) < 0.2, -32768, 0), largest + 1)
    expected = [int(normalise(np.array([pair], np.int16))[0, 1]) for pair in zip(largest, other, strict=True)]
    driven = {
        "result_i": [int(each) % 65536 for each in other],
        "highest_i": [int(each).bit_length() - 1 for each in largest],
    }
    assert block.run(driven)["activation_o"] == expected
    assert sum(0 < each < 255 for each in expected) > 200


def test_the_queue_gives_words_in_their_order_and_nothing_when_empty(unit):
    block = unit(
        "beat_queue", {"clear_i": 1, "push_i": 1, "word_i": 8, "pop_i": 1}, {"valid_o": 1, "word_o": 8},
        Width=8, Depth=4, PlaceWidth=2,
    )  # fmt: skip
    driven = {
        "push_i": [1, 1, 0, 0, 0, 1, 1, 1, 0, 0], "word_i": [11, 12, 0, 0, 0, 13, 14, 15, 0, 0],
        "pop_i": [1, 1, 0, 1, 1, 1, 0, 0, 0, 1], "clear_i": [0] * 8 + [1, 0],
    }  # fmt: skip
    seen = block.run(driven)
    assert seen["valid_o"] == [0, 1, 1, 1, 0, 0, 1, 1, 1, 0]
    assert seen["word_o"] == [0, 11, 12, 12, 0, 0, 13, 13, 13, 0]


def test_a_word_is_read_a_cycle_after_its_address(unit):
    inputs = {"write_i": 1, "write_address_i": 2, "word_i": 8, "read_address_i": 2}
    block = unit(
        "word_memory",
        inputs,
        {"word_o": 8},
        clocks=("clk_i",),
        shown_from=5,
        Width=8,
        Depth=4,
        AddressWidth=2,
    )
    driven = {
        "write_i": [1, 1, 1, 1, 0, 0, 0, 1, 0, 0], "write_address_i": [0, 1, 2, 3, 0, 0, 0, 2, 0, 0],
        "word_i": [10, 11, 12, 13, 99, 99, 99, 22, 0, 0], "read_address_i": [0, 0, 0, 0, 3, 2, 1, 2, 2, 2],
    }  # fmt: skip
    assert block.run(driven)["word_o"][5:] == [13, 12, 11, 12, 22]


def test_results_fill_rows_and_the_first_of_a_row_empties_it(unit):
    inputs = {
        "row_write_i": 1, "row_i": 1, "row_data_i": 64, "result_write_i": 1, "result_index_i": 3, "result_i": 16,
        "read_row_i": 1,
    }  # fmt: skip
    block = unit(
        "activation_memory", inputs, {"row_o": 64}, clocks=("clk_i",), shown_from=3,
        Lanes=4, LaneBits=2, Rows=2, RowBits=1,
    )  # fmt: skip
    driven = {
        "row_write_i": [1, 1] + [0] * 6, "row_i": [0, 1] + [0] * 6, "row_data_i": packed([[1, 2, 3, 4]], 16) * 8,
        "result_write_i": [0, 0, 1, 1, 1, 0, 0, 0], "result_index_i": [0, 0, 4, 5, 6, 0, 0, 0],
        "result_i": [0, 0, 70, 80, 90, 0, 0, 0], "read_row_i": [0, 0, 0, 1, 1, 1, 0, 0],
    }  # fmt: skip
    seen = unpacked(block.run(driven)["row_o"], 16, 4).tolist()
    assert seen[3:] == [[1, 2, 3, 4], [70, 0, 0, 0], [70, 80, 0, 0], [70, 80, 90, 0], [1, 2, 3, 4]]


LANES = 16


@pytest.mark.long
@pytest.mark.parametrize(
    "optics",
    [
        Optics(delay=0, shift=0),
        Optics(delay=3, shift=5),
        Optics(delay=15, shift=15, gain=131),
        Optics(delay=1, shift=1, gain=511),
        Optics(delay=2, shift=8, noise=True, seed=1234),
        Optics(delay=0, shift=0, gain=200, noise=True, seed=0x9E3779B9),  # a lane would begin with 0
    ],
)
def test_the_photonic_core_is_its_model(unit, optics):
    settings = {"delay_i": 4, "shift_i": 4, "gain_i": 9, "noise_i": 1, "seed_i": 32}
    settings |= {"apart_delay_i": 4, "apart_shift_i": 4}
    block = unit("photonic_core", {**settings, "activation_i": 256, "weight_i": 256}, {"samples_o": 256})
    random = np.random.default_rng(6)
    cycles = 120
    a, b = random.choice([0, 1, 128, 254, 255, *range(0, 256, 7)], (2, cycles, LANES))
    begun = 4  # the noise begins here
    given = {"delay_i": optics.delay, "shift_i": optics.shift, "gain_i": optics.gain, "seed_i": optics.seed}
    driven = {name: [value] * cycles for name, value in given.items()}
    driven |= {"apart_delay_i": [0] * cycles, "apart_shift_i": [0] * cycles}
    driven["noise_i"] = [optics.noise and cycle >= begun for cycle in range(cycles)]
    driven |= {"activation_i": packed(a << 7, 16), "weight_i": packed(b << 7, 16)}
    seen = unpacked(block.run(driven)["samples_o"], 16, LANES).ravel()
    light = optics.detect((a * b >> 8)[begun:].astype(np.int32), 0).ravel() << 7
    late = LANES * (begun + 1 + optics.delay) + optics.shift
    assert seen[late:].tolist() == light[: len(seen) - late].tolist()
