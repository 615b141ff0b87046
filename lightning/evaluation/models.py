"""Loading of model files. Trained networks are compiled."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from lightning.compiler import CompiledModel
from lightning.compiler.compilation import load_or_compile
from lightning.evaluation.dataset import SAMPLE_COUNT, Dataset, spread_indices
from lightning.evaluation.images import fit_axes
from lightning.networks.network import Preprocessing


def load_model_and_data(path: str | Path, dataset: Dataset) -> tuple[CompiledModel, Dataset]:
    """Load the model in a file, and return it with its test data.

    The training part determines the activation ranges of an `.onnx` or `.npz`. Without a training part, some test
    images determine them if the scheme needs ranges. The returned data omits test images that have determined ranges,
    also those of a `.lng`. The weights of an `.npz` expect bytes scaled to 0 .. 1, and floats without scaling. Raise
    the errors of `load_or_compile`, `DatasetError` for too few images, and `InputError` for images of another shape.
    """
    if Path(path).suffix == ".lng":
        model = load_or_compile(path)
        return model, dataset.separate_samples() if _uses_dataset(model, dataset) else dataset
    from lightning.networks import load_network

    sample_source = dataset.train_x if len(dataset.train_x) else dataset.x
    samples = fit_axes(sample_source[spread_indices(len(sample_source), SAMPLE_COUNT)], load_network(path))
    has_float_samples = (
        Path(path).suffix == ".npz" and samples.dtype.kind == "f"
    )  # other files have their own preprocessing
    model = load_or_compile(path, samples, preprocessing=Preprocessing() if has_float_samples else None)
    return model, dataset if model.scheme == "published" else dataset.separate_samples(SAMPLE_COUNT)


def _uses_dataset(model: CompiledModel, dataset: Dataset) -> bool:
    """Return whether the samples that `dataset.separate_samples` takes out determined the model's ranges."""
    sample_hash = (model.origin.get("samples") or {}).get("sha256")
    if not sample_hash or len(dataset.train_x) or len(dataset.x) <= SAMPLE_COUNT:
        return False
    samples = np.ascontiguousarray(dataset.separate_samples().train_x)
    return bool(hashlib.sha256(samples.tobytes()).hexdigest() == sample_hash)
