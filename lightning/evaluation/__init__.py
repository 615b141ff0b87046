"""Quality of a network on light: accuracy, compared with ONNX Runtime, and sensitivity to noise by layer.

    from lightning.evaluation import evaluate, load_dataset
    result = evaluate(executor, load_dataset("digits"))
    print(result.accuracy, result.images_per_s)

| module | contents |
|---|---|
| `dataset` | `Dataset`: test images and training images, with their classes |
| `datasets`, `nsl_kdd` | `load_dataset("digits")`, `mnist:DIR`, `nsl-kdd:DIR`, `FILE.npz` |
| `models` | loading of a model file, with compilation if necessary |
| `accuracy` | accuracy and throughput of an executor |
| `onnx_runtime` | the same network in float32 and in int8 under ONNX Runtime |
| `table` | comparison of ONNX Runtime with photonic execution |
| `sensitivity` | accuracy lost to noise in each layer, and the largest tolerable noise |
| `warnings` | warnings about data outside the range that the model was compiled for |
| `images` | conversion of images and arrays to the shape of a model's input |
| `result` | provenance of a result: version, hashes, seed, calibration |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes

if TYPE_CHECKING:
    from lightning.evaluation.accuracy import Evaluation, evaluate
    from lightning.evaluation.dataset import Dataset
    from lightning.evaluation.datasets import load_dataset

__all__ = ["Dataset", "Evaluation", "evaluate", "load_dataset"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(
        __name__,
        {
            "accuracy": "Evaluation evaluate",
            "dataset": "Dataset",
            "datasets": "load_dataset",
        },
    )
