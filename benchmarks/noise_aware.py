"""Gain by noise-aware training: LeNet-300-100 with the published weights, fine-tuned with and without noise.

8,000 of the 10,000 test images of MNIST are used for training and 2,000 for testing, in a different split for each
seed. Every product is noisy. Accuracies are those of the executors. The headline gain is measured where training
without noise does best: with activation ranges that the compiler chooses for this noise, which alone gain more than the
training. The other variants are ranges up to the 97th percentile (`narrow`), ranges for the prototype's noise
(`usual`), and the `published` scheme. Needs LIGHTBED_DATA. One JSON line, one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from one_thread import on_one_thread

from lightning.compiler import Options
from lightning.evaluation import Dataset, load_dataset
from lightning.execution.noise import Noise
from lightning.networks import Preprocessing
from lightning.training import Comparison, Schedule, fine_tune

ASKED_GAIN_POINTS = 3.0
TRAINING_IMAGES = 8000
OPTIONS = {
    "expected": Options(),
    "narrow": Options(ranges="percentile", percentile=97),
    "usual": Options(),
    "published": Options(scheme="published"),
}
HEADLINE = "expected"
"""The variant whose ranges are chosen for `--sigma`, and whose keys have no prefix."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sigma", type=float, default=5.0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--only", nargs="+", choices=list(OPTIONS), default=list(OPTIONS))
    options = parser.parse_args()
    on_one_thread()
    folder = Path(os.environ.get("LIGHTBED_DATA") or sys.exit("LIGHTBED_DATA is not set"))
    mnist = load_dataset(f"mnist:{folder / 'mnist'}")
    report: dict[str, Any] = {
        "benchmark": "noise_aware",
        "sigma": options.sigma,
        "noise": "per-product-dense",
        "epochs": options.epochs,
        "seeds": options.seeds,
        "asked_gain_points": ASKED_GAIN_POINTS,
    }
    noise = Noise("per-product-dense", sigma=options.sigma)
    for name, default in OPTIONS.items():
        if name not in options.only:
            continue
        compiler_options = replace(default, sigma=options.sigma) if name == HEADLINE else default
        comparisons = [
            compare(folder, split(mnist, seed), noise, compiler_options, options.epochs, seed)
            for seed in range(options.seeds)
        ]
        report |= {
            f"{name}_{key}" if name != HEADLINE else key: value for key, value in summary(comparisons).items()
        }
    print(json.dumps(report))
    return 0


def published_lenet(folder: Path) -> Any:
    import torch

    with np.load(folder / "lenet" / "lenet_w.npz") as file:
        weights = [file[name] for name in ("w1", "w2", "w3")]
    layers: list[Any] = []
    for each in weights:
        layer = torch.nn.Linear(each.shape[1], each.shape[0], bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(each))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def split(mnist: Dataset, seed: int) -> Dataset:
    order = np.random.default_rng(seed).permutation(len(mnist.y))
    train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    x = mnist.x.reshape(len(mnist.x), -1)
    return replace(mnist, x=x[test], y=mnist.y[test], train_x=x[train], train_y=mnist.y[train])


def compare(
    folder: Path, dataset: Dataset, noise: Noise, options: Options, epochs: int, seed: int
) -> Comparison:
    return fine_tune(
        published_lenet(folder),
        dataset,
        shape=(784,),
        noise=noise,
        preprocessing=Preprocessing(scale=1 / 255),
        schedule=Schedule(epochs),
        options=options,
        seed=seed,
    )


def summary(comparisons: list[Comparison]) -> dict[str, Any]:
    """Return means over seeds in per cent, the gain of each seed, and its standard error."""
    gains = [100 * each.gain for each in comparisons]
    report: dict[str, Any] = {
        "gain_points": round(float(np.mean(gains)), 2),
        "gain_standard_error": round(float(np.std(gains, ddof=1)) / len(gains) ** 0.5, 2)
        if len(gains) > 1
        else None,
        "gain_points_of_seeds": [round(gain, 2) for gain in gains],
    }
    for name in ("before", "plain", "aware"):
        outcomes = [getattr(each, name) for each in comparisons]
        for kind in ("float32", "exact", "noisy"):
            report[f"{name}_{kind}"] = round(
                100 * float(np.mean([getattr(each, kind) for each in outcomes])), 2
            )
    return report


if __name__ == "__main__":
    sys.exit(main())
