"""Models by file name: compiled ones as they are, networks compiled on the way."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from lightning.compiler import CompiledModel
from lightning.compiler.compilation import load_or_compile
from lightning.evaluation.dataset import SAMPLES, Dataset, evenly
from lightning.evaluation.images import fit_axes
from lightning.networks.network import Preprocessing


def load_for(path: str | Path, dataset: Dataset) -> tuple[CompiledModel, Dataset]:
    """Return the model in this file, and the data to test it on.

    An `.onnx` or `.npz` is compiled with ranges from the training part. Where there is none and the scheme needs
    ranges, images are put aside for them, and are not in the data that come back; so are those that a `.lng` was
    compiled with. Weights in an `.npz` are for bytes as 0 .. 1, and for floats as they are. Raises what
    `load_or_compile` raises, and `DatasetError` and `InputError` where the data do not do.
    """
    if Path(path).suffix == ".lng":
        model = load_or_compile(path)
        return model, dataset.with_samples() if _uses_dataset(model, dataset) else dataset
    from lightning.networks import load_network

    part = dataset.train_x if len(dataset.train_x) else dataset.x
    samples = fit_axes(part[evenly(len(part), SAMPLES)], load_network(path))
    of_floats = Path(path).suffix == ".npz" and samples.dtype.kind == "f"  # elsewhere the file's own holds
    model = load_or_compile(path, samples, preprocessing=Preprocessing() if of_floats else None)
    return model, dataset if model.scheme == "published" else dataset.with_samples(SAMPLES)


def _uses_dataset(model: CompiledModel, dataset: Dataset) -> bool:
    """Return whether ranges come from images that would be put aside here, which are test images otherwise."""
    seen = (model.origin.get("samples") or {}).get("sha256")
    if not seen or len(dataset.train_x) or len(dataset.x) <= SAMPLES:
        return False
    aside = np.ascontiguousarray(dataset.with_samples().train_x)
    return bool(hashlib.sha256(aside.tobytes()).hexdigest() == seen)
