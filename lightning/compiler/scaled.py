"""The scheme `scaled`: ranges measured on samples, weight scales a row, biases, the mean of `>> 8` put back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.integers import sums_of
from lightning.compiler.model import FULL, PhotonicLayer
from lightning.compiler.observed import Observed, observe
from lightning.compiler.options import Options
from lightning.compiler.quantisation import output_scales, quantise, quantise_weights, weight_scales
from lightning.compiler.ranges import candidates
from lightning.compiler.rounding import rounded_by, rounding_table
from lightning.networks.network import Network

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Small = npt.NDArray[np.int16]

_LARGEST_BIAS = 2**22
"""In steps of a sum: with its sum it stays exact in float32."""
_NO_WORSE = 1.5
"""Of candidates of the range whose errors differ by less, the largest is taken: few samples show the extremes."""


@dataclass(frozen=True)
class _Fit:
    """A layer for one choice of its range, and how far its outputs are from the float ones on the samples."""

    weights: Small
    input_scale: float
    outputs: Floats
    mean: Doubles
    """(groups, rows) of what sums lack, in their own units: by `>> 8`, by rounding, by ends that are cut off."""
    error: float
    """Mean square of what remains when the mean is put back, added up over rows."""


def scaled_layers(network: Network, raw: npt.NDArray[Any], options: Options) -> dict[str, PhotonicLayer]:
    """All photonic layers of the network, by the names of their nodes, quantised on samples."""
    return {seen.layer.node.name: _layer(seen, options) for seen in observe(network, raw, options.seed)}


def _layer(seen: Observed, options: Options) -> PhotonicLayer:
    fits = [_fit(seen, largest, options) for largest in candidates(seen.magnitudes, options)]
    least = min(fit.error for fit in fits)
    fit = next(fit for fit in fits if fit.error <= least * _NO_WORSE)
    return PhotonicLayer(
        seen.layer.node.name,
        fit.weights,
        _bias(seen, fit, options),
        fit.input_scale,
        fit.outputs,
        seen.signed,
        seen.layer.geometry,
        seen.layer.vectors,
    )


def _bias(seen: Observed, fit: _Fit, options: Options) -> npt.NDArray[np.int32]:
    """(groups, rows) in units of sums."""
    own = np.zeros(fit.outputs.shape) if seen.layer.bias is None else seen.layer.bias / fit.outputs
    return np.asarray(np.rint(own + fit.mean if options.correct_floor else own).astype(np.int32))


def _fit(seen: Observed, largest: float, options: Options) -> _Fit:
    input_scale = largest / FULL
    integers = quantise(seen.vectors, input_scale, signed=seen.signed)
    scales = _scales(seen, input_scale, options)
    weights = _rounded(seen.layer.weights, scales, integers, options)
    outputs = output_scales(input_scale, scales)
    lacking = np.stack(
        [
            _wanted(seen, group) / outputs[group] - sums_of(integers[:, group], rows)
            for group, rows in enumerate(weights)
        ]
    )  # (groups, vectors, rows)
    mean = lacking.mean(axis=1)
    remains = lacking - mean[:, None] if options.correct_floor else lacking
    error = float(((remains * outputs[:, None]) ** 2).mean(axis=1).sum())
    return _Fit(weights, input_scale, outputs, mean, error)


def _scales(seen: Observed, input_scale: float, options: Options) -> Doubles:
    """Of weights; coarser in rows whose bias would be too large a number otherwise."""
    scales = weight_scales(seen.layer.weights, per_channel=options.per_channel)
    if seen.layer.bias is None:
        return scales
    return np.asarray(np.maximum(scales, np.abs(seen.layer.bias) / (_LARGEST_BIAS * 256 * input_scale)))


def _rounded(weights: Floats, scales: Doubles, integers: Small, options: Options) -> Small:
    if options.rounding == "nearest":
        return quantise_weights(weights, scales)
    return rounded_by(rounding_table(integers), weights / scales[..., None])


def _wanted(seen: Observed, group: int) -> Floats:
    """(vectors, rows) the sums of products in float32."""
    return np.asarray(seen.vectors[:, group] @ seen.layer.weights[group].T)
