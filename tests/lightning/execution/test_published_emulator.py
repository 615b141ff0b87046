"""Bit by bit what the published emulator and the published datapath give, quirks included where they are asked for."""

from dataclasses import replace

import numpy as np
import pytest

from fpga.photonic_mac import Network as Integers
from fpga.photonic_mac import layer_results, quantise
from lightning.compiler import Options, compile_network, load_model, save_model
from lightning.errors import InputError, OutOfRange
from lightning.execution import EMULATOR, Quirks, open_executor
from lightning.execution.interpreter import Interpreter, log_softmax
from lightning.execution.multipliers.exact import ExactMultiplier
from lightning.networks import load_network
from lightning.networks.network import Preprocessing

SHAPES = ((18, 20), (7, 18), (3, 7))  # none is a multiple of 16

# Of the artifact's own rtl/tb/lightning_emulator.py, run on `float_weights` and `image`: (perfect_scaling, image).
GOLDEN = {
    (False, 0): [174, -97, 34],
    (False, 1): [32, -140, 248],
    (False, 2): [-8, -18, 152],
    (True, 0): [255, -142, 52],
    (True, 1): [30, -133, 255],
    (True, 2): [-9, -42, 255],
}


def float_weights():
    return [
        np.fromfunction(lambda r, k, layer=layer: ((7 * r + 13 * k + 5 * layer) % 41 - 20) / 20, shape)
        for layer, shape in enumerate(SHAPES)
    ]


def image(number):
    return np.array([(number * 31 + k * k * 17) % 256 for k in range(20)], np.uint8)


def emulated(layers, pixels, *, perfect):
    """Compute slowly by the emulator's rules: rows padded to sixteen, products shifted, then signs."""
    values = [abs(int(each)) for each in pixels]
    for place, weights in enumerate(layers):
        values += [0] * (-len(values) % 16)
        sums = []
        for row in weights:
            total = 0
            for value, weight in zip(values, [*map(int, row), *[0] * (-len(row) % 16)], strict=True):
                total += ((value * abs(weight)) >> 8) * (1 if weight >= 0 else -1)
            sums.append(total)
        if place + 1 < len(layers):
            sums = [max(each, 0) for each in sums]
        values = _rescaled(sums) if perfect else _shifted(sums)
    return values


def _shifted(values):
    bits = max(abs(each) for each in values).bit_length()
    if bits == 0:
        return values
    return [each << (8 - bits) if bits <= 8 else each >> (bits - 8) for each in values]


def _rescaled(values):
    factor = 255 / max(1, *values, -min(values))
    return [round(each * factor) for each in values]


@pytest.fixture(scope="module")
def layers():
    return quantise(float_weights()).layers


@pytest.mark.parametrize(("perfect", "number"), list(GOLDEN))
def test_the_emulators_own_answers(dense_model, layers, perfect, number):
    executor = open_executor(dense_model(layers, perfect_scaling=perfect), quirks=EMULATOR)
    assert executor.run(image(number)[None]).scores[0].tolist() == GOLDEN[perfect, number]
    assert emulated(layers, image(number), perfect=perfect) == GOLDEN[perfect, number]


@pytest.mark.parametrize("perfect", [False, True])
def test_random_networks_are_emulated_bit_by_bit(random_model, perfect):
    rng = np.random.default_rng(8)
    kinds = set()
    for seed in range(8):
        model = random_model(seed, (37, 21, 9, 4), zeros=(0.0, 0.9)[seed % 2], perfect_scaling=perfect)
        images = rng.integers(0, 256, (4, 37)).astype(np.uint8)
        weights = [layer.weights[0] for layer in model.layers.values()]
        expected = [emulated(weights, each, perfect=perfect) for each in images]
        assert open_executor(model, quirks=EMULATOR).run(images).scores.tolist() == expected
        walk = Interpreter(model, ExactMultiplier(), "exact", EMULATOR)
        assert walk.run(images).scores.tolist() == expected
        kinds |= {bool(score < 0) for row in expected for score in row}
    assert kinds == {True, False}


def test_without_quirks_results_are_those_of_the_datapath(random_model):
    model = random_model(1, (37, 21, 9, 4))
    images = np.random.default_rng(1).integers(0, 256, (20, 37)).astype(np.uint8)
    network = Integers(tuple(layer.weights[0].astype(np.int32) for layer in model.layers.values()))
    assert open_executor(model).run(images).scores.tolist() == layer_results(network, images)[-1].tolist()


def test_sums_wrap_in_sixteen_bits_where_the_datapath_does(dense_model):
    rng = np.random.default_rng(6)
    weights = [rng.integers(100, 256, (6, 400)), rng.integers(-255, 256, (3, 6))]
    images = rng.integers(150, 256, (10, 400)).astype(np.uint8)
    network = Integers(tuple(each.astype(np.int32) for each in weights))
    wrapping = dense_model(weights, wrap=True)
    expected = layer_results(network, images)
    for executor in (open_executor(wrapping), Interpreter(wrapping, ExactMultiplier())):
        answers = executor.run(images)
        assert answers.scores.tolist() == expected[-1].tolist()
        assert answers.counters["wrapped_sums"] == 60  # all of the first layer, none of the second
    straight = open_executor(dense_model(weights)).run(images)
    assert straight.scores.tolist() != expected[-1].tolist()


def test_signs_of_inputs_are_dropped_only_where_asked(dense_model):
    model = dense_model([[[100, 50], [-20, 90]]])
    negative = np.array([[-200.0, 100.0]])
    kept = open_executor(model).run(negative).scores[0].tolist()
    dropped = open_executor(model, quirks=Quirks(signs_dropped=True)).run(negative).scores[0].tolist()
    assert kept == [19, 35]  # (0) + (100 * 50 >> 8), (0) + (100 * 90 >> 8)
    assert dropped == [78 + 19, -15 + 35]


def test_signs_of_bytes_behind_a_mean_are_dropped_too(dense_model):
    model = dense_model([[[100, 50], [-20, 90]]])
    centred = replace(model.network, preprocessing=Preprocessing(1 / 255, mean=(0.5,)))
    model, quirks = replace(model, network=centred), Quirks(signs_dropped=True)
    images = np.array([[0, 255], [40, 3]], np.uint8)
    found = open_executor(model, quirks=quirks).run(images)
    assert (
        found.scores.tolist() == open_executor(model, quirks=quirks).run(images.astype(float)).scores.tolist()
    )
    assert found.scores.tolist() != open_executor(model).run(images).scores.tolist()
    assert found.counters == {"clipped_activations": 0}


def test_the_last_layer_is_normalised_only_where_asked(dense_model):
    model = dense_model([[[255], [-255], [30]]])
    assert open_executor(model).run(np.array([[16]], np.uint8)).scores.tolist() == [[15, -15, 1]]
    quirks = Quirks(last_layer_normalised=True)
    assert open_executor(model, quirks=quirks).run(np.array([[16]], np.uint8)).scores.tolist() == [
        [240, -240, 16]
    ]


def test_the_missing_digit_changes_only_what_is_one_below_the_largest():
    near, far = [7, 6, 2], [7, 5, 2]
    assert log_softmax(far, is_misprinted=True).tolist() == log_softmax(far).tolist()
    lost = np.log((59874 + 22026 + 403) / (59874 + 2206 + 403))  # exp(11), exp(10), exp(6)
    assert log_softmax(near, is_misprinted=True)[0] - log_softmax(near)[0] == pytest.approx(lost, abs=1e-12)
    assert np.exp(log_softmax(near)).sum() == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize("results", [[], [[1, 2]], [0.5, 1.0]])
def test_log_softmax_takes_whole_numbers_of_one_image(results):
    with pytest.raises(InputError, match="integers of one image"):
        log_softmax(results)


@pytest.fixture
def weights_file(tmp_path):
    path = tmp_path / "small.npz"
    np.savez(path, **{f"w{place}": values for place, values in enumerate(float_weights(), 1)})
    return path


@pytest.mark.parametrize("perfect", [False, True])
def test_how_activations_are_scaled_is_chosen_at_compilation_and_kept(weights_file, tmp_path, perfect):
    options = Options(scheme="published", perfect_scaling=perfect)
    save_model(compile_network(load_network(weights_file), options=options), tmp_path / "small.lng")
    model = load_model(tmp_path / "small.lng")
    assert model.perfect_scaling == perfect
    found = open_executor(model, quirks=EMULATOR).run(np.array([image(number) for number in range(3)]))
    weights = [layer.weights[0] for layer in model.layers.values()]
    assert found.scores.tolist() == [emulated(weights, image(each), perfect=perfect) for each in range(3)]


def test_the_command_line_chooses_it_too(weights_file, tmp_path):
    pytest.importorskip("typer", reason="the command line needs lightbed[kit]")
    from lightning.cli import run_app

    assert (
        run_app(("compile", str(weights_file), "--perfect-scaling", "-o", str(tmp_path / "small.lng"))) == 0
    )
    assert load_model(tmp_path / "small.lng").perfect_scaling


def test_perfect_scaling_of_the_other_scheme_is_refused():
    with pytest.raises(OutOfRange, match="--scheme published"):
        Options(scheme="scaled", perfect_scaling=True)
