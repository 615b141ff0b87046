"""The same network side by side: float32 and int8 under ONNX Runtime, on light without noise and with it.

All start from raw inputs and end at scores, on the same batch, with one thread, warm.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lightning import execution
from lightning.compiler import CompiledModel
from lightning.costs import costs_of
from lightning.evaluation.accuracy import BATCH, evaluate, pace
from lightning.evaluation.dataset import Dataset, Raw
from lightning.evaluation.images import fitted
from lightning.evaluation.onnx_runtime import float32_session, int8_session, samples_and_tests
from lightning.execution.seam import Fidelity, Noise


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
) -> list[Row]:
    """All four rows. Energy is that of `costs_of(model, preset)`. Raises `InputError` where data do not fit."""
    inputs = fitted(dataset.x[:batch], model.network)
    with one_thread():
        digital = [_float32(model, dataset, inputs), _int8(model, dataset, inputs)]
        exact = _photonic(model, dataset, inputs, "exact", None, seeds[:1], preset)
        return [*digital, exact, _photonic(model, dataset, inputs, "noisy", noise, seeds, preset)]


def spread_of(values: Sequence[float]) -> float | None:
    """Standard deviation of a sample; None of fewer than two.

    >>> spread_of([0.9, 0.92, 0.94]), spread_of([1.0])
    (0.02, None)
    """
    return round(float(np.std(values, ddof=1)), 12) if len(values) > 1 else None


def as_text(rows: Sequence[Row]) -> str:
    """The table for people; a column of energy only where there is one."""
    lines = [("", "accuracy", "spread", "images/s", "J/image", "without converters"), *map(_cells, rows)]
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
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(limits=1):
        yield


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{100 * row.accuracy:.2f} %",
        "" if row.spread is None else f"{100 * row.spread:.2f}",
        f"{row.images_per_s:,.0f}",
        "" if row.joules is None else f"{row.joules:.2e}",
        "" if row.joules_without_converters is None else f"{row.joules_without_converters:.2e}",
    )


def _float32(model: CompiledModel, dataset: Dataset, inputs: Raw) -> Row:
    session = float32_session(model.network)
    accuracy = session.right(dataset) / len(dataset.x)
    return Row("float32, ONNX Runtime", accuracy, None, pace(session.scores, inputs))


def _int8(model: CompiledModel, dataset: Dataset, inputs: Raw) -> Row:
    right, speed = 0, 0.0
    for samples, tests in samples_and_tests(dataset):
        session = int8_session(model.network, samples)
        right += session.right(tests)
        speed = speed or pace(session.scores, inputs)
    return Row("int8, ONNX Runtime", right / len(dataset.x), None, speed)


def _photonic(
    model: CompiledModel,
    dataset: Dataset,
    inputs: Raw,
    fidelity: Fidelity,
    noise: Noise | None,
    seeds: Sequence[int],
    preset: str,
) -> Row:
    found, speed = [], 0.0
    for seed in seeds:
        executor = execution.open_executor(model, fidelity, noise=noise, seed=seed)
        found.append(evaluate(executor, dataset).accuracy)
        speed = speed or pace(executor.run, inputs)
    costs = costs_of(model, preset)
    return Row(
        f"photonic, {fidelity}",
        float(np.mean(found)),
        spread_of(found),
        speed,
        costs.joules_per_image,
        costs.joules_without_converters,
    )
