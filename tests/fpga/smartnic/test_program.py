"""Programs of the smartNIC: their words in memory and tables, what does not fit, and the model of their answers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga.photonic_mac import layer_results as published_results
from fpga.photonic_mac.network import Network
from fpga.program import ProgramError
from fpga.smartnic import (
    NicLayer,
    NicModel,
    NicProgram,
    compute_scores,
    layer_results,
    pack_layers,
    pack_look_up,
    pack_memory,
    pack_models,
)


def layer_of(random, outputs, inputs, *, published=False, step=1.0, has_relu=False):
    weights = random.integers(-255, 256, (outputs, inputs))
    if published:
        return NicLayer(weights, np.zeros(outputs), np.ones(outputs), has_relu=has_relu)
    bias = random.integers(-(2**22), 2**22, outputs)
    scale = np.float32(2) ** random.integers(-20, 20, outputs) * random.uniform(1, 2, outputs)
    return NicLayer(weights, bias, scale, np.float32(step), has_relu=has_relu)


def model_of(random, sizes, *, name="m", published=False, wrap=False):
    layers = [
        layer_of(
            random, outputs, inputs, published=published, has_relu=bool(random.integers(2)),
            step=1.0 if published or place + 2 == len(sizes) else random.uniform(1, 1e6),
        )
        for place, (inputs, outputs) in enumerate(itertools.pairwise(sizes))
    ]  # fmt: skip
    return NicModel(name, tuple(layers), published, wrap, random.integers(0, 256, 256))


@st.composite
def programs(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = st.lists(st.integers(1, 40), min_size=2, max_size=6)
    return NicProgram(
        tuple(
            model_of(
                random,
                draw(sizes),
                name=f"m{number}",
                published=draw(st.booleans()),
                wrap=draw(st.booleans()),
            )
            for number in range(draw(st.integers(1, 5)))
        )
    )


def take(word: int, low: int, high: int) -> int:
    """Return the bits `[high:low]` of a word, as the page writes them."""
    return word >> low & (1 << (high - low + 1)) - 1


def as_integers(table) -> list[int]:
    return [sum(int(part) << 64 * place for place, part in enumerate(word)) for word in table]


def as_float(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


def unpack(program, number):
    """Return the model with this number from memory and tables alone, by the ranges of the page."""
    memory, look_up = as_integers(pack_memory(program)), pack_look_up(program)
    entry, layers = as_integers(pack_models(program))[number], as_integers(pack_layers(program))
    assert take(entry, 127, 127) == 1
    place, inputs = take(entry, 0, 31), take(entry, 56, 71)
    end = place + take(entry, 32, 55)
    found = []
    first, count = take(entry, 72, 79), take(entry, 80, 83)
    for word in layers[first : first + count]:
        outputs, beats = take(word, 0, 15), take(word, 16, 31)
        assert take(word, 32, 55) == outputs * beats
        assert take(word, 89, 89) == (len(found) + 1 == count)
        rows = [memory[place + row * beats : place + (row + 1) * beats] for row in range(outputs)]
        place += outputs * beats
        found.append(
            NicLayer(
                [_weights(row)[:inputs] for row in rows],
                [take(row[0], 144, 167) - (take(row[0], 167, 167) << 24) for row in rows],
                [as_float(take(row[0], 168, 199)) for row in rows],
                as_float(take(word, 56, 87)),
                bool(take(word, 88, 88)),
            )
        )
        assert not any(any(_weights(row)[inputs:]) for row in rows)
        inputs = outputs
    assert place == end
    published, wrap = bool(take(entry, 84, 84)), bool(take(entry, 85, 85))
    return NicModel("unpacked", found, published, wrap, look_up[256 * number : 256 * number + 256])


def _weights(row: list[int]) -> list[int]:
    return [
        take(word, 8 * lane, 8 * lane + 7) * (1 if take(word, 128 + lane, 128 + lane) else -1)
        for word in row
        for lane in range(16)
    ]


@pytest.mark.slow
@given(programs())
def test_words_of_memory_and_tables_are_the_program(program):
    for number, model in enumerate(program.models):
        found = unpack(program, number)
        assert (found.follows_published_datapath, found.wraps_sums) == (
            model.follows_published_datapath,
            model.wraps_sums,
        )
        assert (found.look_up_table == model.look_up_table).all()
        for mine, other in zip(found.layers, model.layers, strict=True):
            for name in ("weights", "bias", "scale", "step", "has_relu"):
                assert np.array_equal(getattr(mine, name), getattr(other, name)), name
    assert not pack_models(program)[len(program.models) :].any()
    assert not pack_layers(program)[sum(len(model.layers) for model in program.models) :].any()
    assert all(base % 32 == 0 for base in program.model_bases)


def test_words_of_a_small_model():
    weights = np.zeros((2, 17), int)
    weights[0, :3], weights[1, 16] = (1, -2, 255), -3
    model = NicModel("small", (NicLayer(weights, [-1, 5], [1.0, 2.0], has_relu=True),), wraps_sums=True)
    program = NicProgram((model, replace(model, wraps_sums=False)))
    memory = as_integers(pack_memory(program))
    assert [f"{word:064x}" for word in memory[:4]] == [
        "00000000000000" + "3f800000" + "ffffff" + "fffd" + "00" * 13 + "ff0201",
        "0" * 28 + "ffff" + "00" * 16,
        "00000000000000" + "40000000" + "000005" + "ffff" + "00" * 16,
        "0" * 28 + "fffe" + "00" * 15 + "03",
    ]
    assert not any(memory[4:32])
    assert memory[32:] == memory[:4]
    assert [f"{word:032x}" for word in as_integers(pack_models(program))[:3]] == [
        "80000000" + "002100" + "0011" + "000004" + "00000000",
        "80000000" + "000101" + "0011" + "000004" + "00000020",
        "0" * 32,
    ]
    assert (
        f"{as_integers(pack_layers(program))[0]:032x}"
        == "00000000" + "03" + "3f800000" + "000004" + "0002" + "0002"
    )
    assert pack_look_up(program).tolist() == [*range(256)] * 2


def test_an_empty_program():
    program = NicProgram(())
    assert [pack(program).size for pack in (pack_memory, pack_models, pack_layers, pack_look_up)] == [
        0,
        32,
        128,
        0,
    ]


def plain(outputs, inputs, **changes):
    given = {"bias": np.zeros(outputs), "scale": np.ones(outputs), **changes}
    return NicLayer(np.ones((outputs, inputs), int), **given)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bias": [0]}, r"fc: bias has shape \(1,\), not \(2,\)"),
        ({"scale": [1, 0]}, "fc: scales must be positive normal float32"),
        ({"scale": [1, -1]}, "fc: scales must be positive normal float32"),
        ({"scale": [1, 1e-40]}, "fc: scales must be positive normal float32"),
        ({"scale": [1, np.nan]}, "fc: scales must be positive normal float32"),
        ({"step": np.float32(np.inf)}, "fc: steps must be positive normal float32"),
        ({"bias": [0, -(2**23)]}, "fc: biases must be less than 8388608"),
    ],
)
def test_a_layer_that_does_not_fit_is_refused(changes, words):
    with pytest.raises(ProgramError, match=words):
        plain(2, 3, **changes, name="fc")


@pytest.mark.parametrize(
    ("weights", "words"), [(np.ones(3), "shape"), (np.ones((0, 3)), "shape"), ([[256]], "-255 to 255")]
)
def test_weights_that_do_not_fit_are_refused(weights, words):
    with pytest.raises(ProgramError, match=words):
        NicLayer(weights, np.zeros(len(weights)), np.ones(len(weights)))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([], "alexnet: 0 layers; the NIC takes 1 to 15"),
        ([plain(1, 1)] * 16, "alexnet: 16 layers; the NIC takes 1 to 15"),
        ([plain(2, 1025)], "alexnet: layer 0 has 1025 inputs; the NIC takes up to 1024"),
        (
            [plain(1025, 2), plain(2, 1025)],
            "alexnet: layer 0 has 1025 outputs; the NIC takes up to 1024 activations",
        ),
        (
            [plain(1, 1), plain(357, 1, name="fc")],
            "alexnet: fc has 357 outputs; the NIC takes up to 356 scores",
        ),
        ([plain(2, 3), plain(2, 3)], "alexnet: layer 0 has 2 outputs, and the next layer takes 3"),
        ([plain(1, 1, step=np.float32(2))], "alexnet: the step after the last layer must be 1"),
        (
            [plain(2, 1024, bias=[0, 2**23 - 100], scale=[1, 1])],
            "alexnet: layer 0, row 1: sum and bias may reach 8649628; the NIC takes less than 8388608",
        ),
        ([plain(1, 600, scale=[3e38])], "alexnet: layer 0, row 0: scale 3.* gives results beyond float32"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_name(layers, words):
    with pytest.raises(ProgramError, match=words):
        NicModel("alexnet", tuple(layers))


def test_the_largest_sums_and_layers_that_fit():
    bias = 2**23 - 1 - 1024 * 255
    weights = np.full((1024, 1024), 255)
    first = NicLayer(weights, np.full(1024, bias), np.ones(1024), np.float32(2**15))
    model = NicModel("large", (first, plain(356, 1024)))
    assert layer_results(model, np.full(1024, 255, np.uint8))[0].max() == 2**23 - 1 - 1024
    assert NicProgram((model,)).word_count == (1024 + 356) * 64


@pytest.mark.parametrize("change", [{"bias": [1]}, {"scale": [2]}, {"step": np.float32(2)}])
def test_a_published_model_has_no_biases_scales_or_steps(change):
    with pytest.raises(ProgramError, match=r"alexnet: layer 0 is published"):
        NicModel("alexnet", (plain(1, 1, **change), plain(1, 1)), follows_published_datapath=True)


@pytest.mark.parametrize("table", [np.arange(255), np.arange(256) - 1, np.arange(256) + 1])
def test_a_look_up_table_that_does_not_fit_is_refused(table):
    with pytest.raises(ProgramError, match="alexnet: the look-up table"):
        NicModel("alexnet", (plain(1, 1),), look_up_table=table)


def test_more_models_or_layers_than_the_nic_holds_are_refused():
    one = NicModel("one", (plain(1, 1),))
    with pytest.raises(ProgramError, match="last: it is model 17; the NIC takes up to 16"):
        NicProgram((*[one] * 16, replace(one, name="last")))
    deep = replace(one, name="deep", layers=(plain(1, 1),) * 13)
    with pytest.raises(ProgramError, match="deep: with it there are 65 layers; the NIC takes 64"):
        NicProgram((deep,) * 5)


@given(st.integers(0, 2**32 - 1))
def test_published_models_that_wrap_answer_as_the_photonic_datapath(seed):
    random = np.random.default_rng(seed)
    model = replace(
        model_of(random, (40, 30, 20, 5), published=True, wrap=True),
        look_up_table=np.arange(256, dtype=np.uint8),
    )
    network = Network(tuple(layer.weights.astype(np.int32) for layer in model.layers))
    image = random.integers(0, 256, 40, np.uint8)
    for mine, other in zip(layer_results(model, image), published_results(network, image), strict=True):
        assert mine.tolist() == other[0].tolist()


def test_scores_of_a_model_by_hand():
    weights = [[10, -20], [255, 255], [-255, 0]]
    first = NicLayer(weights, [1, 0, 0], [0.5, 1, 1], np.float32(2), has_relu=True)
    last = NicLayer([[255, 0, 0], [0, 255, 0], [-255, -255, 0]], [0, 3, 1000], [1, 0.5, 0.25], has_relu=True)
    model = NicModel("hand", (first, last), look_up_table=255 - np.arange(256))
    # Activations 155 and 255; sums 6 - 19 + 1, 154 + 254, -154.
    assert [each.tolist() for each in layer_results(model, np.uint8([100, 0]))] == [
        [-12, 408, -154],
        [0, 206, 797],
    ]
    found, place = compute_scores(model, np.uint8([100, 0]))
    assert (found.dtype, found.tolist(), place) == (np.float32, [0, 103, 199.25], 2)
    with pytest.raises(ValueError, match=r"hand takes uint8\[2\], not int64\[2\]"):
        compute_scores(model, np.array([100, 0]))
