"""A compiled model as a document and arrays, and back: plain data, nothing that could run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.hardware import Hardware
from lightning.compiler.model import CompiledModel, Geometry, PhotonicLayer
from lightning.errors import CompileError
from lightning.networks.network import Network, Node, Port, Preprocessing

Array = npt.NDArray[Any]
_LAYER_ARRAYS = {"weights": np.int16, "bias": np.int32, "output_scale": np.float32}


def to_document(model: CompiledModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the document, and the arrays that it names.

    Raises `CompileError` for an attribute that is no plain value.
    """
    arrays: dict[str, Array] = {}
    document = {
        "scheme": model.scheme,
        "wrap": model.wrap,
        **({"perfect_scaling": True} if model.perfect_scaling else {}),
        "hardware": asdict(model.hardware),
        "origin": json.loads(json.dumps(dict(model.origin))),
        "network": _network_document(model.network, arrays),
        "layers": [
            _layer_document(node, layer, place, arrays)
            for place, (node, layer) in enumerate(model.layers.items())
        ],
    }
    return document, arrays


def from_document(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> CompiledModel:
    """Return the model. Raises KeyError, TypeError or ValueError for a document that is none."""
    layers = {each["node"]: _layer(each, arrays) for each in document["layers"]}
    return CompiledModel(
        _network(document["network"], arrays),
        layers,
        Hardware(**document["hardware"]),
        document["scheme"],
        _flag(document["wrap"]),
        dict(document["origin"]),
        _flag(document.get("perfect_scaling", False)),
    )


def _network_document(network: Network, arrays: dict[str, Array]) -> dict[str, Any]:
    named = {name: f"constants/{place}" for place, name in enumerate(sorted(network.constants))}
    arrays.update({named[name]: np.asarray(values) for name, values in network.constants.items()})
    return {
        "name": network.name,
        "input": network.input,
        "output": network.output,
        "nodes": [_node_document(node) for node in network.nodes],
        "constants": named,
        "shapes": {name: list(shape) for name, shape in network.shapes.items()},
        "preprocessing": asdict(network.preprocessing),
        "notes": list(network.notes),
        **{
            name: [[port.name, list(port.shape), port.kind] for port in ports]
            for name, ports in (("inputs", network.inputs), ("outputs", network.outputs))
            if ports
        },
    }


def _network(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> Network:
    given = document["preprocessing"]
    return Network(
        _text(document["name"]),
        tuple(_node(each) for each in document["nodes"]),
        {name: arrays[place] for name, place in document["constants"].items()},
        document["input"],
        document["output"],
        {name: tuple(int(size) for size in shape) for name, shape in document["shapes"].items()},
        Preprocessing(given["scale"], tuple(given["mean"]), tuple(given["deviation"]), given["layout"]),
        tuple(document["notes"]),
        *(tuple(_port(*each) for each in document.get(name, ())) for name in ("inputs", "outputs")),
    )


def _port(name: Any, shape: Any, kind: Any) -> Port:
    return Port(_text(name), tuple(int(size) for size in shape), _text(kind))


def _node_document(node: Node) -> dict[str, Any]:
    try:
        attributes = {name: _encoded(value) for name, value in node.attributes.items()}
    except TypeError as error:
        raise CompileError(
            f"{node.operation} {node.name} has an attribute that no file can keep: {error}",
            hint="Give numbers, texts, or tuples of them",
        ) from None
    return {
        "name": node.name,
        "operation": node.operation,
        "inputs": list(node.inputs),
        "output": node.output,
        "attributes": attributes,
    }


def _node(document: Mapping[str, Any]) -> Node:
    attributes = {name: _decoded(value) for name, value in document["attributes"].items()}
    return Node(
        document["name"], document["operation"], tuple(document["inputs"]), document["output"], attributes
    )


def _encoded(value: Any) -> Any:
    """JSON has no infinity, which a `Clip` may have."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, tuple | list):
        return [_encoded(each) for each in plain]
    if isinstance(plain, float) and not math.isfinite(plain):
        return {"number": str(plain)}
    if plain is None or isinstance(plain, bool | int | float | str):
        return plain
    raise TypeError(f"a {type(plain).__name__}")


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(each) for each in value)
    return float(value["number"]) if isinstance(value, dict) else value


def _layer_document(node: str, layer: PhotonicLayer, place: int, arrays: dict[str, Array]) -> dict[str, Any]:
    named = {each: f"layers/{place}.{each}" for each in _LAYER_ARRAYS}
    arrays.update(
        {named[each]: np.asarray(getattr(layer, each), kind) for each, kind in _LAYER_ARRAYS.items()}
    )
    return {
        "node": node,
        "name": layer.name,
        "input_scale": layer.input_scale,
        "signed": layer.signed,
        "vectors": layer.vectors,
        "geometry": None if layer.geometry is None else asdict(layer.geometry),
        **named,
    }


def _layer(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> PhotonicLayer:
    values = {each: arrays[document[each]] for each in _LAYER_ARRAYS}
    if any(values[each].dtype != kind for each, kind in _LAYER_ARRAYS.items()):
        raise ValueError(f"layer {document['name']} has arrays of another data type")
    given = document["geometry"]
    return PhotonicLayer(
        document["name"],
        **values,
        input_scale=float(document["input_scale"]),
        signed=_flag(document["signed"]),
        geometry=None if given is None else _geometry(given),
        vectors=int(document["vectors"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _geometry(document: Mapping[str, Any]) -> Geometry:
    values: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in document.items()
    }
    return Geometry(**values)
