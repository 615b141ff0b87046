"""Warnings of answers that nothing refuses and that may mean nothing: data unlike those that the model was made for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from lightning.compiler import CompiledModel
from lightning.compiler.model import FULL
from lightning.evaluation.dataset import Raw
from lightning.networks.network import Preprocessing

FAR = 8.0
"""Times that data may be larger or smaller than those that ranges were measured on: a test set has outliers and dark
images, and 0 .. 1 taken for 0 .. 255, or levels of 0 .. 16, are farther away."""
MUCH = 0.1
"""Of all activations, clipped: ranges chosen for noise cut off a few in a hundred."""
LEVELS = 127
"""An image of bytes is brighter than this somewhere."""
_SHAPE_ONLY = frozenset({"Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze"})


def warnings_of_data(model: CompiledModel, name: str, raw: Raw) -> Iterator[str]:
    """Why the answers of `model` for these raw inputs, called `name`, may mean nothing."""
    largest, made_for = float(np.abs(raw).max(initial=0)), largest_made_for(model)
    if made_for and not made_for / FAR <= largest <= made_for * FAR:
        yield (
            f"{name} holds values up to {largest:.4g}, and {model.network.name} was compiled for values up to"
            f" {made_for:.4g}. Give data of that range, or compile with samples like these"
        )
    elif raw.dtype == np.uint8 and largest > LEVELS and _takes_raw_levels(model):
        yield (
            f"{name} holds levels of 0 to 255, and {model.network.name} takes them as they are: nothing says how its"
            " inputs are prepared. If it was trained on 0 to 1: lightning compile --samples DATA --scale 0.00392157"
        )


def warnings_of_clipping(model: CompiledModel, images: int, counters: Mapping[str, int]) -> Iterator[str]:
    """Why they may, after `images` were run and `counters` counted."""
    share = counters.get("clipped_activations", 0) / max(images * activations_counted(model), 1)
    if share > MUCH:
        yield (
            f"{100 * share:.0f} % of all activations are clipped: outside the ranges that {model.network.name} was"
            " compiled with. Compile with samples of such data, or with wider ranges: --ranges min-max"
        )


def largest_made_for(model: CompiledModel) -> float | None:
    """Return the largest magnitude of raw inputs that ranges were measured on; None where a file does not say it."""
    if model.shift_normalised:
        return float(FULL)  # bytes are sent as they are
    seen = (model.origin.get("samples") or {}).get("range")
    return max(map(abs, seen)) if seen else None


def activations_counted(model: CompiledModel) -> int:
    """Return the activations of an image that may be clipped, once each.

    Later layers of `published` are scaled to fit.
    """
    photonic = [node for node in model.network.nodes if node.name in model.layers]
    counted = photonic[:1] if model.shift_normalised else photonic
    return sum(prod(model.network.shapes[node.inputs[0]]) for node in counted)


def _takes_raw_levels(model: CompiledModel) -> bool:
    """Return whether light takes raw inputs as they are: no preprocessing, and no scaling in the network."""
    network = model.network
    if network.preprocessing != Preprocessing(layout=network.preprocessing.layout):
        return False
    tensor = network.input
    for node in network.nodes:
        if tensor in node.inputs:
            if node.operation not in _SHAPE_ONLY:
                return node.name in model.layers
            tensor = node.output
    return False
