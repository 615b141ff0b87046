"""Products with parameters that no layer of ours holds: on light they are noisy, in training they would not be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.errors import CompileError
from lightning.optional import needed

torch = needed("torch", "to train networks")
overrides = needed("torch.overrides", "to train networks")

PRODUCTS = frozenset(
    {
        *("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv"),
        *("linear", "bilinear", "einsum", "tensordot", "conv1d", "conv2d", "conv3d"),
    }
)
"""Names of torch's functions that multiply and add up."""


class OutlierProducts(overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
    """While it is entered, a product with one of these parameters, or a view of it, raises `CompileError`."""

    def __init__(self, outliers: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = {_memory(parameter): name for name, parameter in outliers.items()}

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """Return every call of torch comes by here."""
        given = dict(named or {})
        if getattr(function, "__name__", "") in PRODUCTS:
            self._check((*arguments, *given.values()))
        return function(*arguments, **given)

    def _check(self, factors: Sequence[Any]) -> None:
        for factor in factors:
            if isinstance(factor, list | tuple):
                self._check(factor)
            elif isinstance(factor, torch.Tensor):
                name = self._names.get(_memory(factor))
                if name is not None:
                    raise _refused(name)


def outliers_of(module: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of two axes or more, by name, that are no weights of these layers: embeddings, factors."""
    ours = {id(layer.weight) for layer in layers.values()}
    return {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.ndim >= 2 and id(parameter) not in ours and "parametrizations." not in name
    }


def _memory(tensor: Any) -> int:
    """Return where its numbers lie, which is what a view shares."""
    return int(tensor.untyped_storage().data_ptr())


def _refused(name: str) -> CompileError:
    return CompileError(
        f"parameter {name} is multiplied outside a Linear or Conv2d layer, and has no noisy form in training",
        hint="Make it the weight of a Linear layer",
    )
