"""Quality of a network on light: accuracy compared with ONNX Runtime, and which layer the noise hurts.

    from lightning.evaluation import evaluate, load_dataset
    found = evaluate(executor, load_dataset("digits"))
    print(found.accuracy, found.images_per_s)

| module | what it is for |
|---|---|
| `dataset` | `Dataset`: test images, and those of training |
| `datasets`, `nsl_kdd` | `load_dataset("digits")`, `mnist:DIR`, `nsl-kdd:DIR`, `FILE.npz` |
| `models` | a model by its file name, compiled on the way where it is none yet |
| `accuracy` | how many answers are right, and how fast they come |
| `onnx_runtime` | the same network in float32 and in int8 under ONNX Runtime |
| `table` | all of them side by side |
| `sensitivity` | what one noisy layer costs; how much noise is bearable |
| `warnings` | data unlike those that the model was made for |
| `images` | one image or array as a model takes it |
| `result` | what a result says of its origin: version, hashes, seed, calibration |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import lazy_names

if TYPE_CHECKING:
    from lightning.evaluation.accuracy import Evaluation, evaluate
    from lightning.evaluation.dataset import Dataset
    from lightning.evaluation.datasets import load_dataset

__all__ = ["Dataset", "Evaluation", "evaluate", "load_dataset"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "accuracy": "Evaluation evaluate",
            "dataset": "Dataset",
            "datasets": "load_dataset",
        },
    )
