"""Accuracy of LeNet-300-100 on the photonic datapath: integer model, and RTL with noise, gain and sparsity.

Needs LIGHTBED_DATA (published weights and MNIST) and Verilator. One JSON line.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))
from witnesses.mac_hardware import inference, load_rows, loopback_design, run_rows

from fpga.hdl import verilator
from fpga.photonic_mac import Optics, accuracy, layer_results, quantise

OPTICS = {
    "noise": Optics(noise=True),
    "noise_sparsity": Optics(noise=True, sparsity=True),
    "gain_0.75": Optics(gain=192),
}


def read_idx(path: Path, offset: int) -> np.ndarray:
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=offset)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--images", type=int, default=200, help="number of images for the RTL, for each kind of optics"
    )
    options = parser.parse_args()
    folder = os.environ.get("LIGHTBED_DATA")
    if not folder:
        sys.exit("LIGHTBED_DATA is not set: the folder with mnist/ and lenet/.")
    data = Path(folder)
    images = read_idx(data / "mnist" / "t10k-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    labels = read_idx(data / "mnist" / "t10k-labels-idx1-ubyte.gz", 8)
    with np.load(data / "lenet" / "lenet_w.npz") as weights:
        network = quantise([weights[name] for name in ("w1", "w2", "w3")])
    begin = time.perf_counter()
    results = layer_results(network, images)
    report = {
        "model_accuracy": accuracy(results[-1], labels),
        "asked_model_accuracy": 0.9598,
        "model_images_per_s": round(len(images) / (time.perf_counter() - begin)),
        "images": options.images,
        "model_accuracy_of_these": accuracy(results[-1][: options.images], labels[: options.images]),
    }
    simulator = verilator.build(loopback_design())
    simulator.run(load_rows(network))
    for name, optics in OPTICS.items():
        classes = [
            inference(simulator.run(run_rows(network, image, optics))).chosen
            for image in images[: options.images]
        ]
        report[f"rtl_accuracy_{name}"] = float(np.mean(np.array(classes) == labels[: options.images]))
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
