"""Sums computed by light: the kit or its twin plays the dot products as waveforms. Also, noise models of devices.

`VectorCore` returns sum_k w_k a_k / 255 without rounding single products. Sums of a model lose 8 bits per product:

    sum_k sign (|w_k a_k| >> 8)  =  255/256 * (result of light)  -  sum_k sign (loss of >> 8 in product k)

The loss of a product is unknown without multiplying. Its mean over all nonzero activations depends only on the weight
(0.498 for most weights). The controller subtracts this mean for every lit product, as it subtracts leaks. The remaining
error is below 0.3 of a step per product, and as random as the low bits.

The noise of readouts is in steps of the sums. A full product (255 times 255) is 255 * 255 / 256 = 254.004 steps. If a
full product gives c counts of the readout, a variance of v counts^2 is v (254.004 / c)^2 steps^2. In the polynomial

    variance(y) = constant + shot y + rin y^2        y in counts above dark          (lightning.kit.calibration.noise)

the constant is scaled by (254.004 / c)^2 and the shot term by 254.004 / c; the intensity term is unchanged.

`make_calibration_noise` returns the noise of one reading of one product in the calibration's window (usually one
decimated sample). `measure_vector_noise` returns the noise per product with `VectorCore`, which the fidelity `device`
uses. There, a reading sums the light of some nanoseconds, of two products at half the brightness.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import Floats, PhotonicLayer
from lightning.execution.interface import Activations, Keys
from lightning.execution.noise import Noise
from lightning.kit.calibration.decoder import FULL_VALUE
from lightning.kit.calibration.document import Calibration
from lightning.kit.calibration.form import to_text
from lightning.kit.dot.core import VectorCore
from lightning.kit.dot.symbol import Integers
from lightning.kit.dot.tuning import draw_training_values, measure_tiles
from sim.models.photonics.link import Budget, Link, compute_budget

MAX_PRODUCTS = 1 << 20
"""Maximum number of products in one call of the core, including zeros. They take some tens of megabytes."""

Doubles = npt.NDArray[np.float64]
FULL_PRODUCT_STEPS = FULL_VALUE * FULL_VALUE / 256
"""Steps of a product of 255 and 255, before `>> 8` rounds it down."""
FIT_SYMBOL_COUNT = 128
FIT_SHOT_COUNT = 65
"""Shots of each tile, to estimate its variance."""


class DeviceMultiplier:
    """`Multiplier` on a kit. `device` is an address for `lightning.connect`, or its result.

    `average` is the number of averaged shots. `seed` applies to the core's training tiles; the device's own noise has
    no seed and no keys. Products with a factor of 0 are not played. Raise `NotCalibrated`, `ForeignCalibration` or
    `StaleCalibration` like `VectorCore`.
    """

    def __init__(
        self,
        device: Any = "sim://kit",
        *,
        average: int = 1,
        seed: int = 0,
        calibration: Calibration | None = None,
    ) -> None:
        from lightning.kit.connection import connect
        from lightning.kit.dot.core import VectorCore

        soc = connect(device) if isinstance(device, str) else device
        self.core = VectorCore(soc, calibration, seed=seed)
        self.identity = describe_calibration(self.core.calibration)
        """Identity of the calibration."""
        self._average = average

    def compute_sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Floats:
        """Return sums (images, positions, groups, rows) of activations (images, positions, groups, terms).

        They are not rounded. All images and positions share few programs. Raise `DeviceGone` or `DeviceStuck` if the
        device fails. Warn with `DarkWarning` if light was expected and none arrived.
        """
        image_count, position_count, group_count, term_count = activations.shape
        vectors = activations.reshape(image_count * position_count, group_count, term_count)
        sums = np.empty((len(vectors), group_count, layer.weights.shape[1]), np.float32)
        vectors_per_call = max(1, MAX_PRODUCTS // max(1, layer.weights[0].size))
        for group in range(group_count):
            for start in range(0, len(vectors), vectors_per_call):
                chunk = slice(start, start + vectors_per_call)
                sums[chunk, group] = self._sum_group(layer, group, vectors[chunk, group])
        return sums.reshape(image_count, position_count, group_count, -1)

    def close(self) -> None:
        """Do nothing: QICK releases a device with its object."""

    def _sum_group(self, layer: PhotonicLayer, group: int, vectors: Activations) -> npt.NDArray[np.float64]:
        """Return the sums of a group, (vectors, rows), of (vectors, terms)."""
        weights = layer.weights[group]
        light_sums = self.core.analogue_dot(weights[None], vectors[:, None, :], shots=self._average)
        mean_losses = np.sign(weights) * compute_mean_loss()[np.abs(weights)]
        sums: npt.NDArray[np.float64] = (
            light_sums * (FULL_VALUE / 256) - np.sign(vectors).astype(np.float32) @ mean_losses.T
        )
        return sums


@lru_cache(maxsize=1)
def compute_mean_loss() -> npt.NDArray[np.float32]:
    """Return the mean loss of `>> 8` for each magnitude of a weight, (256,).

    It is the mean of (a w / 256) - (a w >> 8) over activations a of 1 .. 255.

    By hand: with w = 1 the whole product a / 256 is lost, on average 128 / 256. With w = 128 every odd a loses a half:
    128 halves for 255 activations.

    >>> compute_mean_loss()[[0, 1, 128]].round(4).tolist() == np.float32([0, 0.5, 0.251]).tolist()
    True
    """
    activations, weights = np.arange(1, FULL_VALUE + 1), np.arange(FULL_VALUE + 1)
    low_bits = np.outer(weights, activations) & 255
    return np.asarray(low_bits.mean(axis=1) / 256, np.float32)


def describe_calibration(calibration: Calibration) -> str:
    """Return one line with the device, the date and the digest of a calibration."""
    digest = hashlib.sha256(to_text(calibration).encode()).hexdigest()
    return f"{calibration.device} {calibration.made.isoformat(timespec='seconds')} {digest[:12]}"


def make_calibration_noise(calibration: Calibration) -> Noise:
    """Return the noise of one reading of one product of the first pair, as measured in the calibration."""
    model = calibration.noise
    steps_per_count = FULL_PRODUCT_STEPS / calibration.decoder.gain[0]
    return Noise(
        sigma=math.sqrt(model.constant) * steps_per_count,
        mean=model.mean * FULL_PRODUCT_STEPS / FULL_VALUE,
        shot=model.shot * steps_per_count,
        intensity=model.rin,
        identity=describe_calibration(calibration),
    )


def make_link_noise(link: Link) -> Noise:
    """Return the noise of one converter sample at the end of a modelled link.

    Like thermal noise, the noise of dark current and converter belongs to the constant part.

    >>> noise = make_link_noise(Link())
    >>> f"{math.sqrt(noise.compute_variance(254)) * 256 / 255:.3f}"
    '1.676'
    """
    dark_budget, full_budget = compute_budget(link, 0.0), compute_budget(link, 1.0)
    return Noise(
        sigma=dark_budget.total_lsb * FULL_PRODUCT_STEPS / FULL_VALUE,
        shot=_compute_variance_growth(
            dark_budget, full_budget, lambda link_budget: link_budget.noises_lsb["shot"]
        )
        * FULL_PRODUCT_STEPS
        / FULL_VALUE**2,
        intensity=(full_budget.noises_lsb["intensity"] / FULL_VALUE) ** 2,
        identity=f"link {hashlib.sha256(repr(link).encode()).hexdigest()[:12]}",
    )


def measure_vector_noise(core: VectorCore, *, seed: int = 0) -> Noise:
    """Measure the noise per product of vectors on this core. On the twin it takes a fraction of a second.

    The fit uses the polynomial of the module's docstring, summed over a tile's products, and the variances of random
    tiles between shots. `sigma` includes the variance of a tile's dark edges: an eighth for tiles of this length, more
    for shorter tiles. It excludes the small common error of the dark tiles that are subtracted in each run.
    """
    tuning, rng = core.tuning, np.random.default_rng(seed)
    values = draw_training_values(rng, min(FIT_SYMBOL_COUNT, core.tile_reader.count_max_symbols(core.symbol)))
    words = tuning.coding.encode(values)
    tile_levels = measure_tiles(
        core.tile_reader, words, tuning.coding.dark_words, core.symbol, shots=FIT_SHOT_COUNT
    )
    steps_per_count = FULL_PRODUCT_STEPS / tuning.decoder.full_product_level
    coefficients = _fit_variances(
        tile_levels.var(axis=1, ddof=1) * steps_per_count**2, _compute_design_matrix(values)
    )
    return Noise(
        sigma=math.sqrt(coefficients[0]),
        shot=float(coefficients[1]),
        intensity=float(coefficients[2]),
        identity=describe_calibration(core.calibration),
    )


def _compute_variance_growth(
    dark_budget: Budget, full_budget: Budget, get_noise: Callable[[Budget], float]
) -> float:
    """Return the variance that light adds, in steps^2 of 255."""
    return get_noise(full_budget) ** 2 - get_noise(dark_budget) ** 2


def _compute_design_matrix(values: Integers) -> Doubles:
    """Return the number, the sum and the sum of squares of each tile's products, in steps, (tiles, 3)."""
    products = values[..., 0::2] * values[..., 1::2] / 256.0
    products_by_tile = products.reshape(len(products), -1)
    counts = np.full(len(products_by_tile), float(products_by_tile.shape[1]))
    return np.column_stack([counts, products_by_tile.sum(axis=1), (products_by_tile**2).sum(axis=1)])


def _fit_variances(variances: Doubles, design: Doubles) -> Doubles:
    """Return nonnegative coefficients (3,), with points weighted as in `fit_noise`."""
    from lightning.kit.calibration.noise import fit_nonnegative

    weights = np.full(variances.size, 1.0 / variances.mean())
    coefficients = np.zeros(3)
    for _ in range(8):
        coefficients = fit_nonnegative(design * weights[:, None], variances * weights)
        weights = 1.0 / np.maximum(design @ coefficients, 1e-6 * variances.mean())
    return coefficients
