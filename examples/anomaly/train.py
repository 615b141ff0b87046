"""Attacks on a network, found by light: train on NSL-KDD, compile, and test on KDDTest+.

LIGHTBED_DATA=folder python train.py          # the folder above nsl_kdd/
python train.py --data folder/with/KDDTest+.txt

Training takes KDDTrain+_20Percent; KDDTest+ holds attacks that it has never seen, so no random split is reported.
Writes anomaly.lng, which `lightning evaluate anomaly.lng nsl-kdd:FOLDER` takes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lightning.compiler import save_model
from lightning.errors import DatasetError
from lightning.evaluation import Dataset, load_dataset
from lightning.execution.noise import Noise
from lightning.networks import from_torch
from lightning.training import Outcome, Schedule, fit
from lightning.training.fine_tuning import measure

PROTOTYPE = Noise("per-product")
"""The default: measured on Lightning's prototype, weights of 0 left out."""


class Detector(nn.Sequential):
    """Two classes, normal and attack."""

    def __init__(self, features: int) -> None:
        dense = (nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))
        super().__init__(*dense)


def trained(dataset: Dataset, *, epochs: int, seed: int) -> Any:
    """Train a detector from nothing, without any noise."""
    torch.manual_seed(seed)
    schedule = Schedule(epochs, batch=128, rate=2e-3)
    module = Detector(dataset.x.shape[1])
    return fit(module, dataset.train_x, dataset.train_y, seed=seed, schedule=schedule)


def measured(module: Any, dataset: Dataset, noise: Noise = PROTOTYPE) -> Outcome:
    """Compiled, and run on KDDTest+ in float32, exactly, and with noise."""
    network = from_torch(module, dataset.x.shape[1:])
    return measure(module, network, dataset, noise=noise)


def share_of_attacks_found(outcome: Outcome, dataset: Dataset) -> float:
    """Return what part of the attacks of KDDTest+ the network calls attacks, in exact integers: 0 .. 1."""
    from lightning.execution import open_executor

    attacks = dataset.y == 1
    return float(np.mean(open_executor(outcome.model, "exact").run(dataset.x[attacks]).classes == 1))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given = os.environ.get("LIGHTBED_DATA")
    parser.add_argument("--data", type=Path, default=Path(given) / "nsl_kdd" if given else None)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("anomaly.lng"))
    options = parser.parse_args(arguments)
    if options.data is None:
        parser.error("say where NSL-KDD is: --data FOLDER, or LIGHTBED_DATA for the folder above nsl_kdd/")
    torch.set_num_threads(1)
    try:
        dataset = load_dataset(f"nsl-kdd:{options.data}")
    except DatasetError as error:
        parser.error(str(error))
    found = measured(trained(dataset, epochs=options.epochs, seed=options.seed), dataset)
    save_model(found.model, options.output)
    print(f"KDDTest+, {len(dataset.y)} connections, {dataset.x.shape[1]} features:")
    print(
        f"float32 {100 * found.float32:.2f} %, exact {100 * found.exact:.2f} %, noisy {100 * found.noisy:.2f} %"
    )
    print(f"attacks found: {100 * share_of_attacks_found(found, dataset):.1f} %; wrote {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
