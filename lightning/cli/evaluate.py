"""`lightning evaluate MODEL DATA`: how many answers are right, and the same network side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli import noise_options as how
from lightning.cli.options import AsJson
from lightning.cli.output import DONE, print_document, saturation, warn
from lightning.errors import ConfigError, OutOfRange
from lightning.evaluation.sources import NAMES

if TYPE_CHECKING:
    from lightning.compiler import CompiledModel
    from lightning.evaluation.accuracy import Evaluation
    from lightning.evaluation.dataset import Dataset
    from lightning.evaluation.result import Provenance
    from lightning.execution.noise import Noise

Data = Annotated[str, typer.Argument(metavar="DATA", help=f"{NAMES}.")]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", min=1, help="Seeds of the noise, from --seed on; 1, and 5 in the table."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first images.")]
Part = Annotated[str, typer.Option("--part", help="test, or train where there is such a part.")]
Compare = Annotated[
    str | None,
    typer.Option("--compare", metavar="WITH", help="onnxruntime: the table, with float32 and int8."),
]

SEEDS_OF_TABLE = 5
PACE_SECONDS = 0.3
"""For which each row of the table is timed."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate")(evaluate_command)


def evaluate_command(
    model: how.Model,
    data: Data,
    fidelity: how.Fidelities = None,
    noise: how.Places = None,
    sigma: how.Sigma = None,
    mean: how.Mean = None,
    average: how.Average = 1,
    seed: how.MaybeSeed = None,
    seeds: Seeds = None,
    limit: Limit = None,
    part: Part = "test",
    compare: Compare = None,
    device: how.MaybeDevice = None,
    bus: how.Bus = None,
    fault: how.FaultNames = None,
    *,
    calibrated: how.Calibrated = False,
    as_json: AsJson = False,
) -> int:
    """Count right answers of a model on data.

    For example: lightning evaluate weights.npz mnist:DIR --noise per-product --seeds 5
    """
    how.one_of("compare", compare or "onnxruntime", ("onnxruntime",))
    run = how.choose_run(fidelity, noise, sigma, mean, average, device, bus, fault, calibrated=calibrated)
    if fault and compare:
        raise ConfigError(
            "faults are given, but the table compares models without faults",
            hint="Leave --fault or --compare out",
        )
    compared = compare is not None
    used = _seeds(run, seed, seeds, compared=compared)
    from lightning.evaluation.datasets import load_dataset
    from lightning.evaluation.models import load_model_and_data
    from lightning.evaluation.result import describe_preprocessing, round_values
    from lightning.evaluation.warnings import warnings_of_clipping, warnings_of_data
    from lightning.execution.noise import Noise

    compiled, dataset = load_model_and_data(model, part_of(load_dataset(data), part))
    dataset = dataset.first(limit)
    warnings = warn(warnings_of_data(compiled, dataset.name, dataset.x))
    run_with = used if run.fidelity == "noisy" else used[:1]
    found = count_evaluations(run, compiled, dataset, run_with)
    warnings += warn(warnings_of_clipping(compiled, len(run_with) * len(dataset.x), counters_of(found)))
    origin = run.provenance(compiled, run_with)
    rows = _table(compiled, dataset, run.noise or Noise(), used) if compared else []
    if as_json:
        about = {"data": dataset.name, "data_origin": dict(dataset.origin), "warnings": warnings}
        table = {"table": [round_values(asdict(row)) for row in rows]} if rows else {}
        print_document(None, {**origin.document, **about, **figures(found), **table})
    else:
        _say(origin, dataset, found)
        if Path(model).suffix != ".lng":
            print(f"compiled on the way, {describe_preprocessing(compiled.network.preprocessing)}")
        _say_table(rows, run.noise or Noise(), used)
    return DONE


def _seeds(run: how.Run, first: int | None, several: int | None, *, compared: bool) -> tuple[int, ...]:
    """Return the seeds of the noise, in the table too.

    Raises `OutOfRange` and `ConfigError` where nothing has a seed.
    """
    count = several or (SEEDS_OF_TABLE if compared else 1)
    if count > 1 and run.fidelity != "noisy" and not compared:
        raise OutOfRange(
            f"fidelity {run.fidelity} has no seeds", hint="Leave --seeds out, or use --fidelity noisy"
        )
    begin = run.seed_of(first, compared=compared)
    return tuple(range(begin, begin + count))


def part_of(dataset: Dataset, part: str) -> Dataset:
    """Return the data with the part to be tested on in its place. Raises `OutOfRange` and `DatasetError`."""
    how.one_of("part", part, ("test", "train"))
    return dataset.of_training() if part == "train" else dataset


def count_evaluations(
    run: how.Run, model: CompiledModel, dataset: Dataset, seeds: Sequence[int]
) -> list[Evaluation]:
    """Return one evaluation for each seed."""
    from lightning.evaluation.accuracy import evaluate

    found = []
    for seed in seeds:
        executor = run.open(model, seed)
        try:
            with saturation():
                found.append(evaluate(executor, dataset))
        finally:
            executor.close()
    return found


def figures(found: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the means over seeds, and what they are means of."""
    import numpy as np

    from lightning.evaluation.result import round_values
    from lightning.evaluation.table import spread_of

    each = [evaluation.accuracy for evaluation in found]
    means = {
        "accuracy": float(np.mean(each)),
        "spread": spread_of(each),
        "images": found[0].images,
        "images_per_s": round(sum(e.images for e in found) / sum(e.seconds for e in found), 3),
        "cycles": found[0].cycles,
    }
    return {
        **round_values(means),
        "accuracies": [round(accuracy, 6) for accuracy in each],
        "counters": counters_of(found),
    }


def counters_of(found: Sequence[Evaluation]) -> dict[str, int]:
    """Return the counters of all seeds together."""
    counters: Counter[str] = Counter()
    for evaluation in found:
        counters.update(evaluation.counters)
    return dict(counters)


def _table(model: CompiledModel, dataset: Dataset, noise: Noise, seeds: Sequence[int]) -> list[Any]:
    from lightning.evaluation.table import compare

    return compare(model, dataset, noise, seeds, seconds=PACE_SECONDS)


def _say(origin: Provenance, dataset: Dataset, found: Sequence[Evaluation]) -> None:
    from lightning.evaluation.warnings import count_clippable_activations

    means = figures(found)
    document = origin.document
    print(
        f"{dataset.name}: {means['images']:,} images; {document['model']},"
        f" scheme {document['scheme']}, {document['model_hash'][:8]}"
    )
    spread = "" if means["spread"] is None else f" (spread {100 * means['spread']:.2f})"
    mark = "  SIMULATED" if origin.device.simulated else ""
    print(
        f"{origin.line}: {100 * means['accuracy']:.2f} %{spread}, {in_figures(means['images_per_s'])} images/s{mark}"
    )
    activations = sum(each.images for each in found) * count_clippable_activations(origin.model)
    for name, count in means["counters"].items():
        if count:
            of = f" of {activations:,}" if name == "clipped_activations" else ""
            print(f"{name.replace('_', ' ')}: {count:,}{of}")


def in_figures(pace: float) -> str:
    """Return a pace in figures, however slow.

    >>> in_figures(12345.6), in_figures(0.2289)
    ('12,346', '0.23')
    """
    return f"{pace:,.0f}" if pace >= 10 else f"{pace:.2g}"


def _say_table(rows: Sequence[Any], noise: Noise, seeds: Sequence[int]) -> None:
    from lightning.evaluation.table import as_text

    if rows:
        shown = replace(noise, identity="")
        print(f"\n{as_text(rows)}")
        print(
            f"Noise {shown.place}, sigma {shown.sigma:.4g} of 255, {len(seeds)} seeds. Images/s from raw inputs, one"
            " batch, one thread, here; energy of photonic hardware by `lightning energy`, preset chip."
        )
