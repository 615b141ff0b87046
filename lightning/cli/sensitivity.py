"""`lightning sensitivity MODEL DATA`: which layer the noise hurts, and how much of it the network bears."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli import noise_options as how
from lightning.cli.evaluate import Data, Limit, Part, part_of
from lightning.cli.options import AsJson, Png
from lightning.cli.output import DONE, list_written, print_document

if TYPE_CHECKING:
    from lightning.evaluation.dataset import Dataset
    from lightning.evaluation.result import Provenance
    from lightning.evaluation.sensitivity import Sensitivity

Loss = Annotated[float, typer.Option("--loss", help="Points of accuracy that may be lost.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Seeds of which every figure is the mean.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sensitivity")(sensitivity)


def sensitivity(
    model: how.Model,
    data: Data,
    noise: how.Places = None,
    sigma: how.Sigma = None,
    mean: how.Mean = None,
    average: how.Average = 1,
    loss: Loss = 1.0,
    seed: how.Seed = 0,
    seeds: Seeds = 3,
    limit: Limit = None,
    part: Part = "test",
    device: how.MaybeDevice = None,
    png: Png = None,
    *,
    calibrated: how.Calibrated = False,
    as_json: AsJson = False,
) -> int:
    """Say what noise in each layer costs, and which sigma or averaging keeps the loss small.

    For example: lightning sensitivity model.lng digits --loss 1 --png layers.png
    """
    from lightning.evaluation.datasets import load_dataset
    from lightning.evaluation.models import load_model_and_data
    from lightning.evaluation.sensitivity import sensitivity as losses_in

    run = how.choose_run("noisy", noise, sigma, mean, average, device, calibrated=calibrated)
    assert run.noise is not None
    compiled, dataset = load_model_and_data(model, part_of(load_dataset(data), part))
    dataset = dataset.first(limit)
    used = tuple(range(seed, seed + seeds))
    found = losses_in(compiled, dataset, run.noise, used, loss)
    origin = run.provenance(compiled, used)
    if png is not None:
        from lightning.evaluation.sensitivity_plot import layer_losses
        from lightning.kit.plots import save

        save(layer_losses(found, compiled.network.name, short_name(dataset)), png)
    (_print_document if as_json else _print_lines)(found, origin, dataset, list_written((png,)))
    return DONE


def _print_document(found: Sensitivity, origin: Provenance, dataset: Dataset, files: list[str]) -> None:
    about = {"data": dataset.name, "data_origin": dict(dataset.origin), "images": len(dataset.x)}
    print_document(None, {**origin.document, **about, "written": files, **document_of(found)})


def _print_lines(found: Sensitivity, origin: Provenance, dataset: Dataset, files: list[str]) -> None:
    print(f"{dataset.name}: {len(dataset.x):,} images; exact {100 * found.exact:.2f} %")
    print(f"{origin.line}  SIMULATED")
    width = max(len("all layers"), *(len(each.layer) for each in found.layers))
    lines = [(each.layer, each.accuracy, each.loss) for each in found.layers]
    everything = found.averaged[0]
    lines.append(("all layers", everything.accuracy, found.loss(everything)))
    print(f"{'noise in':<{width}}  accuracy  points lost")
    for name, accuracy, lost in lines:
        print(f"{name:<{width}}  {100 * accuracy:6.2f} %  {in_points(lost):>11}")
    print(bearable(found))
    print(averaging(found))
    for name in files:
        print(f"written: {name}")


def document_of(found: Sensitivity) -> dict[str, Any]:
    """Plain values; `factor` and `sigma` are null where no limit was found."""
    from lightning.evaluation.result import round_values

    bounded = math.isfinite(found.factor)
    return {
        "exact": round(found.exact, 6),
        "allowed_loss": found.allowed,
        "layers": [round_values(asdict(each)) for each in found.layers],
        "sigma": round(found.sigma, 4) if bounded else None,
        "factor": round(found.factor, 4) if bounded else None,
        "average": found.average,
        "averages": [
            {**round_values(asdict(each)), "loss": round(found.loss(each), 4)} for each in found.averaged
        ],
        "tried": [{**round_values(asdict(each)), "loss": round(found.loss(each), 4)} for each in found.tried],
    }


def short_name(dataset: Dataset) -> str:
    """Without the folder."""
    return dataset.name.partition(":")[0]


def in_points(lost: float) -> str:
    """Return points with a sign, and without one where nothing is lost.

    >>> in_points(1.234), in_points(-0.5), in_points(-1e-15)
    ('+1.23', '-0.50', '0.00')
    """
    return f"{lost:+.2f}" if round(lost, 2) else "0.00"


def bearable(found: Sensitivity) -> str:
    """Return the noise that keeps the loss small, in words."""
    from lightning.evaluation.sensitivity import format_points

    allowance = f"for a loss of at most {format_points(found.allowed)}"
    if not found.factor:
        return f"no sigma is small enough {allowance}: the mean error alone costs more"
    if math.isinf(found.factor):
        return f"no sigma that was looked at is too large {allowance}"
    return f"{allowance}: sigma up to {found.sigma:.3g} of 255"


def averaging(found: Sensitivity) -> str:
    """Return the averaging that does, in words."""
    if found.average is None:
        return f"or averaging: a mean of {found.averaged[-1].average} is not enough"
    if found.average == found.noise.average:
        return f"no more averaging is needed at sigma {found.noise.sigma:.4g}"
    return f"or averaging of {found.average} at sigma {found.noise.sigma:.4g}"
