"""ONNX files, opset 13 to 21. Nothing in a file is run, and pickles are not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.errors import NetworkError
from lightning.networks.imports.builder import Builder, Call
from lightning.networks.imports.folding import fold, foldable
from lightning.networks.imports.order import ordered
from lightning.networks.imports.simplify import finished
from lightning.networks.imports.vocabulary import CONTRADICTIONS, translate
from lightning.networks.network import Network, Preprocessing
from lightning.optional import needed

OPSETS = range(13, 22)


def from_onnx(path: Path, preprocessing: Preprocessing | None = None) -> Network:
    """The network in a file. Raises `NetworkError` and those under it, never an error of onnx or protobuf."""
    return from_bytes(path.read_bytes(), path.stem, path.parent, preprocessing)


def from_bytes(
    content: bytes, name: str, folder: Path = Path(), preprocessing: Preprocessing | None = None
) -> Network:
    """As `from_onnx`; `folder` is where external data lie."""
    model = _parsed(content, name)
    opset = _opset(model)
    graph = model.graph
    builder = Builder(batched=_input_into(Builder(), graph, model))
    tensors: dict[str, str] = {}
    for initialiser in graph.initializer:
        tensors[initialiser.name] = builder.constant(_array(initialiser, folder), initialiser.name)
    entry = _entry(graph)
    tensors[entry.name] = builder.input(entry.name, _axes(entry)[1:])
    output = _output(graph)
    for node in ordered(_named(graph.node), tensors, output):
        _add(builder, node, tensors, opset, folder)
    return finished(builder, name, entry.name, tensors[output], preprocessing or Preprocessing())
