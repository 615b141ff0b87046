"""Layers of `torch.nn` as calls of the functions of the same meaning, with the layer's settings behind the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Called = tuple[str, tuple[Any, ...]]


def _convolution(layer: Any) -> Called:
    settings = (layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    function = "conv1d" if len(layer.kernel_size) == 1 else "conv2d"
    return function, (*settings, layer.padding_mode)


def _batch_norm(layer: Any) -> Called:
    weights = (layer.running_mean, layer.running_var, layer.weight, layer.bias)
    return "batch_norm", (*weights, False, 0.1, layer.eps)


def _max_pool(layer: Any) -> Called:
    settings = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)
    return "max_pool2d", (*settings, layer.return_indices)


def _average_pool(layer: Any) -> Called:
    settings = (layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, layer.count_include_pad)
    return "avg_pool2d", (*settings, getattr(layer, "divisor_override", None))


def _plain(function: str, *settings: str) -> Callable[[Any], Called]:
    return lambda layer: (function, tuple(getattr(layer, name) for name in settings))


LAYERS: Mapping[str, Callable[[Any], Called]] = {
    "Linear": _plain("linear", "weight", "bias"),
    "Conv1d": _convolution,
    "Conv2d": _convolution,
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "LayerNorm": _plain("layer_norm", "normalized_shape", "weight", "bias", "eps"),
    "MaxPool1d": _max_pool,
    "MaxPool2d": _max_pool,
    "AvgPool1d": _average_pool,
    "AvgPool2d": _average_pool,
    "AdaptiveAvgPool1d": _plain("adaptive_avg_pool2d", "output_size"),
    "AdaptiveAvgPool2d": _plain("adaptive_avg_pool2d", "output_size"),
    "AdaptiveMaxPool2d": _plain("adaptive_max_pool2d", "output_size"),
    "Flatten": _plain("flatten", "start_dim", "end_dim"),
    "Unflatten": _plain("unflatten", "dim", "unflattened_size"),
    "Identity": _plain("identity"),
    **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout"), _plain("dropout")),
    "ReLU": _plain("relu"),
    "ReLU6": _plain("relu6"),
    "LeakyReLU": _plain("leaky_relu", "negative_slope"),
    "PReLU": _plain("prelu", "weight"),
    "ELU": _plain("elu", "alpha"),
    "GELU": lambda layer: ("gelu_as", (layer.approximate,)),
    "Sigmoid": _plain("sigmoid"),
    "Tanh": _plain("tanh"),
    "SiLU": _plain("silu"),
    "Mish": _plain("mish"),
    "Softplus": _plain("softplus", "beta", "threshold"),
    "Hardswish": _plain("hardswish"),
    "Hardsigmoid": _plain("hardsigmoid"),
    "Hardtanh": _plain("hardtanh", "min_val", "max_val"),
    "Softmax": _plain("softmax", "dim"),
    "LogSoftmax": _plain("log_softmax", "dim"),
    "ZeroPad2d": _plain("pad", "padding"),
    "ConstantPad1d": lambda layer: ("pad", (layer.padding, "constant", layer.value)),
    "ConstantPad2d": lambda layer: ("pad", (layer.padding, "constant", layer.value)),
}
