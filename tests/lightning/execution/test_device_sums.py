"""Sums by light, on the kit's twin: as many steps as `exact` counts, but for noise and the low bits."""

import numpy as np
import pytest
from libraries import skip_without

skip_without("qick", reason="the twin is a QickConfig: pip install 'lightbed[kit]'")

import lightning
from lightning import errors
from lightning.compiler import compile_network
from lightning.compiler.model import PhotonicLayer
from lightning.execution import open_executor
from lightning.execution.multipliers.device import DeviceMultiplier, compute_mean_loss
from lightning.execution.multipliers.exact import ExactMultiplier
from lightning.networks.network import Network, Node, Preprocessing

KEYS = np.arange(4, dtype=np.uint64)


def layer(rng, shape, *, signed=False, vectors=1, zeros=0.5):
    weights = rng.integers(-255, 256, shape)
    weights[rng.random(shape) < zeros] = 0
    ones = np.ones(shape[:2], np.float32)
    return PhotonicLayer(
        "made", weights.astype(np.int16), np.zeros(shape[:2], np.int32), 1.0, ones, signed, None, vectors
    )


def some(rng, layer, images=4):
    shape = (images, layer.position_count, layer.weights.shape[0], layer.weights.shape[2])
    return rng.integers(-255 if layer.signed else 0, 256, shape).astype(np.int16)


@pytest.fixture(scope="module")
def multiplier(kit):
    return DeviceMultiplier(kit, average=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "signed", "vectors"),
    [((1, 12, 300), False, 1), ((2, 5, 40), True, 3)],
    ids=["dense", "grouped"],
)
def test_sums_are_those_of_exact_but_for_noise(multiplier, shape, signed, vectors):
    """Noise is 0.14 a root of products with four shots; the low bits are 0.29."""
    rng = np.random.default_rng(1)
    each = layer(rng, shape, signed=signed, vectors=vectors)
    activations = some(rng, each)
    found = multiplier.compute_sums(each, activations, KEYS)
    wrong = found - ExactMultiplier().compute_sums(each, activations, KEYS)
    products = shape[2] / 2
    assert found.shape == (4, vectors, *shape[:2])
    assert wrong.std() < 0.6 * np.sqrt(products)
    assert abs(wrong.mean()) < 4 * 0.6 * np.sqrt(products / wrong.size)


def test_what_the_shift_takes_is_put_right_in_the_mean():
    """Without light: sums that were not rounded, less the mean, are those that were. Without the mean they are not."""
    rng = np.random.default_rng(2)
    weights, activations = rng.integers(0, 256, (64, 200)), rng.integers(1, 256, (64, 200))
    whole = weights * activations / 256
    wrong = (whole - compute_mean_loss()[weights] - (weights * activations >> 8)).sum(axis=1)
    error = wrong.std() / np.sqrt(wrong.size)
    assert abs(wrong.mean()) < 4 * error
    assert (whole - (weights * activations >> 8)).sum(axis=1).mean() > 90


@pytest.mark.long
def test_more_shots_are_less_noise(kit):
    rng = np.random.default_rng(3)
    each = layer(rng, (1, 16, 200), zeros=0)
    activations = np.repeat(some(rng, each, 1), 4, axis=0)
    spread = {}
    for shots in (1, 16):
        found = DeviceMultiplier(kit, average=shots).compute_sums(each, activations, KEYS)
        spread[shots] = found.std(axis=0, ddof=1).mean()
    assert spread[16] < 0.5 * spread[1]


@pytest.mark.long
def test_a_network_is_recognised_as_exact_does(kit):
    rng = np.random.default_rng(4)
    conv = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}
    network = Network(
        "small",
        (
            Node("stem", "Conv", ("image", "w1"), "a", conv),
            Node("rectify", "Relu", ("a",), "b"),
            Node("flat", "Flatten", ("b",), "c", {"axis": 1}),
            Node("head", "Gemm", ("c", "w2"), "d"),
        ),
        {
            "w1": rng.normal(size=(2, 1, 3, 3)).astype(np.float32),
            "w2": rng.normal(size=(5, 32)).astype(np.float32),
        },
        "image", "d", {"image": (1, 4, 4), "a": (2, 4, 4), "b": (2, 4, 4), "c": (32,), "d": (5,)},
        Preprocessing(1 / 255),
    )  # fmt: skip
    images = rng.integers(0, 256, (20, 1, 4, 4)).astype(np.uint8)
    model = compile_network(network, images)
    expected = open_executor(model, "exact").run(images)
    executor = open_executor(model, "device", device=kit, average=4)
    found = executor.run(images)
    assert len(set(expected.classes.tolist())) >= 2
    assert (found.classes == expected.classes).sum() >= 19
    assert executor.multiplier.identity.startswith("sim-kit-")
    executor.close()


def test_products_of_nothing_need_no_light(multiplier):
    dark = PhotonicLayer("made", np.zeros((1, 3, 8), np.int16), np.zeros((1, 3), np.int32), 1.0, None)
    assert not multiplier.compute_sums(dark, np.full((2, 1, 1, 8), 255, np.int16), KEYS[:2]).any()


def test_a_device_without_calibration_says_what_to_do():
    """Another firmware than the twin's own has no factory calibration."""
    with pytest.raises(errors.NotCalibrated, match="lightning calibrate"):
        DeviceMultiplier(lightning.connect("sim://kit?profile=zcu216"))
