"""Trained networks in float32, imported but not yet quantised.

    from lightning.networks import load_network
    network = load_network("model.onnx")     # or an .npz of weights w1, w2, ...

| module | purpose |
|---|---|
| `network` | `Network`, `Node`, `Preprocessing` |
| `imports` | ONNX files, `torch.nn` modules, `.npz` of weights |
| `onnx_writer` | export to ONNX for other runtimes, with the preprocessing as metadata |
| `work` | multiply-accumulates per node |
| `preprocess` | conversion of raw data to a network's inputs |
| `operations` | every operation: its translation and its float32 computation; `run_float`, the reference |
| `patches`, `electronic` | patches of a convolution; operations that ONNX Runtime computes |
"""

from __future__ import annotations

from lightning.networks.imports import from_torch, load_network
from lightning.networks.network import Network, Node, Preprocessing
from lightning.networks.onnx_writer import to_onnx
from lightning.networks.operations.operation_list import run_float
from lightning.networks.preprocess import preprocess

__all__ = [
    "Network",
    "Node",
    "Preprocessing",
    "from_torch",
    "load_network",
    "preprocess",
    "run_float",
    "to_onnx",
]
