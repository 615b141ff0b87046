"""Import of torch modules with `torch.fx`. Torch itself computes everything that does not depend on the image."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lightning.errors import LightningError, NetworkError, UnsupportedNode
from lightning.networks.imports.onnx.file import from_bytes
from lightning.networks.imports.simplify import build_network
from lightning.networks.imports.torch.attention import ATTENTION_TRANSLATORS
from lightning.networks.imports.torch.functions import TRANSLATOR_BY_FUNCTION
from lightning.networks.imports.torch.scope import Scope, Tensor
from lightning.networks.network import Network, Preprocessing
from lightning.networks.operations.builder import Builder
from lightning.networks.operations.operation_list import INCONSISTENCY_ERRORS, compute_node, run_float
from lightning.networks.preprocess import check_preprocessing
from lightning.optional import require

EXPORT_HINT = "Export it with torch.onnx.export and import the file"

INPLACE_FUNCTIONS = frozenset(
    {"relu", "relu6", "leaky_relu", "elu", "silu", "mish", "hardswish", "hardsigmoid", "hardtanh"}
)
"""Functions whose last argument is `inplace`."""
VIEW_OPERATIONS = frozenset(
    {"view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel", "permute", "transpose", "t",
     "swapaxes", "swapdims", "movedim", "moveaxis", "squeeze", "unsqueeze", "expand", "expand_as", "getitem", "getattr",
     "chunk", "split", "unbind", "narrow", "select", "contiguous", "detach", "float", "to", "dropout", "type_as",
     "Flatten", "Unflatten", "Identity", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"}
)  # fmt: skip
"""Methods, functions and layers whose result may share memory with the first argument."""
EXPORT_OPSET = 17
RELATIVE_TOLERANCE = 1e-3
"""Tolerance between module and network, relative to the largest output."""
FunctionCall = tuple[str, tuple[Any, ...]]


def from_torch(
    module: Any, example_shape: Sequence[int], preprocessing: Preprocessing | None = None
) -> Network:
    """Return the network that a `torch.nn.Module` computes in inference.

    `example_shape` is the shape of one image, without the batch axis. The mode of the module (training or evaluation)
    has no effect and does not change: dropout is omitted, and batch normalisation uses its running statistics. A module
    with layers or functions that this package does not translate is exported to ONNX and imported again. Raise
    `NetworkError` for a module that `torch.fx` cannot trace, `UnsupportedNode` for an unsupported operation.
    """
    try:
        return _trace_by_fx(module, example_shape, preprocessing)
    except UnsupportedNode as error:
        # Errors of fx are not caught, because an export would record only one branch of the control flow.
        if error.hint != EXPORT_HINT:
            raise
        return export_module(module, example_shape, preprocessing, error)


def _trace_by_fx(module: Any, example_shape: Sequence[int], preprocessing: Preprocessing | None) -> Network:
    torch = require("torch", "to import modules")
    name = type(module).__name__
    if name in READER_BY_LAYER or name in ATTENTION_TRANSLATORS:  # fx always traces into the outermost module
        module = torch.nn.Sequential(module)
    graph, layer_by_name = _trace(module, name)
    builder = Builder(compute_node)
    input_tensor = builder.add_input("input", example_shape)
    with torch.no_grad(), np.errstate(all="ignore"):  # a weight that is not finite is refused in the end
        output = _add_graph(builder, module, graph, layer_by_name, input_tensor)
        network = build_network(builder, name, input_tensor, output, preprocessing or Preprocessing())
    check_preprocessing(network.preprocessing, network.input_shape)
    return network


def _trace(module: Any, name: str) -> tuple[Any, Mapping[str, Any]]:
    fx = require("torch.fx", "to import modules")
    try:
        with _set_inference_mode(module):
            graph = fx.Tracer().trace(module)
    except Exception as error:  # the module's own code runs here
        raise NetworkError(f"torch.fx cannot follow {name}: {error}", hint=EXPORT_HINT) from error
    return graph, dict(module.named_modules())


@contextmanager
def _set_inference_mode(module: Any) -> Iterator[None]:
    """Set the module to inference mode; restore the modes of its parts on exit."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _add_graph(
    builder: Builder, module: Any, graph: Any, layer_by_name: Mapping[str, Any], input_tensor: str
) -> str:
    """Add every node of `graph` to `builder`, and return the name of the output."""
    value_by_node: dict[Any, Any] = {}
    alias_tracker = AliasTracker(layer_by_name)
    for node in graph.nodes:
        if node.op == "placeholder":
            value_by_node[node] = _read_argument(node, bool(value_by_node), input_tensor)
        elif node.op == "get_attr":
            value_by_node[node] = _read_attribute(module, node.target)
        elif node.op == "output":
            return _read_output(_substitute_values(node.args[0], value_by_node))
        else:
            value_by_node[node] = _add_node(builder, node, layer_by_name, value_by_node)
        for changed_node in alias_tracker.add(node):
            value_by_node[changed_node] = value_by_node[node]
    raise NetworkError("the module returns nothing", hint="Return the scores")


def _read_argument(node: Any, is_later_input: bool, input_tensor: str) -> Any:
    if not is_later_input:
        return Tensor(input_tensor)
    if node.args:
        return node.args[0]
    raise NetworkError(f"the module takes several inputs, {node.target} among them", hint="Give it one input")


def _read_attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _read_output(value: Any) -> str:
    if isinstance(value, (tuple, list)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Tensor):
        raise NetworkError(f"the module returns {type(value).__name__}", hint="Return one tensor: the scores")
    return value.name


def _substitute_values(argument: Any, value_by_node: Mapping[Any, Any]) -> Any:
    """Return an fx argument with its nodes replaced by their values."""
    fx = require("torch.fx", "to import modules")
    return fx.node.map_arg(argument, value_by_node.__getitem__)


def _add_node(
    builder: Builder, node: Any, layer_by_name: Mapping[str, Any], value_by_node: Mapping[Any, Any]
) -> Any:
    arguments, keywords = (
        _substitute_values(node.args, value_by_node),
        _substitute_values(node.kwargs, value_by_node),
    )
    if node.op == "call_module":
        return _add_layer(builder, str(node.target), layer_by_name[node.target], arguments, keywords)
    operation = (
        node.target if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))
    )
    operation = str(operation).removesuffix("_")  # in-place forms are handled by `AliasTracker`
    scope = Scope(builder, node.name, operation)
    if not _holds_activation((arguments, keywords)):
        return _compute(scope, node, arguments, keywords)
    return _call(scope, TRANSLATOR_BY_FUNCTION.get(scope.operation), arguments, keywords)


def _add_layer(builder: Builder, path: str, layer: Any, arguments: Any, keywords: Any) -> Any:
    scope = Scope(builder, path, type(layer).__name__)
    if scope.operation in ATTENTION_TRANSLATORS:
        return _call(scope, ATTENTION_TRANSLATORS[scope.operation], (layer, *arguments), keywords)
    if scope.operation not in READER_BY_LAYER:
        raise scope.make_error("is an unsupported layer", EXPORT_HINT)
    function_name, settings = READER_BY_LAYER[scope.operation](layer)
    return _call(scope, TRANSLATOR_BY_FUNCTION[function_name], (*arguments, *settings), keywords)


def _call(scope: Scope, translator: Callable[..., Any] | None, arguments: Any, keywords: Any) -> Any:
    if translator is None:
        raise scope.make_error("is an unsupported function", EXPORT_HINT)
    try:
        return translator(scope, *arguments, **keywords)
    except LightningError:
        raise
    except (*INCONSISTENCY_ERRORS, RuntimeError) as error:
        raise scope.make_error(f"is called in an unsupported way: {error}", EXPORT_HINT) from error


def _compute(scope: Scope, node: Any, arguments: Any, keywords: Any) -> Any:
    """Return the result of a torch call on constants."""
    try:
        if node.op == "call_method":
            return getattr(arguments[0], node.target)(*arguments[1:], **keywords)
        return node.target(*arguments, **keywords)
    except (*INCONSISTENCY_ERRORS, RuntimeError) as error:
        raise scope.make_error(f"cannot be computed: {error}", EXPORT_HINT) from error


def _holds_activation(value: Any) -> bool:
    if isinstance(value, dict):
        return _holds_activation(tuple(value.values()))
    if isinstance(value, (tuple, list)):
        return any(map(_holds_activation, value))
    return isinstance(value, Tensor)


@dataclass
class AliasTracker:
    """Aliases and shared memory among the nodes of an fx graph. Nodes are added in order."""

    layer_by_name: Mapping[str, Any]
    """Layers by name."""
    position_by_node: dict[Any, int] = field(default_factory=dict)
    memory_owner_by_node: dict[Any, Any] = field(default_factory=dict)
    """For each node, the node that allocated the memory of its tensor."""
    first_node_by_node: dict[Any, Any] = field(default_factory=dict)
    """For each node, the node that first returned the same tensor."""

    def add(self, node: Any) -> list[Any]:
        """Add a node, and return the earlier nodes whose tensor it changes in place.

        Raise `UnsupportedNode` if the node also changes a view that is read later: in the network, views are copies.
        """
        self.position_by_node[node] = len(self.position_by_node)
        source = node.args[0] if node.args and node.args[0] in self.memory_owner_by_node else node
        is_source_changed = source is not node and is_in_place(node, self.layer_by_name)
        is_memory_shared = is_source_changed or find_callee_name(node, self.layer_by_name) in VIEW_OPERATIONS
        self.memory_owner_by_node[node] = (
            self.memory_owner_by_node[source] if is_memory_shared and source is not node else node
        )
        self.first_node_by_node[node] = self.first_node_by_node[source] if is_source_changed else node
        if not is_source_changed:
            return []
        sharing_nodes = [
            sharing_node
            for sharing_node, owner in self.memory_owner_by_node.items()
            if owner is self.memory_owner_by_node[node]
        ]
        for sharing_node in sharing_nodes:
            is_read_later = any(
                self.position_by_node.get(user, len(self.position_by_node)) > self.position_by_node[node]
                for user in sharing_node.users
            )
            if is_read_later and self.first_node_by_node[sharing_node] is not self.first_node_by_node[node]:
                raise UnsupportedNode(
                    (
                        f"node {node.name} (torch {find_callee_name(node, self.layer_by_name)}) changes in place a"
                        " tensor "
                        f"that shares memory with {sharing_node.name}, which is read later"
                    ),
                    hint="Use the out-of-place form",
                )
        return [
            sharing_node
            for sharing_node in sharing_nodes
            if self.first_node_by_node[sharing_node] is self.first_node_by_node[node]
            and sharing_node is not node
        ]


def find_callee_name(node: Any, layer_by_name: Mapping[str, Any]) -> str:
    """Return the name of the method, function or layer class."""
    if node.op == "call_module":
        return type(layer_by_name[node.target]).__name__
    return str(node.target) if node.op == "call_method" else str(getattr(node.target, "__name__", ""))


def is_in_place(node: Any, layer_by_name: Mapping[str, Any]) -> bool:
    """Return whether `node` writes its result into its first argument."""
    if node.op == "call_module":
        return bool(getattr(layer_by_name[node.target], "inplace", False))
    if node.op == "call_method":
        return bool(node.target.endswith("_"))
    is_set_by_position = find_callee_name(node, layer_by_name) in INPLACE_FUNCTIONS and node.args[-1] is True
    return is_set_by_position or bool(node.kwargs.get("inplace"))


def export_module(
    module: Any,
    example_shape: Sequence[int],
    preprocessing: Preprocessing | None,
    first_error: LightningError,
) -> Network:
    """Export a module to ONNX and return the imported network. Raise `first_error` if that fails or outputs differ."""
    torch = require("torch", "to import modules")
    require("onnx", "to import modules that torch.fx does not understand")
    modes = [(part, part.training) for part in module.modules()]
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")  # hide the exporter's advice, which is for its own users
            example = torch.zeros(1, *example_shape)
            torch.onnx.export(module.eval(), example, buffer, dynamo=False, opset_version=EXPORT_OPSET)
            network = from_bytes(buffer.getvalue(), type(module).__name__, preprocessing=preprocessing)
            if not _is_equivalent(torch, module, network):
                raise first_error
    except Exception:  # noqa: BLE001 - the code of the module or the exporter may raise any error
        raise first_error from None
    finally:
        for part, training in modes:
            part.training = training
    return replace(network, notes=("imported by way of ONNX: " + first_error.problem, *network.notes))


def _is_equivalent(torch: Any, module: Any, network: Network) -> bool:
    """Return whether module and network agree on two images. An export may hold for its example image only."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((2, *network.input_shape)).astype(np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(images)).numpy()
    outputs = run_float(network, images)
    tolerance = RELATIVE_TOLERANCE * max(float(np.abs(expected).max()), RELATIVE_TOLERANCE)
    return outputs.shape == expected.shape and bool(np.abs(outputs - expected).max() <= tolerance)


def _read_convolution(layer: Any) -> FunctionCall:
    settings = (layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    function_name = "conv1d" if len(layer.kernel_size) == 1 else "conv2d"
    return function_name, (*settings, layer.padding_mode)


def _read_batch_norm(layer: Any) -> FunctionCall:
    weights = (layer.running_mean, layer.running_var, layer.weight, layer.bias)
    return "batch_norm", (*weights, False, 0.1, layer.eps)


def _read_max_pool(layer: Any) -> FunctionCall:
    settings = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)
    return "max_pool2d", (*settings, layer.return_indices)


def _read_average_pool(layer: Any) -> FunctionCall:
    settings = (layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, layer.count_include_pad)
    return "avg_pool2d", (*settings, getattr(layer, "divisor_override", None))


def _make_reader(function_name: str, *attribute_names: str) -> Callable[[Any], FunctionCall]:
    return lambda layer: (function_name, tuple(getattr(layer, name) for name in attribute_names))


READER_BY_LAYER: Mapping[str, Callable[[Any], FunctionCall]] = {
    "Linear": _make_reader("linear", "weight", "bias"),
    "Conv1d": _read_convolution,
    "Conv2d": _read_convolution,
    "BatchNorm1d": _read_batch_norm,
    "BatchNorm2d": _read_batch_norm,
    "LayerNorm": _make_reader("layer_norm", "normalized_shape", "weight", "bias", "eps"),
    "MaxPool1d": _read_max_pool,
    "MaxPool2d": _read_max_pool,
    "AvgPool1d": _read_average_pool,
    "AvgPool2d": _read_average_pool,
    "AdaptiveAvgPool1d": _make_reader("adaptive_avg_pool2d", "output_size"),
    "AdaptiveAvgPool2d": _make_reader("adaptive_avg_pool2d", "output_size"),
    "AdaptiveMaxPool2d": _make_reader("adaptive_max_pool2d", "output_size"),
    "Flatten": _make_reader("flatten", "start_dim", "end_dim"),
    "Unflatten": _make_reader("unflatten", "dim", "unflattened_size"),
    "Identity": _make_reader("identity"),
    **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout"), _make_reader("dropout")),
    "ReLU": _make_reader("relu"),
    "ReLU6": _make_reader("relu6"),
    "LeakyReLU": _make_reader("leaky_relu", "negative_slope"),
    "PReLU": _make_reader("prelu", "weight"),
    "ELU": _make_reader("elu", "alpha"),
    "GELU": lambda layer: ("gelu_as", (layer.approximate,)),
    "Sigmoid": _make_reader("sigmoid"),
    "Tanh": _make_reader("tanh"),
    "SiLU": _make_reader("silu"),
    "Mish": _make_reader("mish"),
    "Softplus": _make_reader("softplus", "beta", "threshold"),
    "Hardswish": _make_reader("hardswish"),
    "Hardsigmoid": _make_reader("hardsigmoid"),
    "Hardtanh": _make_reader("hardtanh", "min_val", "max_val"),
    "Softmax": _make_reader("softmax", "dim"),
    "LogSoftmax": _make_reader("log_softmax", "dim"),
    "ZeroPad2d": _make_reader("pad", "padding"),
    "ConstantPad1d": lambda layer: ("pad", (layer.padding, "constant", layer.value)),
    "ConstantPad2d": lambda layer: ("pad", (layer.padding, "constant", layer.value)),
}
