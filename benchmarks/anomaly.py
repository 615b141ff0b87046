"""Detection of the attacks in KDDTest+ by light: NSL-KDD, with a detector trained by `examples/anomaly`.

The detector is trained on KDDTrain+_20Percent and tested on KDDTest+. The accuracy on a random split, which says
little, is reported for comparison as `random_split_float32`. Needs LIGHTBED_DATA. One JSON line, one thread.
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

from lightning.evaluation import Dataset, load_dataset

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "anomaly"))
from train import PROTOTYPE, measured, trained

ASKED_LOSS_POINTS = 1.0
EPOCHS = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    on_one_thread()
    folder = Path(os.environ.get("LIGHTBED_DATA") or sys.exit("LIGHTBED_DATA is not set"))
    dataset = load_dataset(f"nsl-kdd:{folder / 'nsl_kdd'}")
    outcomes = [
        measured(trained(dataset, epochs=EPOCHS, seed=seed), dataset) for seed in range(options.seeds)
    ]
    losses = [100 * (each.float32 - each.noisy) for each in outcomes]
    split = random_split(dataset)
    report: dict[str, Any] = {
        "benchmark": "anomaly",
        "connections": len(dataset.y),
        "features": dataset.x.shape[1],
        "noise": PROTOTYPE.place,
        "sigma": round(PROTOTYPE.sigma, 3),
        "loss_points": round(float(np.mean(losses)), 2),
        "worst_loss_points": round(max(losses), 2),
        "asked_loss_points": ASKED_LOSS_POINTS,
        "random_split_float32": per_cent(measured(trained(split, epochs=EPOCHS, seed=0), split).float32),
    }
    for name in ("float32", "exact", "noisy"):
        report[name] = [per_cent(getattr(each, name)) for each in outcomes]
    print(json.dumps(report))
    return 0


def per_cent(part: float) -> float:
    return round(100 * part, 2)


def random_split(dataset: Dataset) -> Dataset:
    """Return a random split of the training part, a fifth for testing, as in other reports; it tests no detector."""
    order = np.random.default_rng(0).permutation(len(dataset.train_y))
    test, train = np.split(order, [len(order) // 5])
    x, y = dataset.train_x, dataset.train_y
    return replace(dataset, x=x[test], y=y[test], train_x=x[train], train_y=y[train])


if __name__ == "__main__":
    sys.exit(main())
