"""Comparison of one network: in float32 and int8 under ONNX Runtime, and photonic without and with noise.

All times are from raw inputs to scores, on the same batch, with one thread, after a warm-up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from lightning.compiler import CompiledModel
from lightning.costs import estimate_costs
from lightning.costs.presets import format_joules
from lightning.evaluation.accuracy import BATCH_SIZE, evaluate, measure_throughput
from lightning.evaluation.dataset import Dataset, Raw
from lightning.evaluation.images import fit_axes
from lightning.evaluation.onnx_runtime import open_float32_session, open_int8_session, split_samples
from lightning.execution import open_executor
from lightning.execution.interface import Fidelity
from lightning.execution.noise import Noise


@dataclass(frozen=True)
class Row:
    """One execution of the network in the comparison."""

    name: str
    accuracy: float
    """Share of correct answers, 0 .. 1; with noise, the mean over seeds."""
    spread: float | None
    """Sample standard deviation over seeds; None without noise or with a single seed."""
    images_per_s: float
    joules: float | None = None
    """Energy of one image; None for ONNX Runtime."""
    joules_without_converters: float | None = None


def compare(
    model: CompiledModel,
    dataset: Dataset,
    noise: Noise,
    seeds: Sequence[int],
    *,
    preset: str = "chip",
    batch_size: int = BATCH_SIZE,
    duration_s: float,
) -> list[Row]:
    """Return the four rows of the comparison. Each is timed on one batch for at least `duration_s`.

    The energy comes from `estimate_costs(model, preset)`. Raise `InputError` if the data do not fit the model.
    """
    inputs = fit_axes(dataset.x[:batch_size], model.network)
    with limit_to_one_thread():
        measurement = _Measurement(model, dataset, inputs, duration_s)
        exact_row = measurement.measure_photonic("exact", None, seeds[:1], preset)
        noisy_row = measurement.measure_photonic("noisy", noise, seeds, preset)
        return [measurement.measure_float32(), measurement.measure_int8(), exact_row, noisy_row]


def compute_spread(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation, or None for fewer than two values.

    >>> compute_spread([0.9, 0.92, 0.94]), compute_spread([1.0])
    (0.02, None)
    """
    return round(float(np.std(values, ddof=1)), 12) if len(values) > 1 else None


def format_table(rows: Sequence[Row]) -> str:
    """Format the table as text, without columns that are empty in every row."""
    lines = [
        ("", "accuracy", "spread", "images/s", "energy/image", "without converters"),
        *map(_format_cells, rows),
    ]
    used_columns = [column for column in range(6) if any(line[column] for line in lines[1:])]
    widths = [max(len(line[column]) for line in lines) for column in used_columns]
    return "\n".join(
        "  ".join(
            line[column].ljust(width) if column == 0 else line[column].rjust(width)
            for column, width in zip(used_columns, widths, strict=True)
        ).rstrip()
        for line in lines
    )


@contextlib.contextmanager
def limit_to_one_thread() -> Iterator[None]:
    """Limit numpy's matrix products to one thread inside the block, if threadpoolctl is installed."""
    try:
        thread_limit = import_module("threadpoolctl").threadpool_limits(limits=1)
    except ImportError:
        thread_limit = contextlib.nullcontext()
    with thread_limit:
        yield


def _format_cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{100 * row.accuracy:.2f} %",
        "" if row.spread is None else f"{100 * row.spread:.2f}",
        f"{row.images_per_s:,.0f}",
        "" if row.joules is None else format_joules(row.joules),
        "" if row.joules_without_converters is None else format_joules(row.joules_without_converters),
    )


@dataclass(frozen=True)
class _Measurement:
    """Measurement of one network on one data set. Throughput is measured on the batch `inputs`."""

    model: CompiledModel
    dataset: Dataset
    inputs: Raw
    duration_s: float

    def measure_float32(self) -> Row:
        session = open_float32_session(self.model.network)
        return Row(
            "float32, ONNX Runtime",
            self._compute_share(session.count_correct(self.dataset)),
            None,
            self._measure_throughput(session.compute_scores),
        )

    def measure_int8(self) -> Row:
        correct_count, images_per_s = 0, 0.0
        for samples, test_dataset in split_samples(self.dataset):
            session = open_int8_session(self.model.network, samples)
            correct_count += session.count_correct(test_dataset)
            images_per_s = images_per_s or self._measure_throughput(session.compute_scores)
        return Row("int8, ONNX Runtime", self._compute_share(correct_count), None, images_per_s)

    def measure_photonic(
        self, fidelity: Fidelity, noise: Noise | None, seeds: Sequence[int], preset: str
    ) -> Row:
        accuracies, images_per_s = [], 0.0
        for seed in seeds:
            executor = open_executor(self.model, fidelity, noise=noise, seed=seed)
            accuracies.append(evaluate(executor, self.dataset).accuracy)
            images_per_s = images_per_s or self._measure_throughput(executor.run)
        costs = estimate_costs(self.model, preset)
        return Row(
            f"photonic, {fidelity}",
            float(np.mean(accuracies)),
            compute_spread(accuracies),
            images_per_s,
            costs.joules_per_image,
            costs.joules_without_converters,
        )

    def _compute_share(self, correct_count: int) -> float:
        return correct_count / len(self.dataset.x)

    def _measure_throughput(self, run: Callable[[Raw], object]) -> float:
        return measure_throughput(run, self.inputs, duration_s=self.duration_s)
