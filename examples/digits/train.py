"""From nothing to numbers on light: train on scikit-learn's digits, compile, and count what is right.

python train.py                      # both networks, in less than a minute
python train.py --network mlp --png curve.png

Writes NAME.onnx and NAME.lng to the folder named by --output, which `lightning evaluate NAME.lng digits` takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
from networks import MLP, ResNet8

from lightning.compiler import Options, save_model
from lightning.errors import LightningError
from lightning.evaluation import Dataset, load_dataset
from lightning.execution.noise import Noise
from lightning.networks import Preprocessing, from_torch, preprocess, to_onnx
from lightning.training import Comparison, Curve, Schedule, accuracy_curve, fine_tune, fit

PIXELS = Preprocessing(scale=1 / 255)
NARROW = Options(ranges="percentile", percentile=97)
"""Larger activations are cut off: what is left is larger beside the noise, which is worth more than any training."""
FINE_TUNING = 10
"""Epochs."""


@dataclass(frozen=True)
class Recipe:
    """A network, the shape of its images, and how long it is trained."""

    make: Callable[[], Any]
    shape: tuple[int, ...]
    epochs: int


RECIPES = {"mlp": Recipe(MLP, (1, 8, 8), 40), "resnet8": Recipe(ResNet8, (1, 8, 8), 15)}


def trained(recipe: Recipe, dataset: Dataset, *, epochs: int, seed: int) -> Any:
    """Train a module from nothing, without any noise."""
    torch.manual_seed(seed)
    module = recipe.make()
    x = preprocess(from_torch(module.eval(), recipe.shape, PIXELS), dataset.train_x)
    return fit(module, x, dataset.train_y, seed=seed, schedule=Schedule(epochs, batch=32, rate=3e-3))


def tuned(
    module: Any, recipe: Recipe, dataset: Dataset, *, sigma: float, epochs: int, seed: int
) -> Comparison:
    """Compare the module as it was, fine-tuned, and fine-tuned with noise on every product."""
    return fine_tune(
        module,
        dataset,
        shape=recipe.shape,
        noise=Noise("per-product-dense", sigma=sigma),
        preprocessing=PIXELS,
        schedule=Schedule(epochs, batch=32, rate=1e-3, frozen_statistics=True),
        options=NARROW,
        seed=seed,
    )


def write(name: str, found: Comparison, folder: Path) -> None:
    """Write the network as ONNX for others, and compiled for light."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(to_onnx(found.before.network), folder / f"{name}.onnx")
    save_model(found.before.model, folder / f"{name}.lng")
    save_model(found.aware.model, folder / f"{name}-aware.lng")
    print(f"wrote {name}.onnx, {name}.lng and {name}-aware.lng to {folder}")


def curves(found: Comparison, dataset: Dataset) -> dict[str, Curve]:
    """Accuracy over sigma of both fine-tuned networks."""
    both = {"no noise in training": found.plain, "noise in training": found.aware}
    return {name: accuracy_curve(outcome.model, dataset, found.noise) for name, outcome in both.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    torch.set_num_threads(1)
    dataset = load_dataset("digits")
    names = list(RECIPES) if options.network == "both" else [options.network]
    drawn = {}
    for name in names:
        recipe = RECIPES[name]
        epochs = options.epochs or recipe.epochs
        module = trained(recipe, dataset, epochs=epochs, seed=options.seed)
        more = options.epochs or FINE_TUNING
        found = tuned(module, recipe, dataset, sigma=options.sigma, epochs=more, seed=options.seed)
        print(f"{name}\n{found}")
        write(name, found, options.output)
        for label, curve in curves(found, dataset).items():
            drawn[f"{name}, {label}"] = curve
            print(f"{name}, {label}: half of the digits are right at sigma {curve.half_point:.1f}")
    if options.png:
        from lightning.kit.plots import save
        from lightning.training.curve_plot import plot_noise_curves

        save(plot_noise_curves(drawn, "Digits on noisy light", training_sigma=options.sigma), options.png)
    return 0


def picture(text: str) -> Path:
    """Return a file that can be drawn to; raise before the training begins."""
    from lightning.canvas import check_file

    try:
        return check_file(text)
    except LightningError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", choices=[*RECIPES, "both"], default="both")
    parser.add_argument("--epochs", type=int, help="of training, and of each fine-tuning")
    parser.add_argument("--sigma", type=float, default=20.0, help="of 255, the noise of every product")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("digits"), help="folder for what is trained")
    parser.add_argument("--png", type=picture, help="draw accuracy over sigma")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
