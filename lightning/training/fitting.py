"""The training loop, with Adam, cosine annealing of the learning rate to 0, and batches in an order set by the seed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import OutOfRange
from lightning.optional import require
from lightning.training.emulation import Emulation
from lightning.training.modules import emulate

torch = require("torch", "to train networks")

Loss = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Hyperparameters of a training run. Raise `OutOfRange` if epochs, batch or rate are not positive."""

    epochs: int = 8
    batch: int = 100
    rate: float = 3e-3
    """Initial learning rate of Adam. It falls along half a cosine."""
    loss: Loss = torch.nn.functional.cross_entropy
    """Loss as a function of scores and labels."""
    frozen_statistics: bool = False
    """True to keep the running means and variances of batch normalisation fixed, like the compiled network."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or self.rate <= 0:
            raise OutOfRange(
                (
                    f"training needs positive values, not {self.epochs} epochs, batches of {self.batch} and a "
                    f"rate of {self.rate}"
                ),
                hint="Give each a value above zero",
            )


def fit(
    module: Any,
    inputs: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    seed: int,
    schedule: Schedule | None = None,
    emulation: Emulation | None = None,
) -> Any:
    """Train a copy of a module, and return it in evaluation mode. The module itself is not changed.

    `inputs` (images, ...) are preprocessed float32 values, `labels` (images,) integers. With an `emulation`, the copy
    trains with rounding and noise. The same seed yields the same result on the same machine, and the state of torch's
    global generator is preserved.
    """
    schedule = schedule or Schedule()
    trained_module = copy.deepcopy(module).train()
    x = torch.from_numpy(np.array(inputs, np.float32))
    y = torch.from_numpy(np.array(labels))
    with torch.random.fork_rng(devices=[]), _make_emulation(trained_module, emulation, seed):
        torch.manual_seed(seed)
        if schedule.frozen_statistics:
            _freeze_statistics(trained_module)
        _train(trained_module, x, y, schedule, seed)
    return trained_module.eval()


def _make_emulation(module: Any, emulation: Emulation | None, seed: int) -> Any:
    return nullcontext() if emulation is None else emulate(module, emulation, seed=seed)


def _freeze_statistics(module: Any) -> None:
    normalisations = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
    for submodule in module.modules():
        if isinstance(submodule, normalisations):
            submodule.eval()


def _train(module: Any, x: Any, y: Any, schedule: Schedule, seed: int) -> None:
    optimiser = torch.optim.Adam(module.parameters(), schedule.rate)
    step_count = schedule.epochs * -(-len(x) // schedule.batch)
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, step_count)
    for indices in _shuffle_batches(len(x), schedule, seed):
        loss = schedule.loss(module(x[indices]), y[indices])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        annealing.step()


def _shuffle_batches(image_count: int, schedule: Schedule, seed: int) -> Iterator[Any]:
    for epoch in range(schedule.epochs):
        order = np.random.default_rng([seed, epoch]).permutation(image_count)
        yield from torch.from_numpy(order).split(schedule.batch)
