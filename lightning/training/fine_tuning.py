"""Training for noise, compared with what as much training without noise would have done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning.compiler import CompiledModel, compile_network
from lightning.compiler.options import Options
from lightning.evaluation import Dataset, evaluate
from lightning.evaluation.accuracy import count_right
from lightning.execution import open_executor
from lightning.execution.noise import Noise
from lightning.networks import Network, Preprocessing, from_torch, preprocess, run_float
from lightning.training.curve import mean_accuracy
from lightning.training.emulation import Emulation
from lightning.training.fitting import Schedule, fit

SAMPLES = 512
"""Training images from which the compiler takes ranges."""
DRAWS = 3
"""Seeds of noise that an accuracy is the mean of."""


@dataclass(frozen=True)
class Outcome:
    """A module, compiled, and how many of the test images it gets right: 0 .. 1."""

    module: Any
    model: CompiledModel
    float32: float
    exact: float
    noisy: float
    """Mean over seeds of the noise."""

    @property
    def network(self) -> Network:
        """The trained network as floats."""
        return self.model.network


@dataclass(frozen=True)
class Comparison:
    """The same module before, after fine-tuning without noise, and after fine-tuning with it: equal epochs."""

    before: Outcome
    plain: Outcome
    aware: Outcome
    noise: Noise
    epochs: int
    seed: int

    @property
    def gain(self) -> float:
        """Return what noise in training is worth on noisy light, compared with plain fine-tuning."""
        return self.aware.noisy - self.plain.noisy

    def __str__(self) -> str:
        """Return a table for people, in per cent."""
        rows = [
            ("as it was", self.before),
            ("fine-tuned, no noise", self.plain),
            ("fine-tuned, noise", self.aware),
        ]
        lines = [f"{'':22}{'float32':>9}{'exact':>9}{'noisy':>9}"]
        lines += [
            f"{name:22}{100 * row.float32:9.2f}{100 * row.exact:9.2f}{100 * row.noisy:9.2f}"
            for name, row in rows
        ]
        origin = (
            f"{self.noise.place}, sigma {self.noise.sigma:.3g}, {self.epochs} epochs each, seed {self.seed}"
        )
        return "\n".join([*lines, f"gain {100 * self.gain:+.2f} points ({origin})"])


def fine_tune(
    module: Any,
    dataset: Dataset,
    *,
    shape: Sequence[int],
    noise: Noise,
    preprocessing: Preprocessing | None = None,
    schedule: Schedule | None = None,
    options: Options | None = None,
    seed: int = 0,
) -> Comparison:
    """Fine-tune copies of a trained module on the training part, one with the noise and one without.

    All three are compiled and run on the test part by the executors `exact` and `noisy`, not by what training
    emulates. `shape` is that of one input, as for `from_torch`. Take `.aware.module` only where `.gain` says so.
    Raises `DatasetError` without a training part, and what importing and compiling raise.
    """
    schedule, options = schedule or Schedule(frozen_statistics=True), options or Options()
    train = dataset.of_training()
    x = preprocess(from_torch(module, tuple(shape), preprocessing), train.x)

    def measure_candidate(candidate: Any) -> Outcome:
        network = from_torch(candidate, tuple(shape), preprocessing)
        return measure(candidate, network, dataset, noise=noise, options=options)

    light = Emulation(noise, options, (preprocessing or Preprocessing()).scale)
    plain = fit(module, x, train.y, seed=seed, schedule=schedule)
    aware = fit(module, x, train.y, seed=seed, schedule=schedule, emulation=light)
    return Comparison(
        measure_candidate(module),
        measure_candidate(plain),
        measure_candidate(aware),
        noise,
        schedule.epochs,
        seed,
    )


def measure(
    module: Any,
    network: Network,
    dataset: Dataset,
    *,
    noise: Noise,
    options: Options | None = None,
    draws: int = DRAWS,
) -> Outcome:
    """Compile a network and count right answers; `draws` seeds of noise."""
    model = compile_network(network, dataset.train_x[:SAMPLES], options)
    scores = run_float(network, preprocess(network, dataset.x))
    float32 = count_right(scores, dataset.y) / len(dataset.y)
    exact = evaluate(open_executor(model, "exact"), dataset).accuracy
    return Outcome(module, model, float32, exact, mean_accuracy(model, dataset, noise, draws))
