"""Noise from measurements: numbers by hand, and the twin's own spread."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lightning.compiler.model import CompiledModel, PhotonicLayer
from lightning.execution.multipliers.device import (
    describe_calibration,
    make_calibration_noise,
    make_link_noise,
    measure_vector_noise,
)
from lightning.kit.calibration import store
from lightning.kit.calibration.noise import NoiseModel
from lightning.networks.network import Network, Node
from sim.models.photonics.link import Link, compute_budget


@pytest.fixture(scope="module")
def calibration(kit):
    return store.choose_calibration(kit)


@pytest.fixture(scope="module")
def device(kit):
    """Return a device, tuned once."""
    from lightning.execution.multipliers.device import DeviceMultiplier

    return DeviceMultiplier(kit)


def spread(noise, level):
    return math.sqrt(noise.sigma**2 + noise.shot * level + noise.intensity * level**2)


@pytest.mark.parametrize("part", [0.0, 0.25, 1.0])
def test_a_links_noise_is_its_budget_at_every_level(part):
    """Steps of sums are larger than those of 255 by 256/255."""
    link = Link(power_w=4e-4, rin_db_hz=-145.0, effective_bits=7.5)
    noise = make_link_noise(link)
    assert spread(noise, part * 255 * 255 / 256) * 256 / 255 == pytest.approx(
        compute_budget(link, part).total_lsb
    )
    assert noise.identity != make_link_noise(Link()).identity


def test_counts_of_a_calibration_become_steps(calibration):
    """A full product of 25,400.4 counts: 100 counts a step."""
    decoder = replace(calibration.decoder, gain=(25_400.390625, 1.0))
    made = replace(calibration, decoder=decoder, noise=NoiseModel(400.0, 3.0, 1e-6, 0.5, 1))
    noise = make_calibration_noise(made)
    assert noise.sigma == pytest.approx(20 / 100)
    assert noise.shot == pytest.approx(3.0 / 100)
    assert noise.intensity == 1e-6
    assert noise.mean == pytest.approx(0.5 * 255 / 256)
    assert noise.identity == describe_calibration(made) != describe_calibration(calibration)


def test_single_readings_of_the_twin_spread_as_its_calibration_says(kit, calibration):
    """200 readings of each of four products, dark to full: a ratio of variances within four of its own deviations."""
    from lightning.kit.compute import LightningCompute

    noise = make_calibration_noise(calibration)
    compute = LightningCompute(kit, calibration, window=calibration.noise.window)
    values = np.zeros((4, 4), np.int64)
    values[:, 0], values[:, 1] = (0, 90, 180, 255), 255
    singles = compute.rows.read(calibration.look_up_words(values), shots=200 - 1).single_readings
    steps = singles * 255 * 255 / 256 / calibration.decoder.gain[0]
    for level, found in zip(values[:, 0] * 255 / 256, steps.std(axis=1, ddof=1), strict=True):
        assert found / spread(noise, level) == pytest.approx(1, abs=4 / math.sqrt(2 * 198))


@pytest.mark.slow
@pytest.mark.parametrize(
    "brightness", [pytest.param(60, id="dim", marks=pytest.mark.long), pytest.param(255, id="bright")]
)
def test_noisy_sums_spread_as_those_of_the_device(device, brightness):
    """The same rows of 800 products 40 times in either fidelity: variances of 8 rows, known to a sixth.

    What is not in the noise, edges of tiles and the dark that is taken off, adds a little.
    """
    pytest.importorskip("numba", reason="noise is drawn by machine code: pip install 'lightbed[kit]'")
    from lightning.execution.multipliers.noisy import NoisyMultiplier

    rng = np.random.default_rng(1)
    weights = rng.integers(1, brightness + 1, (1, 8, 800)) * rng.choice([-1, 1], (1, 8, 800))
    layer = PhotonicLayer("one", weights.astype(np.int16), np.zeros((1, 8), np.int32), 1.0, None)
    model = CompiledModel(
        Network("made", (Node("one", "Gemm", ("x",), "y"),), {}, "x", "y", {}), {"one": layer}
    )
    activations = np.tile(rng.integers(1, brightness + 1, 800).astype(np.int16), (40, 1, 1, 1))
    keys = np.arange(40, dtype=np.uint64)
    noisy = NoisyMultiplier(model, measure_vector_noise(device.core))
    of_device, of_noisy = (each.compute_sums(layer, activations, keys)[:, 0, 0] for each in (device, noisy))
    ratio = of_device.var(axis=0, ddof=1).mean() / of_noisy.var(axis=0, ddof=1).mean()
    assert 0.8 < ratio < 1.4
