"""The list of operations of ONNX that are understood, and the way from each to nodes in canonical form.

An operation composed of those that exist is an entry in the table of its kind beside this file, such as
`elementwise`, and no more. One that is computed in a way of its own also has its function in
`lightning/networks/functions.py` and its name in `lightning/networks/operations.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lightning.errors import NetworkError
from lightning.networks.imports.builder import Builder, Call
from lightning.networks.imports.translators.elementwise import ELEMENTWISE
from lightning.networks.imports.translators.normalising import NORMALISING
from lightning.networks.imports.translators.pooling import global_pool, pool
from lightning.networks.imports.translators.products import conv, gemm, matmul
from lightning.networks.imports.translators.shaping import SHAPING

Translator = Callable[[Builder, Call], str | tuple[str, ...]]

VOCABULARY: Mapping[str, Translator] = {
    "Gemm": gemm,
    "MatMul": matmul,
    "Conv": conv,
    "MaxPool": pool,
    "AveragePool": pool,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    **ELEMENTWISE,
    **SHAPING,
    **NORMALISING,
}

CONTRADICTIONS = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    ZeroDivisionError,
    MemoryError,
)
"""What numpy and Python raise where shapes, types or attributes of a damaged file contradict each other."""

HINT = "Rewrite it with operations that are understood (reference page Trained networks), or cut the network before it"

INTEGERS = ("Quantize", "Dequantize", "QLinear", "DynamicQuantize")
INTEGERS_HINT = "Import the network in floats: `lightning compile` quantises it"


def translate(builder: Builder, call: Call) -> tuple[str, ...]:
    """Add what `call` means to `builder`; the names of its outputs.

    Raises `UnsupportedNode` for an operation that is not understood, and `NetworkError` where inputs and attributes
    contradict each other; both name the node.
    """
    if call.domain or call.operation not in VOCABULARY:
        hint = INTEGERS_HINT if call.operation.startswith(INTEGERS) else HINT
        raise call.refused("is an operation that nothing here computes", hint)
    try:
        outputs = VOCABULARY[call.operation](builder, call)
    except CONTRADICTIONS as error:
        raise NetworkError(
            f"{call.title} contradicts itself: {error}", hint="Export the network again"
        ) from error
    return (outputs,) if isinstance(outputs, str) else outputs
