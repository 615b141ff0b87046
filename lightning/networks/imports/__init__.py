"""Trained networks from files and from modules.

| module | source |
|---|---|
| `weight_file` | `.npz` of weights w1, w2, ... |
| `onnx` | ONNX files |
| `torch` | modules of `torch.nn` |
| `simplify` | folding of nodes into products |
"""

from __future__ import annotations

from pathlib import Path

from lightning.errors import NetworkError
from lightning.networks.imports.onnx.choices import Choices
from lightning.networks.imports.onnx.file import from_onnx
from lightning.networks.imports.torch.module import from_torch
from lightning.networks.imports.weight_file import from_weights
from lightning.networks.network import Network, Preprocessing
from lightning.networks.preprocess import check_preprocessing

__all__ = ["from_torch", "load_network"]


def load_network(
    path: str | Path, preprocessing: Preprocessing | None = None, choices: Choices | None = None
) -> Network:
    """Return the network in an `.onnx` file, or the network of the weights in an `.npz` file.

    `preprocessing` replaces the file's own. By default it is pixels / 255 for `.npz`; for `.onnx` it is read from the
    metadata that `to_onnx` wrote, if any. `choices` fix open shapes, inputs and outputs of an ONNX file; `.npz` ignores
    them. Raise `NetworkError` for a missing, damaged or other file, `UnsupportedNode` or `CyclicNetwork` for its graph,
    and `OutOfRange` for preprocessing that does not fit the input.
    """
    path = Path(path)
    if not path.is_file():
        raise NetworkError(f"there is no file {path}", hint="Check the path")
    if path.suffix == ".npz":
        network = from_weights(path, preprocessing)
    elif path.suffix == ".onnx":
        network = from_onnx(path, preprocessing, choices)
    else:
        raise NetworkError(f"{path.name} is neither .onnx nor .npz", hint="Export the network as ONNX")
    check_preprocessing(network.preprocessing, network.input_shape)
    return network
