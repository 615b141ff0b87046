"""ONNX operations that stay electronic. ONNX Runtime computes them, one sample at a time.

An `Electronic` node holds one ONNX operation as plain values, so a `.lng` file stores it like any other node:

| attribute | meaning |
|---|---|
| `operation`, `domain`, `opset` | the operation |
| `kinds` | the data types of its inputs, "" for an omitted one |
| `shapes` | the shapes of its inputs for one sample, as ONNX has them; None for a constant |
| `given` | its attributes, as (name, value) |
| `outputs`, `place` | the number of its outputs, and the index of the output that this node returns |
| `shape` | the shape of that output in the network, without the axis of samples |
| `macs` | its multiply-accumulates for one sample |

Between operations every number is a float32, even an integer or a boolean. Integers are exact up to 2**24.
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
"""Tag before (data type, shape, values) of an attribute that is a tensor."""
IR_VERSION = 8
MAX_SESSIONS = 4096


@dataclass(frozen=True)
class Operation:
    """One ONNX operation with its attributes, hashable."""

    name: str
    domain: str
    opset: int
    kinds: tuple[str, ...]
    attributes: tuple[tuple[str, Any], ...]
    output_count: int

    def run(self, inputs: Sequence[Array | None]) -> list[Array]:
        """Return the outputs. Raise `NetworkError` if they cannot be computed from these inputs."""
        feeds = {
            f"i{index}": np.asarray(array, dtype=kind, order="C")
            for index, (array, kind) in enumerate(zip(inputs, self.kinds, strict=True))
            if array is not None and kind
        }
        try:
            return [np.asarray(output) for output in _open_session(self)(feeds)]
        except Exception as error:  # the runtimes raise errors of their own, of many classes
            reason = _shorten(str(error))
            raise NetworkError(
                f"{self.name} cannot be computed: {reason}", hint="Check the shapes and values of the inputs"
            ) from error


def _shorten(message: str) -> str:
    """Return the first 200 characters of a runtime's message, without its source locations and codes."""
    text = " ".join(message.split())
    for prefix in ("Status Message: ", "Error "):
        text = text.rpartition(prefix)[2]
    return text[:200]


def read_operation(attributes: Mapping[str, Any]) -> Operation:
    """Return the operation in the attributes of an `Electronic` node."""
    return Operation(
        attributes["operation"],
        attributes["domain"],
        attributes["opset"],
        tuple(attributes["kinds"]),
        tuple((name, value) for name, value in attributes["given"]),
        attributes["outputs"],
    )


def compute_electronic(inputs: Sequence[Array], attributes: Mapping[str, Any]) -> Array:
    """Return the output that `attributes` select, for every sample, (samples, *shape)."""
    shapes = [shape for kind, shape in zip(attributes["kinds"], attributes["shapes"], strict=True) if kind]
    sample_count = next(len(array) for array, shape in zip(inputs, shapes, strict=True) if shape is not None)
    results = np.zeros((sample_count, *attributes["shape"]), np.float32)
    operation = read_operation(attributes)
    for sample in range(sample_count):
        arrays = iter(
            array if shape is None else array[sample].reshape(shape)
            for array, shape in zip(inputs, shapes, strict=True)
        )
        sample_inputs = [next(arrays) if kind else None for kind in operation.kinds]
        results[sample] = operation.run(sample_inputs)[attributes["place"]].reshape(attributes["shape"])
    return results


@lru_cache(maxsize=MAX_SESSIONS)
def _open_session(operation: Operation) -> Callable[[Mapping[str, Array]], Sequence[Any]]:
    model = _build_model(operation)
    if not find_spec("onnxruntime"):
        reference = require("onnx.reference", "to compute electronic operations").ReferenceEvaluator(model)
        return lambda feeds: reference.run(None, dict(feeds))
    runtime = require("onnxruntime", "to compute electronic operations")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, dict(feeds))


def _build_model(operation: Operation) -> Any:
    helper = require("onnx", "to compute electronic operations").helper
    input_names = [f"i{index}" if kind else "" for index, kind in enumerate(operation.kinds)]
    output_names = [f"o{index}" for index in range(operation.output_count)]
    node = helper.make_node(operation.name, input_names, output_names, domain=operation.domain)
    for name, value in operation.attributes:
        node.attribute.append(helper.make_attribute(name, _convert_attribute(name, value)))
    input_infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
        for name, kind in zip(input_names, operation.kinds, strict=True)
        if kind
    ]
    output_infos = [helper.make_empty_tensor_value_info(name) for name in output_names]
    graph = helper.make_graph([node], "electronic", input_infos, output_infos)
    opsets = [helper.make_opsetid(operation.domain, operation.opset)]
    if operation.domain:
        opsets.append(helper.make_opsetid("", 17))
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _convert_attribute(name: str, value: Any) -> Any:
    if isinstance(value, tuple) and value and value[0] == TENSOR:
        _, kind, shape, values = value
        array = np.array(values, dtype=kind).reshape(shape)
        return require("onnx.numpy_helper", "to compute electronic operations").from_array(array, name)
    return list(value) if isinstance(value, tuple) else value
