"""Moves of a window: strides, padding (given, or SAME), dilations, for images and for sequences."""

from __future__ import annotations

from typing import cast

from lightning.networks.imports.builder import Call
from lightning.networks.patches import Pads, Pair

Move = tuple[Pair, Pads, Pair]
"""Strides, pads, dilations."""


def move_of(call: Call, size: tuple[int, ...], kernel: Pair, *, flat: bool) -> Move:
    """Return the move of ONNX's attributes, for an image of `size`; `flat` says that the attributes are of one axis.

    Raises `UnsupportedNode` for attributes that cannot be, negative pads among them.
    """
    ones = (1,) if flat else (1, 1)
    strides = _pair(call.wholes("strides", ones, least=1))
    dilations = _pair(call.wholes("dilations", ones, least=1))
    return strides, _pads(call, (size[0], size[1]), kernel, strides, dilations, flat=flat), dilations


def _pair(values: tuple[int, ...]) -> Pair:
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def _pads(call: Call, size: Pair, kernel: Pair, strides: Pair, dilations: Pair, *, flat: bool) -> Pads:
    way = call.attributes.get("auto_pad", "NOTSET")
    if way == "VALID":
        return (0, 0, 0, 0)
    if way in {"SAME_UPPER", "SAME_LOWER"}:
        return same_pads(size, kernel, strides, dilations, upper=way == "SAME_UPPER")
    if way != "NOTSET":
        raise call.refused(f"has auto_pad = {way!r}")
    given = call.wholes("pads", (0, 0) if flat else (0, 0, 0, 0))
    return (0, given[0], 0, given[1]) if flat else cast("Pads", given)


def same_pads(size: Pair, kernel: Pair, strides: Pair, dilations: Pair, *, upper: bool) -> Pads:
    """Return pads such that ceil(size / stride) comes out; an odd one lies at the end with `upper`.

    >>> same_pads((5, 6), kernel=(3, 3), strides=(1, 2), dilations=(1, 1), upper=True)
    (1, 0, 1, 1)
    """
    before, after = [], []
    for length, k, stride, dilation in zip(size, kernel, strides, dilations, strict=True):
        total = max((-(-length // stride) - 1) * stride + (k - 1) * dilation + 1 - length, 0)
        less, more = total // 2, total - total // 2
        before.append(less if upper else more)
        after.append(more if upper else less)
    return (before[0], before[1], after[0], after[1])


def excess(size: Pair, kernel: Pair, move: Move) -> Pair:
    """Return what `ceil_mode` adds behind the padding, so that a last, incomplete window counts.

    A window that would start behind the image and its front padding does not.

    >>> excess((5, 6), kernel=(2, 2), move=((2, 2), (0, 0, 0, 0), (1, 1)))
    (1, 0)
    """
    strides, pads, dilations = move
    added = []
    for axis in (0, 1):
        room = size[axis] + pads[axis] + pads[axis + 2] - dilations[axis] * (kernel[axis] - 1) - 1
        count = -(-room // strides[axis]) + 1
        if (count - 1) * strides[axis] >= size[axis] + pads[axis]:
            count -= 1
        added.append(max((count - 1) * strides[axis] - room, 0))
    return (added[0], added[1])
