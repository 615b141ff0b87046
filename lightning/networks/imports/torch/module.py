"""Modules of torch, followed by `torch.fx`: whatever does not depend on the image is computed by torch itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lightning.errors import LightningError, NetworkError, UnsupportedNode
from lightning.networks.imports.builder import Builder
from lightning.networks.imports.simplify import finished
from lightning.networks.imports.torch.aliases import Aliases
from lightning.networks.imports.torch.attention import ATTENTION
from lightning.networks.imports.torch.by_export import exported
from lightning.networks.imports.torch.functions import FUNCTIONS
from lightning.networks.imports.torch.layers import LAYERS
from lightning.networks.imports.torch.scope import Scope, Tensor
from lightning.networks.imports.translators.operation_list import CONTRADICTIONS
from lightning.networks.network import Network, Preprocessing
from lightning.networks.preprocess import check_preprocessing
from lightning.optional import needed

EXPORT = "Export it with torch.onnx.export and import the file"


def from_torch(
    module: Any, example_shape: Sequence[int], preprocessing: Preprocessing | None = None
) -> Network:
    """Return the network that a `torch.nn.Module` computes in inference.

    `example_shape` is one image's, without batch axis. Dropout is left out and batch normalisation uses its
    running statistics, whatever mode the module is in; the module stays as it is. What `torch.fx` does not understand
    is imported by way of ONNX, for one image at a time. Raises `NetworkError` for a
    module that `torch.fx` cannot follow, `UnsupportedNode` for an operation that nothing here computes.
    """
    try:
        return _by_fx(module, example_shape, preprocessing)
    except (
        UnsupportedNode
    ) as error:  # never where fx itself fails: an export would keep one branch of control flow
        if error.hint != EXPORT:
            raise
        return exported(module, example_shape, preprocessing, error)


def _by_fx(module: Any, example_shape: Sequence[int], preprocessing: Preprocessing | None) -> Network:
    torch = needed("torch", "to import modules")
    name = type(module).__name__
    if name in LAYERS or name in ATTENTION:  # fx looks into the outermost module, whatever it is
        module = torch.nn.Sequential(module)
    graph, leaves = _traced(module, name)
    builder = Builder()
    entry = builder.input("input", example_shape)
    with torch.no_grad(), np.errstate(all="ignore"):  # a weight that is not finite is refused in the end
        output = _followed(builder, module, graph, leaves, entry)
        network = finished(builder, name, entry, output, preprocessing or Preprocessing())
    check_preprocessing(network.preprocessing, network.input_shape)
    return network


def _traced(module: Any, name: str) -> tuple[Any, Mapping[str, Any]]:
    fx = needed("torch.fx", "to import modules")
    try:
        with _in_inference(module):
            graph = fx.Tracer().trace(module)
    except Exception as error:  # the module's own code runs here
        raise NetworkError(f"torch.fx cannot follow {name}: {error}", hint=EXPORT) from error
    return graph, dict(module.named_modules())


@contextmanager
def _in_inference(module: Any) -> Iterator[None]:
    """Code that asks `self.training` is followed as in inference."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _followed(builder: Builder, module: Any, graph: Any, leaves: Mapping[str, Any], entry: str) -> str:
    """Return the name of the output, when every node of `graph` has been added to `builder`."""
    values: dict[Any, Any] = {}
    aliases = Aliases(leaves)
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = _argument(node, bool(values), entry)
        elif node.op == "get_attr":
            values[node] = _attribute(module, node.target)
        elif node.op == "output":
            return _answer(_known(node.args[0], values))
        else:
            values[node] = _value(builder, node, leaves, values)
        for changed in aliases.take(node):
            values[changed] = values[node]
    raise NetworkError("the module gives nothing", hint="Return the scores")


def _argument(node: Any, later: bool, entry: str) -> Any:
    if not later:
        return Tensor(entry)
    if node.args:
        return node.args[0]
    raise NetworkError(f"the module takes several inputs, {node.target} among them", hint="Give it one input")


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _answer(value: Any) -> str:
    if isinstance(value, (tuple, list)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Tensor):
        raise NetworkError(f"the module gives {type(value).__name__}", hint="Return one tensor: the scores")
    return value.name


def _known(argument: Any, values: Mapping[Any, Any]) -> Any:
    """Return an argument of fx with its nodes replaced by what they stand for."""
    fx = needed("torch.fx", "to import modules")
    return fx.node.map_arg(argument, values.__getitem__)


def _value(builder: Builder, node: Any, leaves: Mapping[str, Any], values: Mapping[Any, Any]) -> Any:
    arguments, keywords = _known(node.args, values), _known(node.kwargs, values)
    if node.op == "call_module":
        return _layer(builder, str(node.target), leaves[node.target], arguments, keywords)
    title = node.target if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))
    title = str(title).removesuffix("_")  # in place, which is seen to elsewhere
    scope = Scope(builder, node.name, title)
    if not _holds_activation((arguments, keywords)):
        return _computed(scope, node, arguments, keywords)
    return _called(scope, FUNCTIONS.get(scope.operation), arguments, keywords)


def _layer(builder: Builder, path: str, layer: Any, arguments: Any, keywords: Any) -> Any:
    scope = Scope(builder, path, type(layer).__name__)
    if scope.operation in ATTENTION:
        return _called(scope, ATTENTION[scope.operation], (layer, *arguments), keywords)
    if scope.operation not in LAYERS:
        raise scope.refused("is a layer that nothing here computes", EXPORT)
    function, settings = LAYERS[scope.operation](layer)
    return _called(scope, FUNCTIONS[function], (*arguments, *settings), keywords)


def _called(scope: Scope, function: Callable[..., Any] | None, arguments: Any, keywords: Any) -> Any:
    if function is None:
        raise scope.refused("is a function that nothing here computes", EXPORT)
    try:
        return function(scope, *arguments, **keywords)
    except LightningError:
        raise
    except (*CONTRADICTIONS, RuntimeError) as error:
        raise scope.refused(f"is called as nothing here understands: {error}", EXPORT) from error


def _computed(scope: Scope, node: Any, arguments: Any, keywords: Any) -> Any:
    """Return what torch makes of constants."""
    try:
        if node.op == "call_method":
            return getattr(arguments[0], node.target)(*arguments[1:], **keywords)
        return node.target(*arguments, **keywords)
    except (*CONTRADICTIONS, RuntimeError) as error:
        raise scope.refused(f"cannot be computed: {error}", EXPORT) from error


def _holds_activation(value: Any) -> bool:
    if isinstance(value, dict):
        return _holds_activation(tuple(value.values()))
    if isinstance(value, (tuple, list)):
        return any(map(_holds_activation, value))
    return isinstance(value, Tensor)
