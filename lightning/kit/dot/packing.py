"""Packing: the assignment of products to the symbols of tiles.

Light has no sign, so positive and negative products of a row go into separate tiles. A symbol carries one product in
each pair of modulators, and the detector adds the two. Products that are zero need no light and are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.errors import OutOfRange
from lightning.kit.calibration.decoder import FULL_VALUE

Integers = npt.NDArray[np.int64]
PAIR_COUNT = 2
PRODUCTS_PER_SYMBOL = PAIR_COUNT


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows of products as tiles of symbols."""

    values: Integers
    """(tiles, symbols, 4) of 0..255. Both values of a pair without a product are 0."""
    row_indices: Integers
    """(tiles,) index of the row whose products the tile holds."""
    signs: Integers
    """(tiles,) 1 for positive products, -1 for negative ones."""


def check_operands(weights: npt.ArrayLike, inputs: npt.ArrayLike) -> tuple[Integers, Integers]:
    """Return both operands as integers of one shape (..., n). Leading axes broadcast.

    Raise `OutOfRange` unless all are integers from -255 to 255, for vectors of unequal length, and for leading axes
    that do not broadcast.
    """
    weight_array, input_array = _check_integers("weights", weights), _check_integers("inputs", inputs)
    if weight_array.shape[-1] != input_array.shape[-1]:
        raise OutOfRange(
            f"vectors of {weight_array.shape[-1]} and {input_array.shape[-1]} entries have no dot product",
            hint="Give both the same length in their last axis",
        )
    try:
        broadcast_weights, broadcast_inputs = np.broadcast_arrays(weight_array, input_array)
    except ValueError as error:
        raise OutOfRange(
            f"weights of shape {weight_array.shape} and inputs of shape {input_array.shape} do not match",
            hint="All axes but the last must be equal, or 1",
        ) from error
    return broadcast_weights, broadcast_inputs


def pack_products(weights: Integers, inputs: Integers, max_symbol_count: int) -> PackedRows:
    """Return tiles of at most `max_symbol_count` symbols with the products of (rows, n) weights and inputs.

    All tiles are padded to the length of the longest. A row whose products are all zero has no tile.

    >>> packed = pack_products(np.array([[1, -2, 3]]), np.array([[4, 5, 6]]), 8)
    >>> packed.values.tolist(), packed.signs.tolist()
    ([[[1, 4, 3, 6]], [[2, 5, 0, 0]]], [1, -1])
    """
    pieces = list(
        _split_into_pieces(np.sign(weights) * np.sign(inputs), PRODUCTS_PER_SYMBOL * max_symbol_count)
    )
    max_length = max((-(-indices.size // PAIR_COUNT) for _, _, indices in pieces), default=0)
    values = np.zeros((len(pieces), PAIR_COUNT, 2, max_length), dtype=np.int64)
    for tile, (row, _, indices) in enumerate(pieces):
        for pair in range(PAIR_COUNT):
            pair_indices = indices[pair::PAIR_COUNT]
            values[tile, pair, 0, : pair_indices.size] = weights[row, pair_indices]
            values[tile, pair, 1, : pair_indices.size] = inputs[row, pair_indices]
    row_indices = np.array([row for row, _, _ in pieces], dtype=np.int64)
    signs = np.array([sign for _, sign, _ in pieces], dtype=np.int64)
    values_by_symbol = np.abs(values).reshape(len(pieces), 2 * PAIR_COUNT, max_length).transpose(0, 2, 1)
    return PackedRows(values_by_symbol, row_indices, signs)


def _split_into_pieces(signs: Integers, max_product_count: int) -> Iterator[tuple[int, int, Integers]]:
    """Yield (row, sign, indices of the products): pieces of each row, of one sign, of at most `max_product_count`."""
    for row, row_signs in enumerate(signs):
        for sign in (1, -1):
            indices = np.flatnonzero(row_signs == sign)
            for start in range(0, indices.size, max_product_count):
                yield row, sign, indices[start : start + max_product_count]


def _check_integers(name: str, values: npt.ArrayLike) -> Integers:
    array = np.asarray(values)
    if array.ndim == 0 or array.size == 0:
        raise OutOfRange(f"{name} are {'empty' if array.ndim else 'a single number'}", hint="Give vectors")
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise OutOfRange(f"{name} are not all numbers", hint="Give integers from -255 to 255")
    integers = array.astype(np.int64)
    if (integers != array).any() or np.abs(integers).max() > FULL_VALUE:
        raise OutOfRange(f"{name} must be integers from -255 to 255", hint="Scale or round them first")
    return integers
