"""Sensitivity: the accuracy lost to noise in each layer, and the largest noise that the network tolerates.

First, one layer at a time is noisy and all others are exact. Then all layers are noisy. One search scales the noise to
find the largest noise with a tolerable loss. Another search averages more and more readouts. Every accuracy is a mean
over seeds, on the same images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler import CompiledModel, PhotonicLayer
from lightning.errors import OutOfRange
from lightning.evaluation.accuracy import evaluate
from lightning.evaluation.dataset import Dataset
from lightning.execution import open_executor
from lightning.execution.interface import Activations, Executor, Keys, Multiplier
from lightning.execution.interpreter import Interpreter
from lightning.execution.multipliers.exact import make_exact_multiplier
from lightning.execution.multipliers.noisy import NoisyMultiplier
from lightning.execution.noise import Noise

FACTOR_PRECISION = 1.05
"""The search finds the factor of the tolerable noise to within 5 %."""
MIN_FACTOR, MAX_DEVIATION = 2.0**-10, 255.0
"""The search stops at the factor `MIN_FACTOR`, and at the standard deviation `MAX_DEVIATION`, the largest product."""
AVERAGE_FACTORS = tuple(2**power for power in range(11))


@dataclass(frozen=True, slots=True)
class LayerLoss:
    """Accuracy with noise in this layer only."""

    layer: str
    accuracy: float
    """0 .. 1, mean over seeds."""
    loss: float
    """Loss compared with no noise, in percentage points."""


@dataclass(frozen=True, slots=True)
class NoiseTrial:
    """Accuracy with noise of one strength in all layers."""

    sigma: float
    """Standard deviation of a readout in LSB (255 is full scale)."""
    average: int
    accuracy: float
    """0 .. 1, mean over seeds."""


@dataclass(frozen=True)
class Sensitivity:
    """Result of a sensitivity analysis."""

    exact_accuracy: float
    """Accuracy without noise, 0 .. 1."""
    noise: Noise
    allowed_loss: float
    """Allowed loss in percentage points."""
    layer_losses: tuple[LayerLoss, ...]
    """Losses of the layers, in the order of the network."""
    level_trials: tuple[NoiseTrial, ...]
    """All evaluated noise levels, ordered by sigma."""
    averaging_trials: tuple[NoiseTrial, ...]
    """The given noise, averaged over 1, 2, 4, ... times as many readouts."""
    max_noise_factor: float
    """Largest tolerable multiple of the noise: 0 if none is tolerable, infinity if all are."""

    @property
    def max_sigma(self) -> float:
        """Largest sigma, in LSB (255 is full scale), that loses no more than the allowed accuracy."""
        return self.max_noise_factor * self.noise.sigma

    @property
    def min_average_count(self) -> int | None:
        """Smallest number of averaged readouts with a tolerable loss, or None if all numbers lose too much."""
        return next(
            (
                trial.average
                for trial in self.averaging_trials
                if is_tolerable(self.exact_accuracy, trial, self.allowed_loss)
            ),
            None,
        )

    @property
    def most_sensitive_layer(self) -> LayerLoss:
        """The layer whose noise loses the most accuracy."""
        return max(self.layer_losses, key=lambda layer: layer.loss)

    def compute_loss(self, trial: NoiseTrial) -> float:
        """Return the loss compared with no noise, in percentage points."""
        return 100 * (self.exact_accuracy - trial.accuracy)


class SingleNoisyLayerMultiplier:
    """Multiplier that adds noise in one layer and is exact in all others."""

    def __init__(self, exact: Multiplier, noisy: Multiplier, layer: str) -> None:
        self._exact, self._noisy, self._layer = exact, noisy, layer

    def compute_sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> npt.NDArray[Any]:
        """Return the sums of a layer, like `Multiplier.compute_sums`."""
        multiplier = self._noisy if layer.name == self._layer else self._exact
        return multiplier.compute_sums(layer, activations, keys)


def open_single_noisy_layer(model: CompiledModel, layer: str, noise: Noise, seed: int) -> Executor:
    """Return an executor with noise in this layer only."""
    multiplier = SingleNoisyLayerMultiplier(
        make_exact_multiplier(), NoisyMultiplier(model, noise, seed), layer
    )
    return Interpreter(model, multiplier, "noisy")


def measure_sensitivity(
    model: CompiledModel,
    dataset: Dataset,
    noise: Noise,
    seeds: Sequence[int] = (0, 1, 2),
    allowed_loss: float = 1.0,
) -> Sensitivity:
    """Measure the loss by noise in each layer and in all layers. `allowed_loss` is in percentage points.

    Raise `OutOfRange` if the noise is zero, `allowed_loss` is not positive, or no layer of the network is photonic.
    """
    if not compute_full_light_deviation(noise):
        raise OutOfRange("there is no noise to vary", hint="Give a sigma above 0")
    if not allowed_loss > 0:
        raise OutOfRange(
            f"the allowed loss, {allowed_loss} points, must be positive",
            hint="Give for example 1 or 0.5 points",
        )
    if not model.layers:
        raise OutOfRange(
            f"no layer of {model.network.name} runs on light",
            hint="Run `lightning explain` to see what runs where",
        )
    exact_accuracy = evaluate(open_executor(model, "exact"), dataset).accuracy
    search = _SensitivitySearch(model, dataset, noise, tuple(seeds), exact_accuracy, allowed_loss)
    layer_losses = tuple(
        LayerLoss(name, accuracy, 100 * (exact_accuracy - accuracy))
        for name, accuracy in (
            (node.name, search.measure_layer_accuracy(node.name))
            for node in model.network.nodes
            if node.name in model.layers
        )
    )
    averaging_trials = search.average_readouts()
    max_noise_factor = search.find_largest_factor()
    level_trials = tuple(sorted(search.level_trials, key=lambda trial: trial.sigma))
    return Sensitivity(
        exact_accuracy, noise, allowed_loss, layer_losses, level_trials, averaging_trials, max_noise_factor
    )


def is_tolerable(exact_accuracy: float, trial: NoiseTrial, allowed_loss: float) -> bool:
    """Return whether at most `allowed_loss` percentage points are lost.

    >>> (
    ...     is_tolerable(0.922, NoiseTrial(1.0, 1, 0.912), 1.0),
    ...     is_tolerable(0.922, NoiseTrial(1.0, 1, 0.9119), 1.0),
    ... )
    (True, False)
    """
    # Without 1e-9, rounding could reject a loss of exactly `allowed_loss`.
    return 100 * (exact_accuracy - trial.accuracy) <= allowed_loss + 1e-9


def format_points(loss: float) -> str:
    """Return percentage points as text with the unit.

    >>> format_points(1.0), format_points(0.5)
    ('1 point', '0.5 points')
    """
    return f"{loss:g} point{'' if loss == 1 else 's'}"


def compute_full_light_deviation(noise: Noise) -> float:
    """Return the standard deviation of a readout at full light, in LSB (255 is full scale).

    >>> round(compute_full_light_deviation(Noise(sigma=3.0, intensity=(4 / 255) ** 2)), 9)
    5.0
    """
    return math.sqrt(noise.compute_variance(MAX_DEVIATION))


class _SensitivitySearch:
    """Measurement of one network with different noise."""

    def __init__(
        self,
        model: CompiledModel,
        dataset: Dataset,
        noise: Noise,
        seeds: tuple[int, ...],
        exact_accuracy: float,
        allowed_loss: float,
    ) -> None:
        self.model, self.dataset, self.noise, self.seeds = model, dataset, noise, seeds
        self.exact_accuracy, self.allowed_loss = exact_accuracy, allowed_loss
        self.level_trials: list[NoiseTrial] = []

    def measure_layer_accuracy(self, layer: str) -> float:
        return self._measure_mean(
            [open_single_noisy_layer(self.model, layer, self.noise, seed) for seed in self.seeds]
        )

    def measure_all_layers(self, noise: Noise) -> NoiseTrial:
        executors = [open_executor(self.model, "noisy", noise=noise, seed=seed) for seed in self.seeds]
        return NoiseTrial(noise.sigma, noise.average, self._measure_mean(executors))

    def average_readouts(self) -> tuple[NoiseTrial, ...]:
        """Average 1, 2, 4, ... times as many readouts, until the loss is tolerable."""
        trials: list[NoiseTrial] = []
        for factor in AVERAGE_FACTORS:
            trials.append(self.measure_all_layers(replace(self.noise, average=self.noise.average * factor)))
            if is_tolerable(self.exact_accuracy, trials[-1], self.allowed_loss):
                break
        return tuple(trials)

    def find_largest_factor(self) -> float:
        """Return the largest tolerable factor of the noise.

        Doubling or halving brackets the factor. Bisection of its logarithm then narrows it to `FACTOR_PRECISION`. At
        the limits of the search, return 0 or infinity.
        """
        low = high = 1.0
        if self._is_tolerable(1.0):
            while self._is_tolerable(high := 2 * low):
                low = high
                if low * compute_full_light_deviation(self.noise) >= MAX_DEVIATION:
                    return math.inf
        else:
            while not self._is_tolerable(low := high / 2):
                high = low
                if high <= MIN_FACTOR:
                    return 0.0
        while high / low > FACTOR_PRECISION:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._is_tolerable(middle) else (low, middle)
        return low

    def _is_tolerable(self, factor: float) -> bool:
        self.level_trials.append(self.measure_all_layers(self.noise.scale(factor)))
        return is_tolerable(self.exact_accuracy, self.level_trials[-1], self.allowed_loss)

    def _measure_mean(self, executors: Sequence[Executor]) -> float:
        return float(np.mean([evaluate(executor, self.dataset).accuracy for executor in executors]))
