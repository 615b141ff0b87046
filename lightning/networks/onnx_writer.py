"""Export of a network to ONNX for other runtimes. Opset 20 has every operation of a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from lightning.errors import NetworkError
from lightning.networks.network import Network, Node, Preprocessing
from lightning.optional import require

OPSET, IR_VERSION = 20, 9
BACKWARD_STOP = -(1 << 63)
"""End of a backward slice that includes the first entry."""

PREPROCESSING_KEY = "lightbed.preprocessing"
"""Key in `metadata_props`. Its value is a JSON object with the fields of `Preprocessing`."""


def to_onnx(network: Network) -> Any:
    """Return an `onnx.ModelProto` with the same tensor names and a symbolic batch axis.

    The preprocessing is in the metadata, not in the graph. `load_network` reads it from there.
    """
    onnx = require("onnx", "to write ONNX")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    graph = _Graph(network, onnx)
    for node in network.nodes:
        _WRITERS.get(node.operation, _write_unchanged)(graph, node)
    read_tensors = {tensor for node in graph.nodes for tensor in node.input}
    for name in sorted(read_tensors & set(network.constants)):
        graph.add_constant(network.constants[name], name)
    input_info = helper.make_tensor_value_info(network.input, float32, ["batch", *network.input_shape])
    output_info = helper.make_tensor_value_info(network.output, float32, ["batch", *network.output_shape])
    graph_proto = helper.make_graph(
        graph.nodes, network.name, [input_info], [output_info], graph.initialisers
    )
    model = helper.make_model(
        graph_proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    helper.set_model_props(model, format_metadata(network.preprocessing))
    return model


@dataclass
class _Graph:
    network: Network
    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    initialisers: list[Any] = field(default_factory=list)

    def add_constant(self, value: Any, name: str) -> str:
        self.initialisers.append(self.onnx.numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def add(self, operation: str, inputs: list[str], output: str, **attributes: Any) -> str:
        node_proto = self.onnx.helper.make_node(operation, inputs, [output], name=output, **attributes)
        self.nodes.append(node_proto)
        return output

    def get_rank(self, tensor: str) -> int:
        return len(self.network.shapes[tensor]) + 1


def _write_unchanged(graph: _Graph, node: Node) -> None:
    graph.add(node.operation, list(node.inputs), node.output, **node.attributes)


def _write_gemm(graph: _Graph, node: Node) -> None:
    x, weights, *bias = node.inputs
    if graph.get_rank(x) == 2:
        graph.add("Gemm", [x, weights, *bias], node.output, transB=1)
        return
    transposed = graph.add_constant(graph.network.constants[weights].T, f"{node.output}//turned")
    product = graph.add("MatMul", [x, transposed], f"{node.output}//product" if bias else node.output)
    if bias:
        graph.add("Add", [product, *bias], node.output)


def _write_conv(graph: _Graph, node: Node) -> None:
    attributes = dict(node.attributes)
    kernel = graph.network.constants[node.inputs[1]].shape[2:]
    graph.add(
        "Conv",
        list(node.inputs),
        node.output,
        group=attributes.pop("groups"),
        kernel_shape=kernel,
        **attributes,
    )


def _write_pool(graph: _Graph, node: Node) -> None:
    attributes = dict(node.attributes)
    if "count_include_pad" in attributes:
        attributes["count_include_pad"] = int(attributes["count_include_pad"])
    attributes["ceil_mode"] = int(any(attributes.pop("excess", ())))
    if set(attributes.get("dilations", ())) == {1}:
        del attributes["dilations"]  # the default, which ONNX Runtime's quantised pools do not accept
    graph.add(
        node.operation, list(node.inputs), node.output, kernel_shape=attributes.pop("kernel"), **attributes
    )


def _write_reshape(graph: _Graph, node: Node) -> None:
    shape = np.array([0, *node.attributes["shape"]], np.int64)
    graph.add("Reshape", [node.inputs[0], graph.add_constant(shape, f"{node.output}//shape")], node.output)


def _write_clip(graph: _Graph, node: Node) -> None:
    bounds = [
        graph.add_constant(np.float32(node.attributes[bound_name]), f"{node.output}//{bound_name}")
        for bound_name in ("min", "max")
    ]
    graph.add("Clip", [node.inputs[0], *bounds], node.output)


def _write_reduction(graph: _Graph, node: Node) -> None:
    axes = graph.add_constant(np.array(node.attributes["axes"], np.int64), f"{node.output}//axes")
    keepdims = int(node.attributes["keepdims"])
    graph.add(node.operation, [node.inputs[0], axes], node.output, keepdims=keepdims)


def _write_slice(graph: _Graph, node: Node) -> None:
    attributes = node.attributes
    stop = BACKWARD_STOP if attributes["stop"] is None else attributes["stop"]
    bounds = {
        "start": attributes["start"],
        "stop": stop,
        "axis": attributes["axis"],
        "step": attributes["step"],
    }
    names = [
        graph.add_constant(np.array([value], np.int64), f"{node.output}//{name}")
        for name, value in bounds.items()
    ]
    graph.add("Slice", [node.inputs[0], *names], node.output)


def _write_pad(graph: _Graph, node: Node) -> None:
    pads = np.array(node.attributes["pads"], np.int64).T.reshape(-1)
    pads_name = graph.add_constant(pads, f"{node.output}//pads")
    value = graph.add_constant(np.float32(node.attributes["value"]), f"{node.output}//value")
    graph.add("Pad", [node.inputs[0], pads_name, value], node.output)


def _write_concat(graph: _Graph, node: Node) -> None:
    """Write a concatenation with constants expanded to the batch."""
    shapes, constants = graph.network.shapes, graph.network.constants
    activation = next(tensor for tensor in node.inputs if tensor in shapes)
    inputs = []
    for index, tensor in enumerate(node.inputs):
        if tensor in shapes:
            inputs.append(tensor)
            continue
        name = f"{node.output}//{index}"
        image_count = graph.add("Shape", [activation], f"{name}//images", start=0, end=1)
        other_axes = graph.add_constant(np.array(constants[tensor].shape[1:], np.int64), f"{name}//rest")
        target_shape = graph.add("Concat", [image_count, other_axes], f"{name}//shape", axis=0)
        inputs.append(graph.add("Expand", [tensor, target_shape], name))
    graph.add("Concat", inputs, node.output, axis=node.attributes["axis"])


_WRITERS: Mapping[str, Callable[[_Graph, Node], None]] = {
    "Gemm": _write_gemm,
    "Conv": _write_conv,
    "MaxPool": _write_pool,
    "AveragePool": _write_pool,
    "Reshape": _write_reshape,
    "Clip": _write_clip,
    "ReduceMean": _write_reduction,
    "ReduceSum": _write_reduction,
    "ReduceMax": _write_reduction,
    "Slice": _write_slice,
    "Pad": _write_pad,
    "Concat": _write_concat,
}


def format_metadata(preprocessing: Preprocessing) -> dict[str, str]:
    """Return the preprocessing as metadata of an ONNX file.

    >>> format_metadata(Preprocessing(scale=0.5))["lightbed.preprocessing"]
    '{"scale": 0.5, "mean": [0.0], "deviation": [1.0], "layout": "as-is"}'
    """
    return {PREPROCESSING_KEY: json.dumps(asdict(preprocessing))}


def parse_metadata(text: str, name: str) -> Preprocessing:
    """Return the preprocessing in the metadata of the file `name`. Raise `NetworkError` if the metadata are damaged."""
    try:
        document = json.loads(text)
        mean, deviation = (tuple(map(float, document[field])) for field in ("mean", "deviation"))
        return Preprocessing(float(document["scale"]), mean, deviation, str(document["layout"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise NetworkError(
            f"{name}.onnx: its metadata {PREPROCESSING_KEY} are damaged ({error})",
            hint="Write the file again, or give the preprocessing: lightning compile --scale",
        ) from error
