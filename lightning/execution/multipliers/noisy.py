"""Noisy sums with one draw each: the exact integer sum plus a normal number with the variance of all readouts.

The readouts of a sum are independent and normal, so their signed sum is normal too. One draw per sum is therefore
equivalent to one draw per readout:

    mean      = exact sum + noise.mean * (positive readouts - negative readouts)
    variance  = sum of `noise.compute_variance(level)` of all readouts / average

A level is the light of one readout, which is the sum of up to W products of one sign. Signed activations take two
passes, and the second counts as negative. This doubles the readouts and cancels the mean.

The equivalence holds if the converter never clips. `may_clip` returns whether it might. `PerReadoutMultiplier` draws
for every readout of the schedule, which is slow but correct by construction. Its readouts are bipolar, with the
baseline subtracted, and not rounded. It clips them at the converter's full scale and counts them. Tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import cast

import numpy as np
import numpy.typing as npt

from lightning.compiler.datapath.schedule import (
    GroupSchedule,
    count_layer_readouts,
    count_passes,
    schedule_layer,
)
from lightning.compiler.model import CompiledModel, Floats, Hardware, PhotonicLayer
from lightning.errors import OutOfRange
from lightning.execution.interface import Activations, Keys
from lightning.execution.kernels.laws import HIGHEST_POWER, NoiseLaw, compute_light_variance
from lightning.execution.multipliers.exact import CompiledMultiplier
from lightning.execution.noise import Noise, check_noise

Doubles = npt.NDArray[np.float64]

LARGEST_PRODUCT = 254
MAX_READOUT_DEVIATIONS = 6.5
"""A readout exceeds this number of deviations once in 10^10 draws."""


def check_seed(seed: object) -> int:
    """Return the seed of a run's noise. Raise `OutOfRange` unless it is an integer from 0 to 2**64 - 1."""
    if not isinstance(seed, Integral) or not 0 <= int(seed) < 2**64:
        raise OutOfRange(f"the seed is {seed!r}; it must be an integer from 0 to 2**64 - 1")
    return int(seed)


def may_clip(noise: Noise, hardware: Hardware) -> bool:
    """Return whether a readout could exceed the converter's full scale more often than once in 10^10."""
    if not noise.place_properties.per_readout:
        return False
    max_level = float(LARGEST_PRODUCT * hardware.wavelengths)
    max_readout = (
        max_level + abs(noise.mean) + MAX_READOUT_DEVIATIONS * noise.compute_variance(max_level) ** 0.5
    )
    return bool(max_readout > noise.full_scale * hardware.wavelengths)


@dataclass(frozen=True)
class RowNoise:
    """The parts of every row's mean and variance (groups * rows) that do not depend on the light."""

    means: Doubles
    variances: Doubles


def compute_row_noise(layer: PhotonicLayer, noise: Noise, hardware: Hardware) -> RowNoise:
    """Return the noise of a layer's rows, from the number of readouts of each sum."""
    readouts = count_layer_readouts(layer, hardware, sends_zeros=noise.place_properties.sends_zeros)
    means = readouts.net_signs.reshape(-1) * (0.0 if layer.signed else noise.mean)
    readout_counts = readouts.counts.reshape(-1) * count_passes(layer)
    variances = readout_counts * (noise.coefficients[0] / noise.average)
    return RowNoise(means.astype(np.float64), variances.astype(np.float64))


class NoisyMultiplier:
    """`Multiplier` with one draw per sum. The noise of an image depends only on `seed` and its key."""

    def __init__(self, model: CompiledModel, noise: Noise, seed: int = 0) -> None:
        self.noise = check_noise(noise)
        self._hardware = model.hardware
        self._seed = np.uint64(check_seed(seed))
        self._stream_by_layer = assign_streams(model)
        self._exact_multiplier = CompiledMultiplier()
        self._noise_by_layer: dict[str, RowNoise] = {}
        self._readouts_by_layer: dict[str, OrderedReadouts] = {}

    def compute_sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Floats:
        """Return the sums as `Multiplier.compute_sums` does, float32 and not rounded."""
        exact_sums = self._exact_multiplier.compute_sums(layer, activations, keys)
        image_count, position_count, group_count, row_count = exact_sums.shape
        flat_sums = exact_sums.reshape(image_count, position_count, group_count * row_count)
        stream = self._stream_by_layer[layer.name]
        noisy_sums = np.empty(flat_sums.shape, np.float32)
        kernel, noise_arguments = self._select_kernel(layer, activations)
        for image, key in enumerate(keys):
            kernel(flat_sums[image], *noise_arguments[image], self._seed, key, stream, noisy_sums[image])
        return noisy_sums.reshape(exact_sums.shape)

    def _select_kernel(
        self, layer: PhotonicLayer, activations: Activations
    ) -> tuple[Callable[..., None], Sequence[tuple[Doubles, ...]]]:
        """Return the kernel for the noise's law, and its noise arguments for each image."""
        from lightning.execution.kernels.sums import add_constant_noise, add_output_noise, add_varying_noise

        image_count = len(activations)
        if self.noise.law == NoiseLaw.PER_OUTPUT:
            return add_output_noise, [(pack_output_noise(self.noise),)] * image_count
        row_noise = self._find_row_noise(layer)
        if self.noise.law == NoiseLaw.CONSTANT:
            return add_constant_noise, [(row_noise.means, np.sqrt(row_noise.variances))] * image_count
        light_variances = self._compute_light_variances(layer, activations)
        return add_varying_noise, [
            (variances, row_noise.means, row_noise.variances) for variances in light_variances
        ]

    def _find_row_noise(self, layer: PhotonicLayer) -> RowNoise:
        if layer.name not in self._noise_by_layer:
            self._noise_by_layer[layer.name] = compute_row_noise(layer, self.noise, self._hardware)
        return self._noise_by_layer[layer.name]

    def _compute_light_variances(self, layer: PhotonicLayer, activations: Activations) -> Doubles:
        """Return the variance that depends on light, (images, positions, groups * rows)."""
        image_count, position_count = activations.shape[:2]
        vectors = activations.reshape(image_count * position_count, *activations.shape[2:])
        light_powers = np.empty((len(layer.weights), len(vectors), HIGHEST_POWER, layer.weights.shape[1]))
        if self.noise.is_linear or self._hardware.wavelengths == 1:
            self._write_product_powers(layer, vectors, light_powers)
        else:
            self._write_readout_powers(layer, vectors, light_powers)
        variances = (
            compute_light_variance(self.noise.coefficients, light_powers.transpose(2, 1, 0, 3))
            / self.noise.average
        )
        return cast("Doubles", variances.reshape(image_count, position_count, -1))

    def _write_product_powers(
        self, layer: PhotonicLayer, vectors: Activations, light_powers: Doubles
    ) -> None:
        """Write the sums of powers of light, (groups, vectors, powers, rows), if each product has its own readout."""
        from lightning.execution.kernels.sums import write_level_powers

        for group, weights in enumerate(self._exact_multiplier.get_group_weights(layer)):
            write_level_powers(
                np.ascontiguousarray(vectors[:, group]), *weights.kernel_arguments, light_powers[group]
            )

    def _write_readout_powers(
        self, layer: PhotonicLayer, vectors: Activations, light_powers: Doubles
    ) -> None:
        """Write the sums of powers of light, (groups, vectors, powers, rows), if products share readouts."""
        from lightning.execution.kernels.readouts import write_light_powers

        if layer.name not in self._readouts_by_layer:
            self._readouts_by_layer[layer.name] = order_readouts(
                layer, self._hardware, sends_zeros=self.noise.place_properties.sends_zeros
            )
        readouts = self._readouts_by_layer[layer.name]
        write_light_powers(
            vectors,
            readouts.weight_magnitudes,
            readouts.term_indices,
            readouts.signs,
            count_passes(layer),
            light_powers,
        )


def assign_streams(model: CompiledModel) -> dict[str, np.uint64]:
    """Return the number of each photonic layer, in the order of the network. It is the stream of the layer's noise."""
    photonic_names = (node.name for node in model.network.nodes if node.name in model.layers)
    return {name: np.uint64(number) for number, name in enumerate(photonic_names)}


def pack_output_noise(noise: Noise) -> Doubles:
    """Return the mean and the coefficients of the variance, for the kernel `add_output_noise`."""
    return np.array([noise.mean, *(coefficient / noise.average for coefficient in noise.coefficients)])


@dataclass(frozen=True)
class OrderedReadouts:
    """Readouts of all groups in order. Dark places refer to an extra last term of weight 0, which avoids a branch."""

    weight_magnitudes: npt.NDArray[np.int32]
    """(groups, rows, terms + 1) magnitudes of weights."""
    term_indices: npt.NDArray[np.uint32]
    """(groups, rows, readouts, wavelengths) index of the term in every place."""
    signs: npt.NDArray[np.int8]
    """(groups, rows, readouts) sign of each readout in the sum; 0 after a row's last readout."""


def order_readouts(layer: PhotonicLayer, hardware: Hardware, *, sends_zeros: bool) -> OrderedReadouts:
    """Return the readouts of one pass in order. `sends_zeros` includes products whose weight is 0."""
    schedules = schedule_layer(layer, hardware, sends_zeros=sends_zeros)
    max_readout_count = max(schedule.signs.shape[1] for schedule in schedules)
    term_count = layer.weights.shape[2]
    return OrderedReadouts(
        np.pad(np.abs(layer.weights).astype(np.int32), ((0, 0), (0, 0), (0, 1))),
        np.stack([_pad_term_indices(schedule, max_readout_count, term_count) for schedule in schedules]),
        np.stack(
            [
                np.pad(schedule.signs, ((0, 0), (0, max_readout_count - schedule.signs.shape[1])))
                for schedule in schedules
            ]
        ),
    )


def _pad_term_indices(
    schedule: GroupSchedule, max_readout_count: int, dark_term: int
) -> npt.NDArray[np.uint32]:
    terms = np.where(schedule.term_indices < 0, dark_term, schedule.term_indices).astype(np.uint32)
    return np.pad(terms, ((0, 0), (0, max_readout_count - terms.shape[1]), (0, 0)), constant_values=dark_term)


class PerReadoutMultiplier:
    """`Multiplier` with one draw per readout. `clipped` counts samples beyond the converter's full scale."""

    def __init__(self, model: CompiledModel, noise: Noise, seed: int = 0) -> None:
        if not noise.place_properties.per_readout:
            raise OutOfRange(
                f"noise.place {noise.place!r} adds noise to sums, not to single readouts",
                hint="Use per-product noise",
            )
        self.noise = check_noise(noise)
        self.clipped = 0
        self._hardware = model.hardware
        self._seed = np.uint64(seed)
        self._stream_by_layer = assign_streams(model)
        self._readouts_by_layer: dict[str, OrderedReadouts] = {}

    def compute_sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Floats:
        """Return the sums as `Multiplier.compute_sums` does, float32 and not rounded."""
        from lightning.execution.kernels.readouts import write_noisy_sums

        readouts, noise_arguments, stream = (
            self._find_readouts(layer),
            self._pack_noise(),
            self._stream_by_layer[layer.name],
        )
        noisy_sums = np.empty((*activations.shape[:3], layer.weights.shape[1]), np.float32)
        for image, key in enumerate(keys):
            self.clipped += write_noisy_sums(
                activations[image],
                readouts.weight_magnitudes,
                readouts.term_indices,
                readouts.signs,
                count_passes(layer),
                noise_arguments,
                self._seed,
                key,
                stream,
                noisy_sums[image],
            )
        return noisy_sums

    def _pack_noise(self) -> npt.NDArray[np.float64]:
        """Return the noise arguments of the kernel."""
        noise = self.noise
        full_scale = noise.full_scale * self._hardware.wavelengths
        return np.array([noise.mean, noise.average, full_scale, *noise.coefficients])

    def _find_readouts(self, layer: PhotonicLayer) -> OrderedReadouts:
        if layer.name not in self._readouts_by_layer:
            self._readouts_by_layer[layer.name] = order_readouts(
                layer, self._hardware, sends_zeros=self.noise.place_properties.sends_zeros
            )
        return self._readouts_by_layer[layer.name]
