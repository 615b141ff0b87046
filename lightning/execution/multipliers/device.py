"""Sums by light: the kit, or its twin, plays the dot products of a layer as waveforms; noise as it was measured there.

`VectorCore` gives sum_k w_k a_k / 255, and no product is rounded on its way. Sums of a model lose 8 bits a product:

    sum_k sign (|w_k a_k| >> 8)  =  255/256 * (what light gives)  -  sum_k sign (what >> 8 takes of product k)

What it takes is not known to one who does not multiply. Its mean is: over all activations that are not 0 it depends on
the weight alone (0.498 for most). The controller subtracts that mean for every product that was lit, as it subtracts
leaks; what is left is below 0.3 of a step a product, as random as the low bits are.

Noise of readouts is given in the steps that sums count.

A full product (255 times 255) is 255 * 255 / 256 = 254.004 steps. With c counts of the readout for a full product,
a variance of v counts^2 is v (254.004 / c)^2 steps^2, and of the polynomial

    variance(y) = constant + shot y + rin y^2        y in counts above the dark      (lightning.kit.calibration.noise)

the constant is scaled so, the shot term once, the intensity term not at all.

Which readout: `noise_of_calibration` is one reading of the calibration's window (as a rule one decimated sample) of one
product. `noise_of_vectors` is what one product costs where `VectorCore` plays it, which is what the fidelity
`device` does: the light of some nanoseconds, of two products at once and half as bright, added up.
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
from lightning.kit.calibration.decoder import FULL
from lightning.kit.calibration.document import Calibration
from lightning.kit.calibration.form import to_text
from lightning.kit.dot.core import VectorCore
from lightning.kit.dot.symbol import Integers
from lightning.kit.dot.tuning import play, training_values
from sim.models.photonics.link import Budget, Link, budget

MOST_PRODUCTS = 1 << 20
"""Handed over at once, zeros included: some tens of megabytes."""

Doubles = npt.NDArray[np.float64]
FULL_STEPS = FULL * FULL / 256
"""Of a product of 255 and 255, before `>> 8` rounds it down."""
FIT_SYMBOLS = 128
FIT_SHOTS = 65
"""Of each tile of which the variance is taken."""


class DeviceMultiplier:
    """`Multiplier` on a kit: an address as `lightning.connect` takes it, or what that gives.

    `average` is the number of shots of which the mean is taken. `seed` is that of the core's training tiles. The
    device's own noise has no seed and no keys: it goes on from product to product. Products of which a factor is 0 are
    not played. Raises `NotCalibrated`, `ForeignCalibration` and `StaleCalibration` as `VectorCore` does.
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
        self.identity = identity_of_calibration(self.core.calibration)
        """Of the calibration."""
        self._average = average

    def sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Floats:
        """Return sums (images, positions, groups, rows) of activations (images, positions, groups, terms).

        They are not rounded. All images and positions go in few programs. Raises `DeviceGone` and
        `DeviceStuck`; warns with `DarkWarning`.
        """
        images, positions, groups, terms = activations.shape
        vectors = activations.reshape(images * positions, groups, terms)
        found = np.empty((len(vectors), groups, layer.weights.shape[1]), np.float32)
        step = max(1, MOST_PRODUCTS // max(1, layer.weights[0].size))
        for group in range(groups):
            for first in range(0, len(vectors), step):
                some = slice(first, first + step)
                found[some, group] = self._of_group(layer, group, vectors[some, group])
        return found.reshape(images, positions, groups, -1)

    def close(self) -> None:
        """Do nothing: QICK lets go of a device when its object goes."""

    def _of_group(self, layer: PhotonicLayer, group: int, vectors: Activations) -> npt.NDArray[np.float64]:
        """Return the sums of a group, (vectors, rows), of (vectors, terms)."""
        weights = layer.weights[group]
        light = self.core.analogue(weights[None], vectors[:, None, :], shots=self._average)
        taken = np.sign(weights) * mean_taken()[np.abs(weights)]
        sums: npt.NDArray[np.float64] = light * (FULL / 256) - np.sign(vectors).astype(np.float32) @ taken.T
        return sums


@lru_cache(maxsize=1)
def mean_taken() -> npt.NDArray[np.float32]:
    """Return the mean that is taken away, by the magnitude of a weight, (256,).

    It is that of (a w / 256) - (a w >> 8) over activations a of 1 .. 255.

    By hand: of w = 1 everything is lost, the mean of a / 256, which is 128 / 256; of w = 128 every odd a loses a half,
    128 times 0.5 in 255.

    >>> mean_taken()[[0, 1, 128]].round(4).tolist() == np.float32([0, 0.5, 0.251]).tolist()
    True
    """
    activations, weights = np.arange(1, FULL + 1), np.arange(FULL + 1)
    low_bits = np.outer(weights, activations) & 255
    return np.asarray(low_bits.mean(axis=1) / 256, np.float32)


def identity_of_calibration(calibration: Calibration) -> str:
    """Whose calibration, when it was made, and the hash of all that is in it."""
    digest = hashlib.sha256(to_text(calibration).encode()).hexdigest()
    return f"{calibration.device} {calibration.made.isoformat(timespec='seconds')} {digest[:12]}"


def noise_of_calibration(calibration: Calibration) -> Noise:
    """Noise of one reading of one product of the first pair, of which the calibration measured the noise."""
    model = calibration.noise
    steps = FULL_STEPS / calibration.decoder.gain[0]
    return Noise(
        sigma=math.sqrt(model.constant) * steps,
        mean=model.mean * FULL_STEPS / FULL,
        shot=model.shot * steps,
        intensity=model.rin,
        identity=identity_of_calibration(calibration),
    )


def noise_of_link(link: Link) -> Noise:
    """Noise of one sample of the converter at the end of a modelled link.

    By hand: dark current and converter belong to the part that does not grow with light, as thermal noise does.

    >>> noise = noise_of_link(Link())
    >>> f"{math.sqrt(noise.variance(254)) * 256 / 255:.3f}"
    '1.676'
    """
    dark, full = budget(link, 0.0), budget(link, 1.0)
    return Noise(
        sigma=dark.total * FULL_STEPS / FULL,
        shot=_growth(dark, full, lambda each: each.noises["shot"]) * FULL_STEPS / FULL**2,
        intensity=(full.noises["intensity"] / FULL) ** 2,
        identity=f"link {hashlib.sha256(repr(link).encode()).hexdigest()[:12]}",
    )


def noise_of_vectors(core: VectorCore, *, seed: int = 0) -> Noise:
    """Noise of one product where this core plays vectors, measured: a fraction of a second on the twin.

    Variances of random tiles between shots are laid through the polynomial above, summed over a tile's products. What
    a tile's dark edges add to its variance is in `sigma`: of a tile of as many symbols as here an eighth, of short ones
    more. The dark tiles that are taken off all others of a run add a little to every sum, the same to each: it is not
    in here.
    """
    tuning, rng = core.tuning, np.random.default_rng(seed)
    values = training_values(rng, min(FIT_SYMBOLS, core.tiles.most_symbols(core.symbol)))
    words = tuning.coding.words(values)
    played = play(core.tiles, words, tuning.coding.dark, core.symbol, shots=FIT_SHOTS)
    steps = FULL_STEPS / tuning.decoder.unit
    found = _fit_variances(played.var(axis=1, ddof=1) * steps**2, _levels(values))
    return Noise(
        sigma=math.sqrt(found[0]),
        shot=float(found[1]),
        intensity=float(found[2]),
        identity=identity_of_calibration(core.calibration),
    )


def _growth(dark: Budget, full: Budget, part: Callable[[Budget], float]) -> float:
    """Variance, in steps^2 of 255, that light adds."""
    return part(full) ** 2 - part(dark) ** 2


def _levels(values: Integers) -> Doubles:
    """Return the products of every tile, (tiles, 3): how many, their sum and that of their squares, in steps."""
    products = values[..., 0::2] * values[..., 1::2] / 256.0
    flat = products.reshape(len(products), -1)
    count = np.full(len(flat), float(flat.shape[1]))
    return np.column_stack([count, flat.sum(axis=1), (flat**2).sum(axis=1)])


def _fit_variances(variances: Doubles, design: Doubles) -> Doubles:
    """Return the coefficients, none negative, each point weighed by its own variance as `fit_noise` does, (3,)."""
    from lightning.kit.calibration.noise import nonnegative

    weights = np.full(variances.size, 1.0 / variances.mean())
    found = np.zeros(3)
    for _ in range(8):
        found = nonnegative(design * weights[:, None], variances * weights)
        weights = 1.0 / np.maximum(design @ found, 1e-6 * variances.mean())
    return found
