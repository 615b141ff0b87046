"""`lightning sensitivity MODEL DATA`: accuracy lost to noise in each layer, and the largest tolerable noise."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli import noise_options
from lightning.cli.evaluate import Data, Limit, Part, select_part
from lightning.cli.options import AsJson, Png
from lightning.cli.output import EXIT_OK, list_file_names, print_document

if TYPE_CHECKING:
    from lightning.evaluation.dataset import Dataset
    from lightning.evaluation.result import Provenance
    from lightning.evaluation.sensitivity import Sensitivity

Loss = Annotated[float, typer.Option("--loss", help="Allowed loss of accuracy, in percentage points.")]
Seeds = Annotated[
    int, typer.Option("--seeds", min=1, help="Number of seeds over which every figure is averaged.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sensitivity")(sensitivity)


def sensitivity(
    model: noise_options.Model,
    data: Data,
    noise: noise_options.NoisePlace = None,
    sigma: noise_options.Sigma = None,
    mean: noise_options.Mean = None,
    average: noise_options.Average = 1,
    loss: Loss = 1.0,
    seed: noise_options.Seed = 0,
    seeds: Seeds = 3,
    limit: Limit = None,
    part: Part = "test",
    device: noise_options.MaybeDevice = None,
    png: Png = None,
    *,
    calibrated: noise_options.Calibrated = False,
    as_json: AsJson = False,
) -> int:
    """Measure the accuracy lost to noise in each layer, and the sigma or averaging that limits the loss.

    For example: lightning sensitivity model.lng digits --loss 1 --png layers.png
    """
    from lightning.evaluation.datasets import load_dataset
    from lightning.evaluation.models import load_model_and_data
    from lightning.evaluation.sensitivity import measure_sensitivity

    run = noise_options.choose_run("noisy", noise, sigma, mean, average, device, calibrated=calibrated)
    assert run.noise is not None
    compiled_model, dataset = load_model_and_data(model, select_part(load_dataset(data), part))
    dataset = dataset.take_first(limit)
    noise_seeds = tuple(range(seed, seed + seeds))
    result = measure_sensitivity(compiled_model, dataset, run.noise, noise_seeds, loss)
    provenance = run.make_provenance(compiled_model, noise_seeds)
    if png is not None:
        from lightning.evaluation.sensitivity_plot import plot_layer_losses
        from lightning.kit.plots import save

        save(plot_layer_losses(result, compiled_model.network.name, shorten_name(dataset)), png)
    (_print_document if as_json else _print_lines)(result, provenance, dataset, list_file_names((png,)))
    return EXIT_OK


def _print_document(
    result: Sensitivity, provenance: Provenance, dataset: Dataset, file_names: list[str]
) -> None:
    data_facts = {"data": dataset.name, "data_origin": dict(dataset.origin), "images": len(dataset.x)}
    print_document(
        None, {**provenance.document, **data_facts, "written": file_names, **make_document(result)}
    )


def _print_lines(
    result: Sensitivity, provenance: Provenance, dataset: Dataset, file_names: list[str]
) -> None:
    print(f"{dataset.name}: {len(dataset.x):,} images; exact {100 * result.exact_accuracy:.2f} %")
    print(f"{provenance.description}  SIMULATED")
    width = max(len("all layers"), *(len(layer_loss.layer) for layer_loss in result.layer_losses))
    rows = [(layer_loss.layer, layer_loss.accuracy, layer_loss.loss) for layer_loss in result.layer_losses]
    all_layers_trial = result.averaging_trials[0]
    rows.append(("all layers", all_layers_trial.accuracy, result.compute_loss(all_layers_trial)))
    print(f"{'noise in':<{width}}  accuracy  points lost")
    for name, accuracy, lost_points in rows:
        print(f"{name:<{width}}  {100 * accuracy:6.2f} %  {format_loss(lost_points):>11}")
    print(describe_tolerable_noise(result))
    print(describe_averaging(result))
    for name in file_names:
        print(f"written: {name}")


def make_document(result: Sensitivity) -> dict[str, Any]:
    """Return the result as plain values. `factor` and `sigma` are None if the search found no limit."""
    from lightning.evaluation.result import round_values

    is_bounded = math.isfinite(result.max_noise_factor)
    return {
        "exact": round(result.exact_accuracy, 6),
        "allowed_loss": result.allowed_loss,
        "layers": [round_values(asdict(layer_loss)) for layer_loss in result.layer_losses],
        "sigma": round(result.max_sigma, 4) if is_bounded else None,
        "factor": round(result.max_noise_factor, 4) if is_bounded else None,
        "average": result.min_average_count,
        "averages": [
            {**round_values(asdict(trial)), "loss": round(result.compute_loss(trial), 4)}
            for trial in result.averaging_trials
        ],
        "tried": [
            {**round_values(asdict(trial)), "loss": round(result.compute_loss(trial), 4)}
            for trial in result.level_trials
        ],
    }


def shorten_name(dataset: Dataset) -> str:
    """Return the name of the data set without its folder."""
    return dataset.name.partition(":")[0]


def format_loss(lost_points: float) -> str:
    """Format percentage points with a sign, except zero.

    >>> format_loss(1.234), format_loss(-0.5), format_loss(-1e-15)
    ('+1.23', '-0.50', '0.00')
    """
    return f"{lost_points:+.2f}" if round(lost_points, 2) else "0.00"


def describe_tolerable_noise(result: Sensitivity) -> str:
    """Describe the largest noise that does not exceed the allowed loss."""
    from lightning.evaluation.sensitivity import format_points

    allowance = f"for a loss of at most {format_points(result.allowed_loss)}"
    if not result.max_noise_factor:
        return f"no sigma is small enough {allowance}: the mean error alone costs more"
    if math.isinf(result.max_noise_factor):
        return f"even the largest sigma that was tried is small enough {allowance}"
    return f"{allowance}: sigma up to {result.max_sigma:.3g} of 255"


def describe_averaging(result: Sensitivity) -> str:
    """Describe the smallest averaging that does not exceed the allowed loss."""
    if result.min_average_count is None:
        return f"or averaging: a mean of {result.averaging_trials[-1].average} is not enough"
    if result.min_average_count == result.noise.average:
        return f"no more averaging is needed at sigma {result.noise.sigma:.4g}"
    return f"or averaging of {result.min_average_count} at sigma {result.noise.sigma:.4g}"
