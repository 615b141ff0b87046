"""Accuracy and throughput of an executor on a data set."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.evaluation.dataset import Classes, Dataset, Raw
from lightning.evaluation.images import fit_axes
from lightning.execution.interface import Executor, find_classes
from lightning.networks.network import Network

BATCH_SIZE = 256


@dataclass(frozen=True)
class Evaluation:
    """Result of one executor on one data set."""

    correct_count: int
    """Number of correctly classified images."""
    images: int
    seconds: float
    """Time from raw inputs to scores for all images, without `Executor.warm`."""
    cycles: int = 0
    """Cycles of the datapath for one image."""
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Share of correctly classified images, 0 .. 1."""
        return self.correct_count / self.images

    @property
    def images_per_s(self) -> float:
        """Throughput in images per second; 0 if the time was too short to measure."""
        return self.images / self.seconds if self.seconds > 0 else 0.0


def evaluate(executor: Executor, dataset: Dataset, *, batch: int = BATCH_SIZE) -> Evaluation:
    """Run all test images and count the correct answers.

    The noise key of an image is its index in the data set, so the result does not depend on `batch`. Raise `InputError`
    if the shape or the classes of the data do not fit the model.
    """
    network = executor.model.network
    inputs = fit_axes(dataset.x, network)
    check_classes(dataset, network)
    executor.warm()
    correct_count, cycles, counters, seconds = 0, 0, Counter[str](), 0.0
    for start in range(0, len(inputs), batch):
        batch_slice = slice(start, start + batch)
        keys = np.arange(start, start + len(inputs[batch_slice]), dtype=np.uint64)
        start_s = time.perf_counter()
        answers = executor.run(inputs[batch_slice], keys)
        seconds += time.perf_counter() - start_s
        correct_count += count_correct(answers.scores, dataset.y[batch_slice])
        cycles = max(cycles, answers.cycles)
        counters.update(answers.counters)
    return Evaluation(correct_count, len(inputs), seconds, cycles, dict(counters))


def check_classes(dataset: Dataset, network: Network) -> None:
    """Raise `InputError` if the network has no score for a class of the data."""
    # A single score is the logit of two classes.
    class_count = max(int(np.prod(network.output_shape)), 2)
    if dataset.y.min() < 0 or dataset.y.max() >= class_count:
        raise InputError(
            (
                f"{dataset.name} has the classes {dataset.y.min()} to {dataset.y.max()}, but {network.name} "
                f"has scores for 0 to {class_count - 1}"
            ),
            hint="Use data that the network was trained for",
        )


def count_correct(scores: npt.NDArray[np.float32], labels: Classes) -> int:
    """Return the number of rows of `scores` whose class equals the label."""
    return int((find_classes(scores) == labels).sum())


def measure_throughput(run: Callable[[Raw], object], inputs: Raw, *, duration_s: float = 0.3) -> float:
    """Return the images per second of `run` on one batch.

    One untimed run warms up. The time is the median of at least three runs, which together take at least `duration_s`.
    """
    run(inputs)
    durations_s: list[float] = []
    while len(durations_s) < 3 or sum(durations_s) < duration_s:
        start_s = time.perf_counter()
        run(inputs)
        durations_s.append(time.perf_counter() - start_s)
    return len(inputs) / max(float(np.median(durations_s)), 1e-9)
