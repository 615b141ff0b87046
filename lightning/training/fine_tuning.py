"""Fine-tuning with noise, compared with equal fine-tuning without noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning.compiler import CompiledModel, compile_network
from lightning.compiler.options import Options
from lightning.evaluation import Dataset, evaluate
from lightning.evaluation.accuracy import count_correct
from lightning.execution import open_executor
from lightning.execution.noise import Noise
from lightning.networks import Network, Preprocessing, from_torch, preprocess, run_float
from lightning.training.curve import measure_mean_accuracy
from lightning.training.emulation import Emulation
from lightning.training.fitting import Schedule, fit

RANGE_SAMPLE_COUNT = 512
"""Number of training images that determine the compiler's ranges."""
NOISE_SEED_COUNT = 3
"""Number of noise seeds whose accuracies are averaged."""


@dataclass(frozen=True)
class Outcome:
    """A module, its compiled model, and its accuracies on the test images, 0 .. 1."""

    module: Any
    model: CompiledModel
    float32: float
    """Accuracy in float32, without quantisation."""
    exact: float
    """Accuracy of the quantised model without noise."""
    noisy: float
    """Accuracy of the quantised model with noise, mean over seeds."""

    @property
    def network(self) -> Network:
        """The network before quantisation, with float weights."""
        return self.model.network


@dataclass(frozen=True)
class Comparison:
    """A module before fine-tuning, after fine-tuning without noise, and after equal fine-tuning with noise."""

    before: Outcome
    plain: Outcome
    aware: Outcome
    noise: Noise
    epochs: int
    seed: int

    @property
    def gain(self) -> float:
        """Gain in accuracy under noise, due to training with noise, -1 .. 1."""
        return self.aware.noisy - self.plain.noisy

    def __str__(self) -> str:
        """Return a table of the accuracies in per cent."""
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
        conditions = (
            f"{self.noise.place}, sigma {self.noise.sigma:.3g}, {self.epochs} epochs each, seed {self.seed}"
        )
        return "\n".join([*lines, f"gain {100 * self.gain:+.2f} points ({conditions})"])


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
    """Fine-tune two copies of a trained module on the training part, one with the noise and one without.

    The module and both copies are compiled, and evaluated on the test part. The evaluation uses the executors `exact`
    and `noisy`; only the training uses an emulation of the noise.

    `shape` is the shape of one input, as in `from_torch`. Use `.aware.module` only if `.gain` is positive. Raise
    `DatasetError` without a training part, and the errors of import and compilation.
    """
    schedule, options = schedule or Schedule(frozen_statistics=True), options or Options()
    training_data = dataset.select_training()
    inputs = preprocess(from_torch(module, tuple(shape), preprocessing), training_data.x)

    def measure_candidate(candidate: Any) -> Outcome:
        network = from_torch(candidate, tuple(shape), preprocessing)
        return measure(candidate, network, dataset, noise=noise, options=options)

    emulation = Emulation(noise, options, (preprocessing or Preprocessing()).scale)
    plain_module = fit(module, inputs, training_data.y, seed=seed, schedule=schedule)
    aware_module = fit(module, inputs, training_data.y, seed=seed, schedule=schedule, emulation=emulation)
    return Comparison(
        measure_candidate(module),
        measure_candidate(plain_module),
        measure_candidate(aware_module),
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
    seed_count: int = NOISE_SEED_COUNT,
) -> Outcome:
    """Compile a network and measure its accuracies on the test part. With noise, average over `seed_count` seeds."""
    model = compile_network(network, dataset.train_x[:RANGE_SAMPLE_COUNT], options)
    scores = run_float(network, preprocess(network, dataset.x))
    float32 = count_correct(scores, dataset.y) / len(dataset.y)
    exact = evaluate(open_executor(model, "exact"), dataset).accuracy
    return Outcome(module, model, float32, exact, measure_mean_accuracy(model, dataset, noise, seed_count))
