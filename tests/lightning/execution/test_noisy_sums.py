"""One draw a sum says the same as one draw a readout; and an image's noise is its own."""

from dataclasses import replace

import numpy as np
import pytest
from libraries import library, skip_without

skip_without("numba")
stats = library("scipy.stats")

from lightning.compiler import Hardware
from lightning.errors import OutOfRange
from lightning.execution import Noise, Quirks, open_executor
from lightning.execution.interpreter import Interpreter, make_patches
from lightning.execution.multipliers import noisy
from lightning.execution.multipliers.exact import ExactMultiplier
from lightning.execution.multipliers.noisy import NoisyMultiplier, PerReadoutMultiplier, may_clip

DRAWS = 4000

KINDS = {
    "zeros skipped": (Noise("per-product"), 1, ()),
    "all products": (Noise("per-product-dense", mean=2.32), 1, ()),
    "averaged": (Noise("per-product", mean=-1.0, average=4), 1, ()),
    "signed": (Noise("per-product-dense", mean=2.0), 1, (1,)),
    "grows with light": (Noise("per-product", sigma=0.5, shot=0.02, intensity=1e-4), 1, (1,)),
    "four wavelengths": (Noise("per-product-dense", sigma=0.5, mean=1.0, shot=0.02, intensity=1e-4), 4, (1,)),
}


@pytest.fixture(scope="module")
def sparse_model(random_model):
    """Return three layers of 36 neurons; the first rows of each have 1, 2, 3 and 4 weights that are not 0."""

    def make(signed=(), hardware=None):
        rng = np.random.default_rng(4)
        model = random_model(2, (30, 12, 12, 12), zeros=0.6, signed=signed, hardware=hardware or Hardware())
        layers = {}
        for name, layer in model.layers.items():
            weights = layer.weights.copy()
            for few in range(1, 5):
                weights[0, few - 1] = 0
                places = rng.choice(weights.shape[2], few, replace=False)
                weights[0, few - 1, places] = rng.integers(40, 256, few) * rng.choice([-1, 1], few)
            layers[name] = replace(layer, weights=weights)
        return replace(model, layers=layers)

    return make


def light_on(layer):
    """Return activations of one image, as often as there are draws, and a key for each."""
    rng = np.random.default_rng(9)
    lowest = -255 if layer.signed else 0
    one = rng.integers(lowest, 256, layer.weights.shape[2]).astype(np.int16)
    return np.tile(one, (DRAWS, 1)).reshape(DRAWS, 1, 1, -1), np.arange(DRAWS, dtype=np.uint64)


def least_likely(model, noise):
    """Return the p of each neuron's Kolmogorov-Smirnov test: the fast sums against those by readouts."""
    fast, brute = NoisyMultiplier(model, noise, seed=1), PerReadoutMultiplier(model, noise, seed=2)
    found = []
    for layer in model.layers.values():
        activations, keys = light_on(layer)
        one, other = (each.compute_sums(layer, activations, keys)[:, 0, 0].T for each in (fast, brute))
        found += [stats.ks_2samp(*pair).pvalue for pair in zip(one, other, strict=True)]
    assert brute.clipped == 0
    assert len(found) == 36
    return min(found)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_one_draw_says_what_all_readouts_say(sparse_model, kind):
    noise, wavelengths, signed = KINDS[kind]
    model = sparse_model(signed, Hardware(wavelengths=wavelengths))
    assert least_likely(model, noise) > 0.001


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_deviation_that_does_not_grow_with_the_root_of_readouts_is_found(sparse_model, kind, monkeypatch):
    noise, wavelengths, signed = KINDS[kind]
    model = sparse_model(signed, Hardware(wavelengths=wavelengths))
    right = noisy.compute_row_noise

    def planted(layer, *rest):
        known = right(layer, *rest)
        return replace(known, variances=np.full_like(known.variances, noise.sigma**2 / noise.average))

    monkeypatch.setattr(noisy, "compute_row_noise", planted)
    assert least_likely(model, noise) < 0.001


def test_noise_alone_may_reach_the_converters_full_scale(random_model):
    model = random_model(3, (20, 4))  # the brightest product is 254, full scale 510
    assert [may_clip(Noise(sigma=sigma), model.hardware) for sigma in (39, 40)] == [False, True]  # 256 / 6.5
    loud = open_executor(model, "noisy", noise=Noise(sigma=150)).run(np.full((50, 20), 255, np.uint8))
    assert loud.counters["clipped_readouts"] > 0


def test_mean_and_spread_of_a_sum_are_those_of_its_readouts(dense_model):
    """Weights + - 0 0: with zeros skipped two readouts of net sign 0, otherwise four of net sign 2."""
    model = dense_model([[[200, -100, 0, 0]]])
    layer = model.layers["fc0"]
    activations, keys = light_on(layer)
    exact = int(ExactMultiplier().compute_sums(layer, activations[:1], keys[:1]).item())
    for place, readouts, net in (("per-product", 2, 0), ("per-product-dense", 4, 2)):
        noise = Noise(place, sigma=3.0, mean=5.0, average=2)
        sums = NoisyMultiplier(model, noise).compute_sums(layer, activations, keys).reshape(-1)
        deviation = 3.0 * (readouts / 2) ** 0.5
        assert sums.mean() == pytest.approx(exact + 5.0 * net, abs=4 * deviation / DRAWS**0.5)
        assert sums.std() == pytest.approx(deviation, rel=4 / (2 * DRAWS) ** 0.5)


def test_noise_per_output_is_on_the_scale_of_the_layers_largest(dense_model):
    model = dense_model([[[255, 255], [-100, 0], [0, 0], [1, 0]]])
    layer = model.layers["fc0"]
    activations = np.full((DRAWS, 1, 1, 2), 255, np.int16)
    keys = np.arange(DRAWS, dtype=np.uint64)
    sums = NoisyMultiplier(model, Noise("per-output", sigma=2.0)).compute_sums(layer, activations, keys)[
        :, 0, 0
    ]
    step = 508 / 255  # the largest sum is 254 + 254
    assert sums[:, :2].mean(axis=0) == pytest.approx([508, -99], abs=4 * 2 * step / DRAWS**0.5)
    assert sums[:, :2].std(axis=0) == pytest.approx([2 * step] * 2, rel=4 / (2 * DRAWS) ** 0.5)
    assert not sums[:, 2:].any()  # 255 >> 8 is 0, and nothing stays nothing


@pytest.mark.parametrize("wavelengths", [1, 2, 4])
def test_without_noise_the_sums_are_exact_for_any_wavelengths(sparse_model, wavelengths):
    model = sparse_model((1,), Hardware(wavelengths=wavelengths))
    for layer in model.layers.values():
        activations, keys = light_on(layer)
        exact = ExactMultiplier().compute_sums(layer, activations[:2], keys[:2])
        for place in ("per-product", "per-product-dense"):
            silent = Noise(place, sigma=0.0)
            for kind in (NoisyMultiplier, PerReadoutMultiplier):
                found = kind(model, silent).compute_sums(layer, activations[:2], keys[:2])
                assert found.tolist() == exact.tolist()


@pytest.mark.parametrize("wavelengths", [1, 4])
def test_pixels_and_groups_of_a_convolution_have_the_noise_of_their_readouts(convolving, wavelengths):
    model = replace(convolving, hardware=Hardware(wavelengths=wavelengths))
    layer = model.layers["conv"]
    one = np.random.default_rng(1).integers(-255, 256, (1, 4, 7, 6)).astype(np.int16)
    terms = np.tile(make_patches(one, layer.geometry, 2), (1000, 1, 1, 1))
    keys = np.arange(1000, dtype=np.uint64)
    exact = ExactMultiplier().compute_sums(layer, terms[:1], keys[:1])
    noise = Noise("per-product-dense", sigma=0.5, shot=0.05, intensity=4e-4)
    spreads = []
    for kind in (NoisyMultiplier, PerReadoutMultiplier):
        assert (
            kind(model, Noise(sigma=0.0)).compute_sums(layer, terms[:1], keys[:1]).tolist() == exact.tolist()
        )
        spreads.append(kind(model, noise, seed=7).compute_sums(layer, terms, keys).std(axis=0))
    fast, brute = spreads
    assert fast == pytest.approx(brute, rel=6 / 1000**0.5)  # six deviations of a ratio of spreads
    assert fast.max() > 2 * fast.min()  # light differs from pixel to pixel, and so does noise


ALL_NOISE = [
    Noise("per-output"),
    Noise("per-product"),
    Noise("per-product-dense", mean=1.0),
    Noise("per-product", shot=0.01, intensity=1e-4),
]


@pytest.mark.parametrize("noise", ALL_NOISE, ids=lambda noise: f"{noise.place} {noise.shot}")
@pytest.mark.parametrize("scheme", ["published", "scaled"])
def test_the_chain_and_the_interpreter_draw_the_same_noise(random_model, noise, scheme):
    perfect = scheme == "published" and noise.mean == 0
    model = random_model(6, (40, 20, 12, 5), scheme=scheme, wrap=True, perfect_scaling=perfect)
    images = np.random.default_rng(3).integers(0, 256, (8, 40)).astype(np.uint8)
    quirks = Quirks(last_layer_normalised=True)
    executor = open_executor(model, "noisy", noise=noise, seed=5, quirks=quirks)
    fused, walked = executor.run(images), executor.interpreter.run(images)
    assert fused.scores.tolist() == walked.scores.tolist()
    assert fused.scores.tolist() != open_executor(model, quirks=quirks).run(images).scores.tolist()


@pytest.mark.parametrize("noise", ALL_NOISE, ids=lambda noise: f"{noise.place} {noise.shot}")
def test_company_does_not_change_an_image(random_model, noise):
    model = random_model(6, (40, 20, 12, 5))
    images = np.random.default_rng(3).integers(0, 256, (9, 40)).astype(np.uint8)
    keys = np.arange(9, dtype=np.uint64) + 2**63
    executors = [open_executor(model, "noisy", noise=noise, seed=5)]
    if noise.place != "per-output":
        executors.append(Interpreter(model, PerReadoutMultiplier(model, noise, 5), "noisy"))
    for executor in executors:
        whole = executor.run(images, keys).scores
        order = np.random.default_rng(1).permutation(9)
        assert executor.run(images[order], keys[order]).scores.tolist() == whole[order].tolist()
        alone = [executor.run(images[each : each + 1], keys[each : each + 1]).scores[0] for each in range(9)]
        assert np.array(alone).tolist() == whole.tolist()
        same = executor.run(np.tile(images[:1], (9, 1)), keys).scores
        assert len({tuple(row) for row in same.tolist()}) > 1  # other keys, other noise


def test_another_seed_is_other_noise(random_model):
    model = random_model(6, (40, 20, 12, 5))
    images = np.random.default_rng(3).integers(0, 256, (4, 40)).astype(np.uint8)
    found = [open_executor(model, "noisy", seed=seed).run(images).scores.tolist() for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


def test_scores_of_the_published_scheme_stay_whole_numbers(random_model):
    images = np.random.default_rng(3).integers(0, 256, (4, 40)).astype(np.uint8)
    scores = open_executor(random_model(6, (40, 20, 5)), "noisy").run(images).scores
    assert (scores == np.rint(scores)).all()


def test_a_converter_without_headroom_clips_and_counts(random_model):
    model = random_model(6, (40, 20, 5), zeros=0.0)
    images = np.full((4, 40), 255, np.uint8)
    tight = Noise(sigma=2.0, full_scale=250.0)
    assert may_clip(tight, model.hardware)
    assert not may_clip(Noise(), model.hardware)
    executor = open_executor(model, "noisy", noise=tight)
    assert isinstance(executor.multiplier, PerReadoutMultiplier)  # one draw a sum would not know of it
    first, second = executor.run(images), executor.run(images)
    assert first.counters["clipped_readouts"] == second.counters["clipped_readouts"] > 0
    roomy = open_executor(model, "noisy", noise=Noise(sigma=2.0)).run(images)
    assert roomy.counters["clipped_readouts"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"sigma": -1.0},
        {"sigma": float("nan")},
        {"shot": -0.1},
        {"intensity": float("inf")},
        {"mean": float("nan")},
        {"average": 0},
        {"full_scale": 0.0},
    ],
)
def test_noise_that_cannot_be_is_refused_by_name(random_model, wrong):
    with pytest.raises(OutOfRange, match=next(iter(wrong))):
        open_executor(random_model(1, (4, 2)), "noisy", noise=Noise(**wrong))


def test_a_seed_that_is_none_is_refused(random_model):
    with pytest.raises(OutOfRange, match="seed"):
        open_executor(random_model(1, (4, 2)), "noisy", seed=-1)


def test_noise_per_output_has_no_readouts_to_take(random_model):
    with pytest.raises(OutOfRange, match="'per-output' adds noise to sums, not to single readouts"):
        PerReadoutMultiplier(random_model(1, (4, 2)), Noise("per-output"))
