"""Operations of ONNX that stay electronic, whatever they are: computed by ONNX Runtime, sample by sample.

A node `Electronic` carries one operation of ONNX as plain values, so that a `.lng` file keeps it like any other:

| attribute | meaning |
|---|---|
| `operation`, `domain`, `opset` | which operation it is |
| `kinds` | the data types of its inputs, "" for one that is left out |
| `shapes` | the shapes of its inputs for one sample, as ONNX has them; None for a constant |
| `given` | its attributes, as (name, value) |
| `outputs`, `place` | how many outputs it has, and which of them this node gives |
| `shape` | the shape of that output in the network, without the axis of samples |
| `macs` | its multiply-accumulates for one sample |

Between operations every number is a float32, integers and booleans too: whole numbers are exact up to 2**24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import NetworkError
from lightning.optional import require

Array = npt.NDArray[Any]
ELECTRONIC = "Electronic"
TENSOR = "tensor"
"""In front of (data type, shape, values) of an attribute that is a tensor."""
IR_VERSION = 8
MOST_SESSIONS = 4096


@dataclass(frozen=True)
class Operation:
    """One operation of ONNX with its attributes, hashable."""

    name: str
    domain: str
    opset: int
    kinds: tuple[str, ...]
    given: tuple[tuple[str, Any], ...]
    outputs: int

    def run(self, inputs: Sequence[Array | None]) -> list[Array]:
        """Return the outputs. Raises `NetworkError` where the inputs do not fit."""
        fed = {
            f"i{place}": np.asarray(array, dtype=kind, order="C")
            for place, (array, kind) in enumerate(zip(inputs, self.kinds, strict=True))
            if array is not None and kind
        }
        try:
            return [np.asarray(found) for found in _session(self)(fed)]
        except Exception as error:  # the runtimes raise errors of their own, of many classes
            first = _in_short(str(error))
            raise NetworkError(
                f"{self.name} cannot be computed: {first}", hint="Check the shapes and values of the inputs"
            ) from error


def _in_short(message: str) -> str:
    """Return what a runtime says without its own sources and codes."""
    text = " ".join(message.split())
    for mark in ("Status Message: ", "Error "):
        text = text.rpartition(mark)[2]
    return text[:200]


def operation_of(attributes: Mapping[str, Any]) -> Operation:
    """Return the operation that a node `Electronic` carries."""
    return Operation(
        attributes["operation"],
        attributes["domain"],
        attributes["opset"],
        tuple(attributes["kinds"]),
        tuple((name, value) for name, value in attributes["given"]),
        attributes["outputs"],
    )


def electronic(inputs: Sequence[Array], attributes: Mapping[str, Any]) -> Array:
    """Return one output of the operation for every sample."""
    shapes = [shape for kind, shape in zip(attributes["kinds"], attributes["shapes"], strict=True) if kind]
    samples = next(len(array) for array, shape in zip(inputs, shapes, strict=True) if shape is not None)
    found = np.zeros((samples, *attributes["shape"]), np.float32)
    operation = operation_of(attributes)
    for sample in range(samples):
        given = iter(
            array if shape is None else array[sample].reshape(shape)
            for array, shape in zip(inputs, shapes, strict=True)
        )
        fed = [next(given) if kind else None for kind in operation.kinds]
        found[sample] = operation.run(fed)[attributes["place"]].reshape(attributes["shape"])
    return found


@lru_cache(maxsize=MOST_SESSIONS)
def _session(operation: Operation) -> Callable[[Mapping[str, Array]], Sequence[Any]]:
    model = _model(operation)
    if not find_spec("onnxruntime"):
        reference = require("onnx.reference", "to compute electronic operations").ReferenceEvaluator(model)
        return lambda fed: reference.run(None, dict(fed))
    runtime = require("onnxruntime", "to compute electronic operations")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda fed: session.run(None, dict(fed))


def _model(operation: Operation) -> Any:
    helper = require("onnx", "to compute electronic operations").helper
    names = [f"i{place}" if kind else "" for place, kind in enumerate(operation.kinds)]
    outputs = [f"o{place}" for place in range(operation.outputs)]
    node = helper.make_node(operation.name, names, outputs, domain=operation.domain)
    for name, value in operation.given:
        node.attribute.append(helper.make_attribute(name, _attribute(name, value)))
    entries = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
        for name, kind in zip(names, operation.kinds, strict=True)
        if kind
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "electronic", entries, results)
    opsets = [helper.make_opsetid(operation.domain, operation.opset)]
    if operation.domain:
        opsets.append(helper.make_opsetid("", 17))
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _attribute(name: str, value: Any) -> Any:
    if isinstance(value, tuple) and value and value[0] == TENSOR:
        _, kind, shape, values = value
        array = np.array(values, dtype=kind).reshape(shape)
        return require("onnx.numpy_helper", "to compute electronic operations").from_array(array, name)
    return list(value) if isinstance(value, tuple) else value
