"""Accuracy: how many answers are right, and how fast they come."""

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
from lightning.execution.interface import Executor, classes_of
from lightning.networks.network import Network

BATCH = 256


@dataclass(frozen=True)
class Evaluation:
    """Result of one executor on one data set."""

    right: int
    images: int
    seconds: float
    """From raw inputs to scores, all images, after a warm start."""
    cycles: int = 0
    """Of the datapath, for one image."""
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """0 .. 1."""
        return self.right / self.images

    @property
    def images_per_s(self) -> float:
        """Images per second of this run; 0 if its time was not measurable."""
        return self.images / self.seconds if self.seconds > 0 else 0.0


def evaluate(executor: Executor, dataset: Dataset, *, batch: int = BATCH) -> Evaluation:
    """Run all test images. An image's key is its place in the data set, so the size of batches changes no answer.

    Raises `InputError` where the model does not take such images, or has no such classes.
    """
    network = executor.model.network
    inputs = fit_axes(dataset.x, network)
    check_classes(dataset, network)
    executor.warm()
    right, cycles, counters, seconds = 0, 0, Counter[str](), 0.0
    for start in range(0, len(inputs), batch):
        part = slice(start, start + batch)
        keys = np.arange(start, start + len(inputs[part]), dtype=np.uint64)
        begun = time.perf_counter()
        answers = executor.run(inputs[part], keys)
        seconds += time.perf_counter() - begun
        right += count_right(answers.scores, dataset.y[part])
        cycles = max(cycles, answers.cycles)
        counters.update(answers.counters)
    return Evaluation(right, len(inputs), seconds, cycles, dict(counters))


def check_classes(dataset: Dataset, network: Network) -> None:
    """Raise `InputError` where the data has classes that the network has no score for."""
    scores = max(int(np.prod(network.output_shape)), 2)
    if dataset.y.min() < 0 or dataset.y.max() >= scores:
        raise InputError(
            (
                f"{dataset.name} has the classes {dataset.y.min()} to {dataset.y.max()}, but {network.name} "
                f"has scores for 0 to {scores - 1}"
            ),
            hint="Use data that the network was trained for",
        )


def count_right(scores: npt.NDArray[np.float32], wanted: Classes) -> int:
    """Return the answers whose class is the wanted one."""
    return int((classes_of(scores) == wanted).sum())


def pace(run: Callable[[Raw], object], inputs: Raw, *, seconds: float = 0.3) -> float:
    """Return the images a second of `run` on a batch, the median of three repeats or more that last `seconds`."""
    run(inputs)
    took: list[float] = []
    while len(took) < 3 or sum(took) < seconds:
        begun = time.perf_counter()
        run(inputs)
        took.append(time.perf_counter() - begun)
    return len(inputs) / max(float(np.median(took)), 1e-9)
