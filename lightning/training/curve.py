"""The accuracy of a model over growing noise, until it falls below one half."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lightning.compiler import CompiledModel
from lightning.errors import OutOfRange
from lightning.evaluation import Dataset, evaluate
from lightning.execution import open_executor
from lightning.execution.noise import Noise

FIRST_SIGMA = 0.5
LAST_SIGMA = 512.0
STEPS_PER_DOUBLING = 2
"""Number of steps in which sigma doubles."""


@dataclass(frozen=True)
class Curve:
    """Accuracy (0 .. 1, mean over seeds) at each of the ascending sigmas."""

    sigmas: tuple[float, ...]
    accuracies: tuple[float, ...]

    @property
    def half_point(self) -> float:
        """The sigma at which the accuracy falls to one half, linearly interpolated.

        It is infinite if the accuracy stays above one half, or is below one half without noise.

        >>> Curve((1.0, 2.0, 4.0), (0.9, 0.7, 0.3)).half_point
        3.0
        """
        for index in range(1, len(self.sigmas)):
            above, below = self.accuracies[index - 1], self.accuracies[index]
            if above >= 0.5 > below:
                share = (above - 0.5) / (above - below)
                return self.sigmas[index - 1] + share * (self.sigmas[index] - self.sigmas[index - 1])
        return math.inf


def accuracy_curve(model: CompiledModel, dataset: Dataset, noise: Noise, *, seeds: int = 3) -> Curve:
    """Measure the accuracy without noise, then at sigma 0.5, 0.71, 1, ... (in LSB) until it is below one half.

    The curve ends at `LAST_SIGMA` at the latest. The sigma of `noise` is ignored. Raise `OutOfRange` for fewer than one
    seed.
    """
    if seeds < 1:
        raise OutOfRange(f"the mean needs at least one seed of noise, not {seeds}", hint="Give at least one")
    sigmas, accuracies = [0.0], [evaluate(open_executor(model, "exact"), dataset).accuracy]
    step, sigma = 0, FIRST_SIGMA
    while accuracies[-1] >= 0.5 and sigma <= LAST_SIGMA:
        sigmas.append(sigma)
        accuracies.append(measure_mean_accuracy(model, dataset, replace(noise, sigma=sigma), seeds))
        step += 1
        sigma = FIRST_SIGMA * 2 ** (step / STEPS_PER_DOUBLING)  # a power is exact at every doubling
    return Curve(tuple(sigmas), tuple(accuracies))


def measure_mean_accuracy(model: CompiledModel, dataset: Dataset, noise: Noise, seed_count: int) -> float:
    """Return the accuracy with noise on the test images, 0 .. 1, as mean over the seeds 0, 1, ..., `seed_count` - 1."""
    accuracies = [
        evaluate(open_executor(model, "noisy", noise=noise, seed=seed), dataset).accuracy
        for seed in range(seed_count)
    ]
    return float(np.mean(accuracies))
