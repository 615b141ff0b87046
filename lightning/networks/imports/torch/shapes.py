"""Methods of torch that move values and do not change them, in ONNX's vocabulary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lightning.networks.imports.builder import BATCH
from lightning.networks.imports.torch.scope import Scope, Tensor

Function = Callable[..., Any]


def _flat(values: Sequence[Any]) -> list[int]:
    """Return the sizes or axes, given one by one or as one sequence."""
    given = values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values
    return [int(value) for value in given]


def reshape(scope: Scope, x: Tensor, *shape: Any) -> Tensor:
    """Reshape to any shape that keeps images apart."""
    return scope.add("Reshape", [x, _flat(shape)], allowzero=1)


def flatten(scope: Scope, x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Flatten some axes into one."""
    shape, first, last = scope.shape(x), scope.axis(x, start_dim), scope.axis(x, end_dim)
    if (first, last) == (1, len(shape) - 1):
        return scope.add("Flatten", [x], axis=1)
    return reshape(scope, x, *shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


def unflatten(scope: Scope, x: Tensor, dim: int, sizes: Any) -> Tensor:
    """Split one axis into several."""
    shape, axis = scope.shape(x), scope.axis(x, dim)
    known = math.prod(size for size in sizes if size != -1)
    full = [shape[axis] // known if size == -1 else size for size in sizes]
    return reshape(scope, x, *shape[:axis], *full, *shape[axis + 1 :])


def permute(scope: Scope, x: Tensor, *dims: Any) -> Tensor:
    """Permute the axes."""
    return scope.add("Transpose", [x], perm=[scope.axis(x, axis) for axis in _flat(dims)])


def transpose(scope: Scope, x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two axes."""
    order = list(range(len(scope.shape(x))))
    first, second = scope.axis(x, dim0), scope.axis(x, dim1)
    order[first], order[second] = order[second], order[first]
    return scope.add("Transpose", [x], perm=order)


def squeeze(scope: Scope, x: Tensor, *dims: Any) -> Tensor:
    """Without axes of length 1; one that is longer stays."""
    shape = scope.shape(x)
    axes = {scope.axis(x, axis) for axis in (_flat(dims) if dims else range(len(shape)))}
    return reshape(scope, x, *(size for axis, size in enumerate(shape) if size != 1 or axis not in axes))


def unsqueeze(scope: Scope, x: Tensor, dim: int) -> Tensor:
    """Add one more axis of length 1."""
    return scope.add("Unsqueeze", [x, [scope.axis(x, dim, more=1)]])


def cat(scope: Scope, tensors: Any, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Concatenate tensors along an axis."""
    return scope.add("Concat", list(tensors), axis=int(dim if axis is None else axis))


def chunk(scope: Scope, x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut into `chunks` pieces, the last of which may be shorter."""
    length = scope.shape(x)[scope.axis(x, dim)]
    return split(scope, x, -(-length // chunks), dim)


def split(scope: Scope, x: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut into pieces of one size, or of the sizes given."""
    each, length = split_size_or_sections, scope.shape(x)[scope.axis(x, dim)]
    if isinstance(each, int):
        each = [min(each, length - start) for start in range(0, length, each)]
    return scope.add_several("Split", [x, list(each)], "", len(each), {"axis": int(dim)})


def unbind(scope: Scope, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return every entry of an axis by itself."""
    axis = scope.axis(x, dim)
    return tuple(scope.add("Gather", [x, k], str(k), axis=axis) for k in range(scope.shape(x)[axis]))


def pad(scope: Scope, x: Tensor, padding: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad the last axis first, as torch counts."""
    pairs = [tuple(padding[place : place + 2]) for place in range(0, len(padding), 2)][::-1]
    before, after = zip(*((0, 0),) * (len(scope.shape(x)) - len(pairs)), *pairs, strict=True)
    return scope.add("Pad", [x, [*before, *after], float(value or 0)], mode=mode)


def size(scope: Scope, x: Tensor, dim: int | None = None) -> Any:
    """Return the numbers, the batch axis's a stand-in."""
    return scope.shape(x) if dim is None else scope.shape(x)[dim]


def attribute(scope: Scope, x: Tensor, name: str) -> Any:
    """Return `shape`, `ndim` and transposed views."""
    if name == "shape":
        return scope.shape(x)
    if name == "ndim":
        return len(scope.shape(x))
    if name == "mT":
        return transpose(scope, x, -1, -2)
    raise scope.refused(f"asks for {name}")


def item(scope: Scope, x: Any, place: Any) -> Any:
    """Return a piece of a tuple, or of an activation: `[:, 0]`, `[..., 1:]`, `[:, None]`."""
    if not isinstance(x, Tensor):
        return x[place]
    places = list(place) if isinstance(place, tuple) else [place]
    if Ellipsis in places:
        at = places.index(Ellipsis)
        missing = len(scope.shape(x)) - sum(entry is not None for entry in places) + 1
        places[at : at + 1] = [slice(None)] * missing
    axis = 0
    for number, entry in enumerate(places):
        if entry is None:
            x = scope.add("Unsqueeze", [x, [axis]], f"new{number}")
        elif isinstance(entry, int):
            x, axis = scope.add("Gather", [x, entry], f"taken{number}", axis=axis), axis - 1
        elif entry != slice(None):
            x = _cut(scope, x, axis, entry, f"cut{number}")
        axis += 1
    return x


def _cut(scope: Scope, x: Tensor, axis: int, span: Any, part: str) -> Tensor:
    start, stop, step = span.indices(scope.shape(x)[axis])
    return scope.add("Slice", [x, [start], [BATCH if stop < 0 else stop], [axis], [step]], part)
