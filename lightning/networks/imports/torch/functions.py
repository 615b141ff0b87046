"""Functions and methods of torch by name: a function and a method of one name mean the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightning.networks.imports.torch import products, shapes, values

Function = Callable[..., Any]

FUNCTIONS: Mapping[str, Function] = {
    "linear": products.linear,
    **dict.fromkeys(("conv1d", "conv2d"), products.conv),
    **dict.fromkeys(("matmul", "bmm"), products.matmul),
    "scaled_dot_product_attention": products.attention,
    **dict.fromkeys(("max_pool1d", "max_pool2d"), products.max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), products.average_pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), products.adaptive("AveragePool")),
    "adaptive_max_pool2d": products.adaptive("MaxPool"),
    "relu": values.plain("Relu"),
    "relu6": values.relu6,
    "sigmoid": values.plain("Sigmoid"),
    "tanh": values.plain("Tanh"),
    "silu": values.plain("Swish"),
    "mish": values.plain("Mish"),
    "hardswish": values.plain("HardSwish"),
    "hardsigmoid": values.hardsigmoid,
    "leaky_relu": values.leaky_relu,
    "elu": values.elu,
    "prelu": values.prelu,
    "gelu": values.gelu,
    "gelu_as": values.gelu,
    "softplus": values.softplus,
    **dict.fromkeys(("clamp", "clip"), values.clamp),
    "hardtanh": values.hardtanh,
    **{
        name: values.plain(name.capitalize())
        for name in ("erf", "exp", "log", "sqrt", "abs", "neg", "reciprocal")
    },
    **dict.fromkeys(("identity", "dropout", "dropout1d", "dropout2d", "alpha_dropout"), values.same),
    **dict.fromkeys(("contiguous", "clone", "detach", "float"), values.same),
    "add": values.binary("Add"),
    **dict.fromkeys(("sub", "subtract"), values.binary("Sub")),
    "rsub": values.reversed_difference,
    **dict.fromkeys(("mul", "multiply"), values.binary("Mul")),
    **dict.fromkeys(("div", "truediv", "divide", "true_divide"), values.binary("Div")),
    "pow": values.binary("Pow"),
    "maximum": values.binary("Max"),
    "minimum": values.binary("Min"),
    "masked_fill": values.masked_fill,
    "where": lambda scope, condition, x, y: scope.add("Where", [condition, x, y]),
    "batch_norm": values.batch_norm,
    "layer_norm": values.layer_norm,
    "softmax": values.along("Softmax"),
    "log_softmax": values.along("LogSoftmax"),
    "mean": values.reduction("ReduceMean"),
    "sum": values.reduction("ReduceSum"),
    "amax": values.reduction("ReduceMax"),
    **dict.fromkeys(("reshape", "view"), shapes.reshape),
    "flatten": shapes.flatten,
    "unflatten": shapes.unflatten,
    "permute": shapes.permute,
    **dict.fromkeys(("transpose", "swapaxes"), shapes.transpose),
    "squeeze": shapes.squeeze,
    "unsqueeze": shapes.unsqueeze,
    **dict.fromkeys(("cat", "concat", "concatenate"), shapes.cat),
    "chunk": shapes.chunk,
    "split": shapes.split,
    "unbind": shapes.unbind,
    "pad": shapes.pad,
    "size": shapes.size,
    "dim": lambda scope, x: len(scope.shape(x)),
    "getattr": shapes.attribute,
    "getitem": shapes.item,
}
