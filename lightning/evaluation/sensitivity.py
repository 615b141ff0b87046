"""Sensitivity: which layer the noise hurts, and how much of it the network bears.

Noise is put into one layer at a time, all others exact; then into all, weaker and weaker until no more than the
allowed accuracy is lost, or averaged over more and more readouts. Every figure is a mean over seeds, and all of
them see the same images.
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
from lightning.execution.multipliers.exact import exact_multiplier
from lightning.execution.multipliers.noisy import NoisyMultiplier
from lightning.execution.noise import Noise

PRECISE = 1.05
"""The bearable noise is found to 5 %."""
LEAST, MOST = 2.0**-10, 255.0
"""What is looked at: from this times the given noise, to noise as large as the largest product."""
AVERAGES = tuple(2**power for power in range(11))


@dataclass(frozen=True, slots=True)
class LayerLoss:
    """Loss by noise in this layer alone."""

    layer: str
    accuracy: float
    """0 .. 1, mean over seeds."""
    loss: float
    """Points lost against no noise."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Noise in all layers, at one strength."""

    sigma: float
    """Of 255."""
    average: int
    accuracy: float
    """0 .. 1, mean over seeds."""


@dataclass(frozen=True)
class Sensitivity:
    """Findings of a sensitivity run."""

    exact: float
    """Accuracy without noise, 0 .. 1."""
    noise: Noise
    allowed: float
    """Points."""
    layers: tuple[LayerLoss, ...]
    """In the order of the network."""
    tried: tuple[Tried, ...]
    """Every strength that was looked at, by sigma."""
    averaged: tuple[Tried, ...]
    """The given noise, averaged."""
    factor: float
    """Times the given noise is bearable: 0 where not even the weakest is, infinity where the strongest still is."""

    @property
    def sigma(self) -> float:
        """Largest noise, of 255, with which no more than the allowed accuracy is lost."""
        return self.factor * self.noise.sigma

    @property
    def average(self) -> int | None:
        """The smallest averaging with which no more is lost; None where none that was looked at is enough."""
        return next((each.average for each in self.averaged if borne(self.exact, each, self.allowed)), None)

    @property
    def weakest(self) -> LayerLoss:
        """The layer whose noise costs most."""
        return max(self.layers, key=lambda each: each.loss)

    def loss(self, tried: Tried) -> float:
        """Return the points lost against no noise."""
        return 100 * (self.exact - tried.accuracy)


class OneNoisyLayer:
    """Products of one layer with noise, of all others without."""

    def __init__(self, exact: Multiplier, noisy: Multiplier, layer: str) -> None:
        self._exact, self._noisy, self._layer = exact, noisy, layer

    def sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> npt.NDArray[Any]:
        """Return the sums as every multiplier does."""
        chosen = self._noisy if layer.name == self._layer else self._exact
        return chosen.sums(layer, activations, keys)


def one_noisy_layer(model: CompiledModel, layer: str, noise: Noise, seed: int) -> Executor:
    """Return an executor with noise in this layer alone."""
    products = OneNoisyLayer(exact_multiplier(), NoisyMultiplier(model, noise, seed), layer)
    return Interpreter(model, products, "noisy")


def sensitivity(
    model: CompiledModel,
    dataset: Dataset,
    noise: Noise,
    seeds: Sequence[int] = (0, 1, 2),
    allowed: float = 1.0,
) -> Sensitivity:
    """Look at every layer and at all together. `allowed` is the bearable loss in points.

    Raises `OutOfRange` for noise that is none, for a loss that is not above 0, and for a network without a layer that
    light computes.
    """
    if not brightest(noise):
        raise OutOfRange("there is no noise to vary", hint="Give a sigma above 0")
    if not allowed > 0:
        raise OutOfRange(f"a loss of {allowed} points is not positive", hint="Allow 1 point, or 0.5")
    if not model.layers:
        raise OutOfRange(
            f"no layer of {model.network.name} runs on light",
            hint="Run `lightning explain` to see what runs where",
        )
    exact = evaluate(open_executor(model, "exact"), dataset).accuracy
    search = _Search(model, dataset, noise, tuple(seeds), exact, allowed)
    layers = tuple(
        LayerLoss(name, accuracy, 100 * (exact - accuracy))
        for name, accuracy in (
            (node.name, search.of_layer(node.name))
            for node in model.network.nodes
            if node.name in model.layers
        )
    )
    averaged = search.average_readouts()
    factor = search.bearable()
    tried = tuple(sorted(search.tried, key=lambda each: each.sigma))
    return Sensitivity(exact, noise, allowed, layers, tried, averaged, factor)


def borne(exact: float, tried: Tried, allowed: float) -> bool:
    """Return whether no more than `allowed` points are lost; a loss of just as many is borne.

    >>> borne(0.922, Tried(1.0, 1, 0.912), 1.0), borne(0.922, Tried(1.0, 1, 0.9119), 1.0)
    (True, False)
    """
    return 100 * (exact - tried.accuracy) <= allowed + 1e-9


def points(loss: float) -> str:
    """Return points in words.

    >>> points(1.0), points(0.5)
    ('1 point', '0.5 points')
    """
    return f"{loss:g} point{'' if loss == 1 else 's'}"


def brightest(noise: Noise) -> float:
    """Return the standard deviation of a readout of a full product, of 255.

    >>> round(brightest(Noise(sigma=3.0, intensity=(4 / 255) ** 2)), 9)
    5.0
    """
    return math.sqrt(noise.variance(MOST))


class _Search:
    """Runs the network with this noise and that."""

    def __init__(
        self,
        model: CompiledModel,
        dataset: Dataset,
        noise: Noise,
        seeds: tuple[int, ...],
        exact: float,
        allowed: float,
    ) -> None:
        self.model, self.dataset, self.noise, self.seeds = model, dataset, noise, seeds
        self.exact, self.allowed = exact, allowed
        self.tried: list[Tried] = []

    def of_layer(self, layer: str) -> float:
        return self._mean([one_noisy_layer(self.model, layer, self.noise, seed) for seed in self.seeds])

    def of_all(self, noise: Noise) -> Tried:
        executors = [open_executor(self.model, "noisy", noise=noise, seed=seed) for seed in self.seeds]
        return Tried(noise.sigma, noise.average, self._mean(executors))

    def average_readouts(self) -> tuple[Tried, ...]:
        """Try 1, 2, 4, ... times as many readouts, until it is enough."""
        found: list[Tried] = []
        for times in AVERAGES:
            found.append(self.of_all(replace(self.noise, average=self.noise.average * times)))
            if borne(self.exact, found[-1], self.allowed):
                break
        return tuple(found)

    def bearable(self) -> float:
        """Return the bearable noise, found by doubling or halving to a bracket, then by bisection of its logarithm."""
        low = high = 1.0
        if self._borne(1.0):
            while self._borne(high := 2 * low):
                low = high
                if low * brightest(self.noise) >= MOST:
                    return math.inf
        else:
            while not self._borne(low := high / 2):
                high = low
                if high <= LEAST:
                    return 0.0
        while high / low > PRECISE:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._borne(middle) else (low, middle)
        return low

    def _borne(self, factor: float) -> bool:
        self.tried.append(self.of_all(self.noise.scale(factor)))
        return borne(self.exact, self.tried[-1], self.allowed)

    def _mean(self, executors: Sequence[Executor]) -> float:
        return float(np.mean([evaluate(executor, self.dataset).accuracy for executor in executors]))
