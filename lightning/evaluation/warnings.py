"""Warnings about data for which the model was not compiled. Its answers may be meaningless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from lightning.compiler import CompiledModel
from lightning.compiler.model import FULL_VALUE
from lightning.evaluation.dataset import Raw
from lightning.networks.network import Preprocessing

MAX_RANGE_FACTOR = 8.0
"""Data may be larger or smaller than the samples by this factor. Outliers and dark images stay within it. Data in
0 .. 1 or 0 .. 16 instead of 0 .. 255 do not."""
MAX_CLIPPED_SHARE = 0.1
"""Share of clipped activations above which to warn. Ranges chosen for noise clip a few per cent on purpose."""
MIN_BYTE_LEVEL = 127
"""In a data set of bytes, the brightest pixel exceeds this level."""
_SHAPE_OPERATIONS = frozenset({"Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze"})


def find_data_warnings(model: CompiledModel, name: str, raw: Raw) -> Iterator[str]:
    """Yield warnings if raw inputs are outside the range for which `model` was compiled. `name` names the inputs."""
    largest, expected_largest = float(np.abs(raw).max(initial=0)), find_largest_expected_input(model)
    if (
        expected_largest
        and not expected_largest / MAX_RANGE_FACTOR <= largest <= expected_largest * MAX_RANGE_FACTOR
    ):
        yield (
            f"{name} holds values up to {largest:.4g}, and {model.network.name} was compiled for values up to"
            f" {expected_largest:.4g}. Give data of that range, or compile with samples like these"
        )
    elif raw.dtype == np.uint8 and largest > MIN_BYTE_LEVEL and _takes_raw_levels(model):
        yield (
            f"{name} holds levels of 0 to 255, and {model.network.name} takes them as they are: nothing says how its"
            " inputs are prepared. If it was trained on 0 to 1: lightning compile --samples DATA --scale 0.00392157"
        )


def find_clipping_warnings(
    model: CompiledModel, image_count: int, counters: Mapping[str, int]
) -> Iterator[str]:
    """Yield a warning if more than `MAX_CLIPPED_SHARE` of the activations were clipped in `image_count` images."""
    share = counters.get("clipped_activations", 0) / max(image_count * count_clippable_activations(model), 1)
    if share > MAX_CLIPPED_SHARE:
        yield (
            f"{100 * share:.0f} % of all activations are clipped: outside the ranges that {model.network.name} was"
            " compiled with. Compile with samples of such data, or with wider ranges: --ranges min-max"
        )


def find_largest_expected_input(model: CompiledModel) -> float | None:
    """Return the largest magnitude of raw inputs for which the model was compiled, or None if unknown."""
    if model.shift_normalised:
        return float(FULL_VALUE)  # bytes are sent as they are
    sample_range = (model.origin.get("samples") or {}).get("range")
    return max(map(abs, sample_range)) if sample_range else None


def count_clippable_activations(model: CompiledModel) -> int:
    """Return the number of activations of one image that may be clipped.

    In the `published` scheme only the first layer can clip. Later layers are shifted to fit.
    """
    photonic_nodes = [node for node in model.network.nodes if node.name in model.layers]
    clippable_nodes = photonic_nodes[:1] if model.shift_normalised else photonic_nodes
    return sum(prod(model.network.shapes[node.inputs[0]]) for node in clippable_nodes)


def _takes_raw_levels(model: CompiledModel) -> bool:
    """Return whether neither preprocessing nor the network scales raw inputs before the first photonic layer."""
    network = model.network
    if network.preprocessing != Preprocessing(layout=network.preprocessing.layout):
        return False
    tensor_name = network.input
    for node in network.nodes:
        if tensor_name in node.inputs:
            if node.operation not in _SHAPE_OPERATIONS:
                return node.name in model.layers
            tensor_name = node.output
    return False
