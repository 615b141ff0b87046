"""A residual convolutional network on light, trained from scratch on the digits of scikit-learn by `examples/digits`.

The accuracy of exact integers is compared with ONNX Runtime in float32 and int8 on the same test images. Also reported
are the photonic share of the multiply-accumulates and the accuracy with the noise of Lightning's prototype. One JSON
line, one thread.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from one_thread import on_one_thread

from lightning.compiler import report
from lightning.evaluation import Dataset, load_dataset
from lightning.evaluation.onnx_runtime import SAMPLE_COUNT, open_float32_session, open_int8_session
from lightning.execution.noise import Noise
from lightning.networks import from_torch
from lightning.training.fine_tuning import measure

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "digits"))
from train import PIXELS, RECIPES, trained

ASKED_POINTS_FROM_INT8 = 1.0
ASKED_PHOTONIC_SHARE = 0.95
NOISE = Noise("per-product")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=sorted(RECIPES), default="resnet8")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    on_one_thread()
    dataset = load_dataset("digits")
    results = [of_seed(options.network, dataset, seed) for seed in range(options.seeds)]
    points = [each["exact"] - each["int8"] for each in results]
    summary: dict[str, Any] = {
        "benchmark": "convolution",
        "network": options.network,
        "images": len(dataset.y),
        "worst_points_from_int8": round(max(points, key=abs), 2),
        "asked_points_from_int8": ASKED_POINTS_FROM_INT8,
        "photonic_share": min(each["photonic_share"] for each in results),
        "asked_photonic_share": ASKED_PHOTONIC_SHARE,
        "training_cpu_s": round(float(np.median([each["training_cpu_s"] for each in results])), 1),
    }
    for name in ("float32", "int8", "exact", "noisy"):
        summary[name] = [each[name] for each in results]
    print(json.dumps(summary))
    return 0


def of_seed(name: str, dataset: Dataset, seed: int) -> dict[str, Any]:
    """Train a network with this seed, and return its accuracies in per cent."""
    recipe, begin = RECIPES[name], time.process_time()
    module = trained(recipe, dataset, epochs=recipe.epochs, seed=seed)
    training_s = time.process_time() - begin
    network = from_torch(module, recipe.shape, PIXELS)
    outcome = measure(module, network, dataset, noise=NOISE)
    sessions = {
        "float32": open_float32_session(network),
        "int8": open_int8_session(network, dataset.train_x[:SAMPLE_COUNT]),
    }
    right = {
        kind: per_cent(session.count_correct(dataset) / len(dataset.y)) for kind, session in sessions.items()
    }
    right |= {"exact": per_cent(outcome.exact), "noisy": per_cent(outcome.noisy)}
    return right | {"photonic_share": report(outcome.model).photonic_share, "training_cpu_s": training_s}


def per_cent(part: float) -> float:
    return round(100 * part, 2)


if __name__ == "__main__":
    sys.exit(main())
