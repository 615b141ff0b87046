"""Networks on the datapath's registers and on the kit's twin: agreement with `exact`, and times.

LeNet-300-100 with the published weights (LIGHTBED_DATA) runs on `fastsim://`, `verilator://` and `sim://kit`; the
residual convolutional network of `examples/digits` runs on `sim://kit` and `verilator://`. Times are processor seconds
per image, including the simulators. One JSON line, one thread; some four minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from one_thread import on_one_thread

from lightning.compiler import CompiledModel, Options, compile_network
from lightning.compiler.datapath.schedule import count_model_cycles
from lightning.compiler.model import Hardware
from lightning.evaluation import load_dataset
from lightning.execution import open_executor
from lightning.networks import load_network
from lightning.networks.imports.torch.module import from_torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "digits"))

BUSES = ("fastsim://", "verilator://")
ASKED = {"datapath_equal": 20, "device_agree": 19, "device_s": 10.0, "device_convolution_images": 10}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=20, help="number of images for LeNet, on each hardware")
    parser.add_argument("--only", choices=["datapath", "device"])
    options = parser.parse_args()
    on_one_thread()
    folder = os.environ.get("LIGHTBED_DATA")
    if not folder:
        sys.exit("LIGHTBED_DATA is not set: the folder with mnist/ and lenet/.")
    report: dict[str, Any] = {"benchmark": "photonic_hardware", "images": options.images}
    report |= {f"asked_{name}": value for name, value in ASKED.items()}
    weights = Path(folder) / "lenet" / "lenet_w.npz"
    images = load_dataset(f"mnist:{Path(folder) / 'mnist'}").x[: options.images]
    if options.only != "device":
        report["datapath"] = of_datapath(weights, images)
    if options.only != "datapath":
        report["device"] = answers(lenet(weights), images, "device")
    report["convolution"] = of_convolution(options.only)
    print(json.dumps(report))
    return 0


def of_datapath(weights: Path, images: np.ndarray) -> dict[str, Any]:
    """Measure LeNet with all products sent, as in the published datapath, and with zero weights skipped."""
    return {
        f"{bus}{' zeros left out' if skip else ''}": answers(lenet(weights, skip), images, "datapath", bus)
        for bus in BUSES
        for skip in (False, True)
    }


def lenet(weights: Path, skip_zeros: bool = False) -> CompiledModel:
    """Compile LeNet-300-100 with the published scheme."""
    options = Options(scheme="published", hardware=Hardware(skip_zeros=skip_zeros))
    return compile_network(load_network(weights), options=options)


def of_convolution(only: str | None) -> dict[str, Any]:
    """Train ResNet-8 on the digits, and measure it on ten images."""
    from train import PIXELS, RECIPES, trained

    dataset, recipe = load_dataset("digits"), RECIPES["resnet8"]
    network = from_torch(trained(recipe, dataset, epochs=recipe.epochs, seed=0), recipe.shape, PIXELS)
    model = compile_network(network, dataset.train_x[:128])
    kinds = [kind for kind in ("device", "datapath") if only in (None, kind)]
    return {kind: answers(model, dataset.x[:10], kind, "verilator://") for kind in kinds}


def answers(model: CompiledModel, images: np.ndarray, kind: Any, bus: str = "") -> dict[str, Any]:
    """Run a model; return how many images have the same scores and the same class as `exact`, and the time."""
    expected = open_executor(model, "exact").run(images)
    executor = open_executor(model, kind, bus=bus or None)
    executor.run(images[:1])
    begin = time.process_time()
    results = executor.run(images)
    elapsed_s = time.process_time() - begin
    executor.close()
    is_equal = (results.scores == expected.scores).reshape(len(images), -1).all(axis=1)
    return {
        "images": len(images),
        "equal": int(is_equal.sum()),
        "agree": int((results.classes == expected.classes).sum()),
        "cpu_s_per_image": round(elapsed_s / len(images), 3),
        "cycles": count_model_cycles(model),
    }


if __name__ == "__main__":
    sys.exit(main())
