"""Light through the kit: from what drives four modulators, late and drifting, to the power on the one detector.

The physics are `sim.models.photonics`; here stands what is connected to what.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.models.photonics.decibels import attenuate, watts
from sim.models.photonics.drift import BiasDrift, OrnsteinUhlenbeck, null_v, step
from sim.models.photonics.fibre import FractionalDelay
from sim.models.photonics.modulator import Modulator, transmission
from sim.models.photonics.polarisation import Polariser, step_rad
from sim.models.photonics.polarisation import transmission as polarised
from sim.models.photonics.wavelengths import combine_w
from sim.twins.rfsoc.kit.parameters import KitParameters
from sim.twins.rfsoc.kit.state import Snapshot
from sim.twins.rfsoc.plant import Outputs

Samples = npt.NDArray[np.float64]

ARMS = ((0, 1), (2, 3))
"""Modulators in series, by arm; the arms' light adds on the detector."""

DRIFT_STEP_S = 1.0


def modulator(snapshot: Snapshot, index: int) -> Modulator:
    """Return a modulator as its generator finds it: 0 V stand where the bias, drift and temperature have put it."""
    one = snapshot.parameters.modulators[index]
    return Modulator(
        half_wave_v=one.v_pi,
        null_v=present_null_v(snapshot, index) - one.bias_v,
        extinction_db=one.extinction_db,
        insertion_loss_db=one.insertion_loss_db,
    )


def channel_transmission(detuning_nm: float, width_nm: float) -> float:
    """Return the transmission of a multiplexer's channel: a Gaussian of full width `width_nm` at half power.

    >>> channel_transmission(0.0, 0.4), round(channel_transmission(0.2, 0.4), 12)
    (1.0, 0.5)
    """
    return math.exp(-4.0 * math.log(2.0) * (detuning_nm / width_nm) ** 2)


def line_power_w(snapshot: Snapshot) -> float:
    """Return power of one line of the laser that an arm without modulators would bring to the detector."""
    kit = snapshot.parameters
    if not snapshot.is_lit:
        return 0.0
    on_channel = channel_transmission(kit.wavelength_nm - kit.channel_nm, kit.channel_width_nm)
    aligned = float(polarised(polariser(kit), kit.polarisation_rad + snapshot.walk_rad))
    return watts(kit.laser_dbm) * attenuate(kit.path_loss_db) * on_channel * aligned


def full_product_w(kit: KitParameters) -> float:
    """Return power on the detector with arm 0 wide open and the laser as set, on its channel and aligned.

    10 dBm - 2 dB - 2 x 4 dB = 0 dBm:

    >>> round(full_product_w(KitParameters()), 12)
    0.001
    """
    losses_db = kit.path_loss_db + sum(kit.modulators[index].insertion_loss_db for index in ARMS[0])
    return watts(kit.laser_dbm) * attenuate(losses_db)


def detect_power_w(snapshot: Snapshot, drives: Sequence[Samples]) -> Samples:
    """Return power on the detector; `drives`: four arrays (samples,) or (1,), fractions of full scale.

    Each line passes its own arm and leaks a little through the other, where it comes out in phase or not; the two
    lines add as powers.
    """
    kit = snapshot.parameters
    power_w, leak = line_power_w(snapshot), attenuate(kit.crosstalk_db)
    one_w, other_w = (power_w * _arm(snapshot, drives, pair) for pair in ARMS)
    phase = kit.crosstalk_phase_rad
    return combine_w(one_w, leak * other_w, phase) + combine_w(other_w, leak * one_w, phase)


def _arm(snapshot: Snapshot, drives: Sequence[Samples], pair: tuple[int, int]) -> Samples:
    first, second = (
        transmission(
            modulator(snapshot, index), drives[index] * snapshot.parameters.modulators[index].drive_v
        )
        for index in pair
    )
    return first * second


def tap_power_w(snapshot: Snapshot) -> float:
    """Return power at the tap for the power meter while all generators rest."""
    resting = [np.zeros(1)] * len(snapshot.parameters.modulators)
    return float(detect_power_w(snapshot, resting)[0]) * attenuate(snapshot.parameters.meter_tap_db)


def draw_drift(now: Snapshot, rng: np.random.Generator, *, seconds: float) -> tuple[tuple[float, ...], float]:
    """Drift of each null voltage, in V, and walk of the polarisation, in rad, `seconds` later."""
    kit = now.parameters
    drift_v = tuple(
        step(_wander(kit, index), before_v, seconds, float(rng.standard_normal()))
        for index, before_v in enumerate(now.drift_v)
    )
    return drift_v, step_rad(polariser(kit), now.walk_rad, seconds, float(rng.standard_normal()))


def present_null_v(now: Snapshot, index: int) -> float:
    """Return the bias voltage at which a modulator is darkest now."""
    kit = now.parameters
    drift = BiasDrift(_wander(kit, index), kit.null_v_per_k)
    return null_v(drift, kit.modulators[index].null_v, now.drift_v[index], kit.temperature_c)


def polariser(kit: KitParameters) -> Polariser:
    """Return the polariser that the modulators are, with its drift."""
    return Polariser(kit.polariser_db, kit.polarisation_rad2_s)


def _wander(kit: KitParameters, index: int) -> OrnsteinUhlenbeck:
    return OrnsteinUhlenbeck(kit.drift_v_pi * kit.modulators[index].v_pi, kit.drift_time_s)


def delay_output(
    outputs: Outputs, generator: int, *, rate_hz: float, first: int, count: int, delay_s: float
) -> Samples:
    """Return `count` samples at `rate_hz` from number `first` on, of what `generator` gave `delay_s` earlier.

    Between the converter's samples the voltage moves in a straight line: a step takes one sample (163 ps at
    6.144 GS/s), which is about the rise time of a driver of 2 GHz. Where nothing changes, one sample stands for all.
    """
    own_hz = outputs.rate_hz(generator)
    if own_hz != rate_hz:
        return _resample(outputs, generator, own_hz / rate_hz, first, count, delay_s * own_hz)
    late = FractionalDelay(round(delay_s * rate_hz, 9), "linear")
    samples = outputs.samples(generator, *late.span(first, count))
    return samples[:1] if (samples == samples[0]).all() else late.apply(samples)


def _resample(
    outputs: Outputs, generator: int, ratio: float, first: int, count: int, delay: float
) -> Samples:
    """Return the same for a converter `ratio` times as fast as the time line; `delay` is in its samples."""
    places = (first + np.arange(count)) * ratio - delay
    start = math.floor(places[0])
    samples = outputs.samples(generator, start, math.floor(places[-1]) + 2 - start)
    return np.asarray(np.interp(places - start, np.arange(len(samples)), samples))
