"""The same network side by side: float32 and int8 under ONNX Runtime, on light without noise and with it.

All start from raw inputs and end at scores, on the same batch, with one thread, warm.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from lightning.compiler import CompiledModel
from lightning.costs import costs_of
from lightning.costs.presets import in_joules
from lightning.evaluation.accuracy import BATCH, evaluate, pace
from lightning.evaluation.dataset import Dataset, Raw
from lightning.evaluation.images import fit_axes
from lightning.evaluation.onnx_runtime import float32_session, int8_session, samples_and_tests
from lightning.execution import open_executor
from lightning.execution.interface import Fidelity
from lightning.execution.noise import Noise


@dataclass(frozen=True)
class Row:
    """One way of running the network."""

    name: str
    accuracy: float
    """0 .. 1; with noise the mean over seeds."""
    spread: float | None
    """Standard deviation over seeds; None where nothing is random, or there is one seed."""
    images_per_s: float
    joules: float | None = None
    """An image; None where nothing is photonic."""
    joules_without_converters: float | None = None


def compare(
    model: CompiledModel,
    dataset: Dataset,
    noise: Noise,
    seeds: Sequence[int],
    *,
    preset: str = "chip",
    batch: int = BATCH,
    seconds: float,
) -> list[Row]:
    """Return all four rows, each timed on one batch for `seconds`.

    Energy is that of `costs_of(model, preset)`. Raise `InputError` if the data do not fit.
    """
    inputs = fit_axes(dataset.x[:batch], model.network)
    with one_thread():
        timed = _Timed(model, dataset, inputs, seconds)
        exact = timed.photonic("exact", None, seeds[:1], preset)
        noisy = timed.photonic("noisy", noise, seeds, preset)
        return [timed.float32(), timed.int8(), exact, noisy]


def spread_of(values: Sequence[float]) -> float | None:
    """Return the standard deviation of a sample; None of fewer than two.

    >>> spread_of([0.9, 0.92, 0.94]), spread_of([1.0])
    (0.02, None)
    """
    return round(float(np.std(values, ddof=1)), 12) if len(values) > 1 else None


def as_text(rows: Sequence[Row]) -> str:
    """Return the table for people; a column of energy only where there is one."""
    lines = [("", "accuracy", "spread", "images/s", "energy/image", "without converters"), *map(_cells, rows)]
    used = [place for place in range(6) if any(line[place] for line in lines[1:])]
    widths = [max(len(line[place]) for line in lines) for place in used]
    return "\n".join(
        "  ".join(
            line[place].ljust(width) if place == 0 else line[place].rjust(width)
            for place, width in zip(used, widths, strict=True)
        ).rstrip()
        for line in lines
    )


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Matrix products of numpy use one thread inside, where threadpoolctl (of scikit-learn) is there to say so."""
    try:
        limited = import_module("threadpoolctl").threadpool_limits(limits=1)
    except ImportError:
        limited = contextlib.nullcontext()
    with limited:
        yield


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{100 * row.accuracy:.2f} %",
        "" if row.spread is None else f"{100 * row.spread:.2f}",
        f"{row.images_per_s:,.0f}",
        "" if row.joules is None else in_joules(row.joules),
        "" if row.joules_without_converters is None else in_joules(row.joules_without_converters),
    )


@dataclass(frozen=True)
class _Timed:
    """One network on one data set, its pace taken on one batch."""

    model: CompiledModel
    dataset: Dataset
    inputs: Raw
    seconds: float

    def float32(self) -> Row:
        session = float32_session(self.model.network)
        return Row(
            "float32, ONNX Runtime",
            self._share(session.right(self.dataset)),
            None,
            self._pace(session.scores),
        )

    def int8(self) -> Row:
        right, speed = 0, 0.0
        for samples, tests in samples_and_tests(self.dataset):
            session = int8_session(self.model.network, samples)
            right += session.right(tests)
            speed = speed or self._pace(session.scores)
        return Row("int8, ONNX Runtime", self._share(right), None, speed)

    def photonic(self, fidelity: Fidelity, noise: Noise | None, seeds: Sequence[int], preset: str) -> Row:
        found, speed = [], 0.0
        for seed in seeds:
            executor = open_executor(self.model, fidelity, noise=noise, seed=seed)
            found.append(evaluate(executor, self.dataset).accuracy)
            speed = speed or self._pace(executor.run)
        costs = costs_of(self.model, preset)
        return Row(
            f"photonic, {fidelity}",
            float(np.mean(found)),
            spread_of(found),
            speed,
            costs.joules_per_image,
            costs.joules_without_converters,
        )

    def _share(self, right: int) -> float:
        return right / len(self.dataset.x)

    def _pace(self, run: Callable[[Raw], object]) -> float:
        return pace(run, self.inputs, seconds=self.seconds)
