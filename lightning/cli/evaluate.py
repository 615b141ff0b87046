"""`lightning evaluate MODEL DATA`: accuracy of a model, and comparison with ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli import noise_options
from lightning.cli.options import AsJson
from lightning.cli.output import EXIT_OK, collect_saturation, print_document, warn
from lightning.errors import ConfigError, OutOfRange
from lightning.evaluation.sources import NAMES_HELP

if TYPE_CHECKING:
    from lightning.compiler import CompiledModel
    from lightning.evaluation.accuracy import Evaluation
    from lightning.evaluation.dataset import Dataset
    from lightning.evaluation.result import Provenance
    from lightning.execution.noise import Noise

Data = Annotated[str, typer.Argument(metavar="DATA", help=f"{NAMES_HELP}.")]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds", min=1, help="Number of noise seeds, from --seed on; default 1, or 5 with --compare."
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N images.")]
Part = Annotated[str, typer.Option("--part", help="Part of the data: test or train.")]
Compare = Annotated[
    str | None,
    typer.Option(
        "--compare", metavar="WITH", help="onnxruntime: compare with ONNX Runtime in float32 and int8."
    ),
]

TABLE_SEED_COUNT = 5
TIMING_DURATION_S = 0.3
"""Duration of the throughput measurement of each row of the table."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate")(evaluate_command)


def evaluate_command(
    model: noise_options.Model,
    data: Data,
    fidelity: noise_options.FidelityName = None,
    noise: noise_options.NoisePlace = None,
    sigma: noise_options.Sigma = None,
    mean: noise_options.Mean = None,
    average: noise_options.Average = 1,
    seed: noise_options.MaybeSeed = None,
    seeds: Seeds = None,
    limit: Limit = None,
    part: Part = "test",
    compare: Compare = None,
    device: noise_options.MaybeDevice = None,
    bus: noise_options.Bus = None,
    fault: noise_options.FaultNames = None,
    *,
    calibrated: noise_options.Calibrated = False,
    as_json: AsJson = False,
) -> int:
    """Measure the accuracy of a model on a data set.

    For example: lightning evaluate weights.npz mnist:DIR --noise per-product --seeds 5
    """
    noise_options.check_choice("compare", compare or "onnxruntime", ("onnxruntime",))
    run = noise_options.choose_run(
        fidelity, noise, sigma, mean, average, device, bus, fault, calibrated=calibrated
    )
    if fault and compare:
        raise ConfigError(
            "faults are given, but the table compares models without faults",
            hint="Leave --fault or --compare out",
        )
    has_table = compare is not None
    noise_seeds = _choose_seeds(run, seed, seeds, has_table=has_table)
    from lightning.evaluation.datasets import load_dataset
    from lightning.evaluation.models import load_model_and_data
    from lightning.evaluation.result import describe_preprocessing, round_values
    from lightning.evaluation.warnings import find_clipping_warnings, find_data_warnings
    from lightning.execution.noise import Noise

    compiled_model, dataset = load_model_and_data(model, select_part(load_dataset(data), part))
    dataset = dataset.take_first(limit)
    warnings = warn(find_data_warnings(compiled_model, dataset.name, dataset.x))
    run_seeds = noise_seeds if run.fidelity == "noisy" else noise_seeds[:1]
    evaluations = evaluate_seeds(run, compiled_model, dataset, run_seeds)
    warnings += warn(
        find_clipping_warnings(compiled_model, len(run_seeds) * len(dataset.x), sum_counters(evaluations))
    )
    provenance = run.make_provenance(compiled_model, run_seeds)
    rows = _compare(compiled_model, dataset, run.noise or Noise(), noise_seeds) if has_table else []
    if as_json:
        data_facts = {"data": dataset.name, "data_origin": dict(dataset.origin), "warnings": warnings}
        table = {"table": [round_values(asdict(row)) for row in rows]} if rows else {}
        print_document(None, {**provenance.document, **data_facts, **summarise(evaluations), **table})
    else:
        _print_evaluations(provenance, dataset, evaluations)
        if Path(model).suffix != ".lng":
            print(f"compiled for this run, {describe_preprocessing(compiled_model.network.preprocessing)}")
        _print_table(rows, run.noise or Noise(), noise_seeds)
    return EXIT_OK


def _choose_seeds(
    run: noise_options.Run, first_seed: int | None, seed_count: int | None, *, has_table: bool
) -> tuple[int, ...]:
    """Return the seeds of the noise. With `has_table`, the comparison table needs them: it always has noise.

    If nothing is random, raise `OutOfRange` for more than one seed, and `ConfigError` for a given first seed.
    """
    count = seed_count or (TABLE_SEED_COUNT if has_table else 1)
    if count > 1 and run.fidelity != "noisy" and not has_table:
        raise OutOfRange(
            f"fidelity {run.fidelity} has no seeds", hint="Leave --seeds out, or use --fidelity noisy"
        )
    seed = run.choose_seed(first_seed, has_table=has_table)
    return tuple(range(seed, seed + count))


def select_part(dataset: Dataset, part: str) -> Dataset:
    """Return the data with the images of `part` as test images.

    Raise `OutOfRange` for an unknown part, and `DatasetError` if there is no training part.
    """
    noise_options.check_choice("part", part, ("test", "train"))
    return dataset.select_training() if part == "train" else dataset


def evaluate_seeds(
    run: noise_options.Run, model: CompiledModel, dataset: Dataset, seeds: Sequence[int]
) -> list[Evaluation]:
    """Evaluate the model once for each seed."""
    from lightning.evaluation.accuracy import evaluate

    evaluations = []
    for seed in seeds:
        executor = run.open(model, seed)
        try:
            with collect_saturation():
                evaluations.append(evaluate(executor, dataset))
        finally:
            executor.close()
    return evaluations


def summarise(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Return as plain values: means over seeds, the accuracy of each seed, and the counters."""
    import numpy as np

    from lightning.evaluation.result import round_values
    from lightning.evaluation.table import compute_spread

    accuracies = [evaluation.accuracy for evaluation in evaluations]
    means = {
        "accuracy": float(np.mean(accuracies)),
        "spread": compute_spread(accuracies),
        "images": evaluations[0].images,
        "images_per_s": round(
            sum(evaluation.images for evaluation in evaluations)
            / sum(evaluation.seconds for evaluation in evaluations),
            3,
        ),
        "cycles": evaluations[0].cycles,
    }
    return {
        **round_values(means),
        "accuracies": [round(accuracy, 6) for accuracy in accuracies],
        "counters": sum_counters(evaluations),
    }


def sum_counters(evaluations: Sequence[Evaluation]) -> dict[str, int]:
    """Return the counters, summed over all seeds."""
    counters: Counter[str] = Counter()
    for evaluation in evaluations:
        counters.update(evaluation.counters)
    return dict(counters)


def _compare(model: CompiledModel, dataset: Dataset, noise: Noise, seeds: Sequence[int]) -> list[Any]:
    from lightning.evaluation.table import compare

    return compare(model, dataset, noise, seeds, duration_s=TIMING_DURATION_S)


def _print_evaluations(provenance: Provenance, dataset: Dataset, evaluations: Sequence[Evaluation]) -> None:
    from lightning.evaluation.warnings import count_clippable_activations

    summary = summarise(evaluations)
    document = provenance.document
    print(
        f"{dataset.name}: {summary['images']:,} images; {document['model']},"
        f" scheme {document['scheme']}, {document['model_hash'][:8]}"
    )
    spread = "" if summary["spread"] is None else f" (spread {100 * summary['spread']:.2f})"
    simulated_suffix = "  SIMULATED" if provenance.device.is_simulated else ""
    rate = format_rate(summary["images_per_s"])
    print(
        f"{provenance.description}: {100 * summary['accuracy']:.2f} %{spread}, {rate} images/s{simulated_suffix}"
    )
    activation_count = sum(evaluation.images for evaluation in evaluations) * count_clippable_activations(
        provenance.model
    )
    for name, count in summary["counters"].items():
        if count:
            total_text = f" of {activation_count:,}" if name == "clipped_activations" else ""
            print(f"{name.replace('_', ' ')}: {count:,}{total_text}")


def format_rate(rate: float) -> str:
    """Format a rate without decimals, or with two significant digits if it is below 10.

    >>> format_rate(12345.6), format_rate(0.2289)
    ('12,346', '0.23')
    """
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _print_table(rows: Sequence[Any], noise: Noise, seeds: Sequence[int]) -> None:
    from lightning.evaluation.table import format_table

    if rows:
        shown_noise = replace(noise, identity="")
        print(f"\n{format_table(rows)}")
        print(
            f"Noise {shown_noise.place}, sigma {shown_noise.sigma:.4g} of 255, {len(seeds)} seeds. "
            "Images/s from raw inputs, one"
            " batch, one thread, here; energy of photonic hardware by `lightning energy`, preset chip."
        )
