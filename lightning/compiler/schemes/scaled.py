"""The scheme `scaled`: ranges measured on samples, weight scales per row, biases, and a correction for `>> 8`.

a = clip(rint(x / input_scale), -255 or 0, 255)            input_scale = largest activation / 255
w = rint(v / weight_scale[row])                            weight_scale = largest of the row (or layer) / 255
sum_k v_k x_k = 256 * input_scale * weight_scale * sum_k (a_k w_k / 256)

Weights are rounded for products that lose their lowest 8 bits.

A product (a * w) >> 8 is too small by 0 .. 255/256, and exact if a is 0. The loss depends on a, so a bias corrects only
its mean. To minimise the remaining error, w is not rounded to the nearest integer. It is rounded to the integer whose
products differ least from the true products, averaged over the layer's activations:

    choose w' for v so that Var_a[((a * w') >> 8) - a * v / 256] is least

This helps most if many activations are 0 together, as in images, because then the losses of the others add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.datapath.schedule import count_weight_readouts
from lightning.compiler.lowering import compute_integer_sums
from lightning.compiler.model import FULL_VALUE, PhotonicLayer
from lightning.compiler.options import Options
from lightning.compiler.schemes.ranges import (
    LayerObservation,
    find_best_range,
    find_candidates,
    observe_layers,
)
from lightning.networks.network import Network

_STEP_DIVISIONS = 8
"""Entries of the rounding table for one step of a weight."""
_MAX_ROUNDING_DISTANCE = 16
"""Largest distance of a rounded weight from the exact one."""

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Int16s = npt.NDArray[np.int16]
_MAX_BIAS = 2**22
"""Greatest bias in steps of a sum, so that bias plus sum is exact in float32."""


def make_rounding_table(activations: Int16s) -> Int16s:
    """Return the rounded magnitude for every eighth of a step, (255 * 8 + 1,), for these activations."""
    magnitudes = np.abs(activations).ravel()
    probabilities = np.bincount(magnitudes, minlength=FULL_VALUE + 1) / max(magnitudes.size, 1)
    integers = np.arange(FULL_VALUE + 1, dtype=np.float64)
    products = np.floor(np.outer(integers, integers) / 256)  # [w', a]
    means = products @ probabilities
    variance = products**2 @ probabilities - means**2
    covariance = (products * integers) @ probabilities / 256 - means * (integers @ probabilities) / 256
    targets = np.arange(FULL_VALUE * _STEP_DIVISIONS + 1) / _STEP_DIVISIONS
    loss = variance - 2 * targets[:, None] * covariance
    loss[np.abs(targets[:, None] - integers) > _MAX_ROUNDING_DISTANCE] = np.inf
    nearest_integers = np.rint(targets).astype(np.int64)
    is_worse = loss[np.arange(len(targets)), nearest_integers] > loss.min(axis=1) + 1e-12
    rounding_table = np.where(is_worse, loss.argmin(axis=1), nearest_integers)
    rounding_table[: _STEP_DIVISIONS // 2 + 1] = 0
    return np.asarray(rounding_table, np.int16)


def round_weights(table: Int16s, weights_in_steps: Doubles) -> Int16s:
    """Round weights by the table. `weights_in_steps` are in steps of their scales, with any sign, up to 255."""
    indices = np.rint(np.minimum(np.abs(weights_in_steps), FULL_VALUE) * _STEP_DIVISIONS).astype(np.int64)
    return np.asarray(np.sign(weights_in_steps).astype(np.int16) * table[indices])


def quantise(values: npt.NDArray[np.floating], scale: float, *, is_signed: bool) -> Int16s:
    """Return the activations in steps of `scale`, with ties rounded to even, clipped to 0 or -255 .. 255.

    >>> quantise(np.array([-1.0, 0.6, 9.0]), 0.01, is_signed=False).tolist()
    [0, 60, 255]
    """
    lowest = -FULL_VALUE if is_signed else 0
    return np.asarray(np.clip(np.rint(values / scale), lowest, FULL_VALUE).astype(np.int16))


def compute_weight_scales(weights: Floats, *, per_channel: bool) -> Doubles:
    """Return the value of one step of a weight, (groups, rows). Rows of zeros use the scale of the layer.

    >>> compute_weight_scales(
    ...     np.array([[[0.5, -1.0], [0.0, 0.0]]], np.float32), per_channel=True
    ... ).tolist() == [[1 / 255] * 2]
    True
    """
    row_maxima = np.abs(weights.astype(np.float64)).max(axis=2, initial=0.0)
    layer_maximum = float(row_maxima.max(initial=0.0)) or 1.0
    value_at_255 = (
        np.where(row_maxima > 0, row_maxima, layer_maximum)
        if per_channel
        else np.full_like(row_maxima, layer_maximum)
    )
    return np.asarray(value_at_255 / FULL_VALUE)


def quantise_weights(weights: Floats, scales: Doubles) -> Int16s:
    """Return the weights in steps of their scales, -255 .. 255, (groups, rows, terms)."""
    return np.asarray(np.clip(np.rint(weights / scales[..., None]), -FULL_VALUE, FULL_VALUE).astype(np.int16))


def compute_output_scales(input_scale: float, scales: Doubles) -> Floats:
    """Return the value of one step of a sum, (groups, rows), for products that lose 8 bits."""
    return (256.0 * input_scale * scales).astype(np.float32)


@dataclass(frozen=True)
class _RangeFit:
    """A layer for one choice of its range, and its errors against the float network on the samples."""

    weights: Int16s
    input_scale: float
    output_scales: Floats
    mean_deviations: Doubles
    """(groups, rows) mean error of sums from `>> 8`, rounding and clipping, in steps of a sum."""
    mean_square_error: float
    """Mean square error, summed over rows, after the correction of the mean if enabled."""
    mean_square_noise: float
    """Mean square of the expected noise, summed over rows."""


def compile_scaled(network: Network, raw: npt.NDArray[Any], options: Options) -> dict[str, PhotonicLayer]:
    """Quantise all photonic layers of the network on samples; return them by node name."""
    return {
        observation.layer.node.name: _make_layer(observation, options)
        for observation in observe_layers(network, raw, options.seed)
    }


def _make_layer(observation: LayerObservation, options: Options) -> PhotonicLayer:
    # Sums of products in float32, (groups, vectors, rows).
    exact_outputs = np.asarray(
        observation.vectors.transpose(1, 0, 2) @ observation.layer.weights.transpose(0, 2, 1)
    )
    fits = [
        _fit_range(observation, exact_outputs, max_activation, options)
        for max_activation in find_candidates(observation.magnitudes, options)
    ]
    fit = fits[
        find_best_range(
            [candidate.mean_square_error for candidate in fits],
            [candidate.mean_square_noise for candidate in fits],
        )
    ]
    # Biases in units of sums, (groups, rows).
    own_bias = (
        np.zeros(fit.output_scales.shape)
        if observation.layer.bias is None
        else observation.layer.bias / fit.output_scales
    )
    bias = own_bias + fit.mean_deviations if options.correct_floor else own_bias
    return PhotonicLayer(
        observation.layer.node.name,
        fit.weights,
        np.asarray(np.rint(bias).astype(np.int32)),
        fit.input_scale,
        fit.output_scales,
        observation.is_signed,
        observation.layer.geometry,
        observation.layer.vector_count,
    )


def _fit_range(
    observation: LayerObservation, exact_outputs: Floats, max_activation: float, options: Options
) -> _RangeFit:
    input_scale = max_activation / FULL_VALUE
    activations = quantise(observation.vectors, input_scale, is_signed=observation.is_signed)
    weight_scales = _choose_scales(observation, input_scale, options)
    weights = _round_weights(observation.layer.weights, weight_scales, activations, options)
    output_scales = compute_output_scales(input_scale, weight_scales)
    sums = np.stack([compute_integer_sums(activations[:, group], rows) for group, rows in enumerate(weights)])
    deviations = exact_outputs / output_scales[:, None] - sums  # (groups, vectors, rows)
    mean_deviations = deviations.mean(axis=1)
    residuals = deviations - mean_deviations[:, None] if options.correct_floor else deviations
    error = float(((residuals * output_scales[:, None]) ** 2).mean(axis=1).sum())
    noise = _compute_noise_variance(observation, exact_outputs, weights, output_scales, options)
    return _RangeFit(weights, input_scale, output_scales, mean_deviations, error, noise)


def _compute_noise_variance(
    observation: LayerObservation,
    exact_outputs: Floats,
    weights: Int16s,
    output_scales: Floats,
    options: Options,
) -> float:
    """Return the variance of the noise, summed over all outputs, in units of outputs squared.

    If only rectifiers read an output, its noise is weighted by the share of vectors with a positive output. Clipping
    errors have no weight, because they recur with every similar image.
    """
    readouts = count_weight_readouts(weights, options.hardware).counts * (2 if observation.is_signed else 1)
    bias = 0 if observation.layer.bias is None else observation.layer.bias[:, None]
    positive_share = (exact_outputs + bias > 0).mean(axis=1) if observation.is_rectified else 1.0
    return float((readouts * positive_share * (options.sigma * output_scales.astype(np.float64)) ** 2).sum())


def _choose_scales(observation: LayerObservation, input_scale: float, options: Options) -> Doubles:
    """Return the scales of weights, larger in rows whose bias would otherwise exceed `_MAX_BIAS`."""
    weight_scales = compute_weight_scales(observation.layer.weights, per_channel=options.per_channel)
    if observation.layer.bias is None:
        return weight_scales
    return np.asarray(
        np.maximum(weight_scales, np.abs(observation.layer.bias) / (_MAX_BIAS * 256 * input_scale))
    )


def _round_weights(weights: Floats, scales: Doubles, activations: Int16s, options: Options) -> Int16s:
    if options.rounding == "nearest":
        return quantise_weights(weights, scales)
    return round_weights(make_rounding_table(activations), weights / scales[..., None])
