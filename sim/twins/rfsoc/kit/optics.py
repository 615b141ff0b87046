"""Light in the kit: from the drive voltages of four modulators, with delays and drift, to the power on the detector.

This module connects the physical models of `sim.models.photonics`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.models.photonics.decibels import convert_dbm_to_watts, convert_loss_to_transmission
from sim.models.photonics.drift import BiasDrift, OrnsteinUhlenbeck, advance_process, compute_null_v
from sim.models.photonics.fibre import FractionalDelay
from sim.models.photonics.modulator import Modulator, compute_transmission
from sim.models.photonics.polarisation import Polariser, rotate_polarisation
from sim.models.photonics.polarisation import compute_transmission as compute_polariser_transmission
from sim.models.photonics.wavelengths import combine_powers_w
from sim.twins.rfsoc.kit.parameters import KitParameters
from sim.twins.rfsoc.kit.state import Snapshot
from sim.twins.rfsoc.plant import Outputs

Samples = npt.NDArray[np.float64]

ARMS = ((0, 1), (2, 3))
"""Numbers of the modulators in each arm, which are in series. The light of both arms adds on the detector."""

DRIFT_STEP_S = 1.0


def make_modulator(snapshot: Snapshot, index: int) -> Modulator:
    """Return a modulator for drive voltages of its generator. The null voltage includes bias, drift and temperature."""
    parameters = snapshot.parameters.modulators[index]
    return Modulator(
        half_wave_v=parameters.v_pi,
        null_v=compute_present_null_v(snapshot, index) - parameters.bias_v,
        extinction_db=parameters.extinction_db,
        insertion_loss_db=parameters.insertion_loss_db,
    )


def compute_channel_transmission(detuning_nm: float, width_nm: float) -> float:
    """Return the transmission of a multiplexer channel: a Gaussian with full width `width_nm` at half power.

    >>> compute_channel_transmission(0.0, 0.4), round(compute_channel_transmission(0.2, 0.4), 12)
    (1.0, 0.5)
    """
    return math.exp(-4.0 * math.log(2.0) * (detuning_nm / width_nm) ** 2)


def compute_line_power_w(snapshot: Snapshot) -> float:
    """Return the power in W on the detector of one line of the laser, if its arm had no modulators."""
    kit = snapshot.parameters
    if not snapshot.is_lit:
        return 0.0
    channel_share = compute_channel_transmission(kit.wavelength_nm - kit.channel_nm, kit.channel_width_nm)
    alignment = float(
        compute_polariser_transmission(
            make_polariser(kit), kit.polarisation_rad + snapshot.polarisation_drift_rad
        )
    )
    return (
        convert_dbm_to_watts(kit.laser_dbm)
        * convert_loss_to_transmission(kit.path_loss_db)
        * channel_share
        * alignment
    )


def compute_full_product_w(kit: KitParameters) -> float:
    """Return the power in W on the detector if arm 0 is fully open, and the laser is on, tuned and aligned.

    The default is 10 dBm - 2 dB - 2 x 4 dB = 0 dBm:

    >>> round(compute_full_product_w(KitParameters()), 12)
    0.001
    """
    loss_db = kit.path_loss_db + sum(kit.modulators[index].insertion_loss_db for index in ARMS[0])
    return convert_dbm_to_watts(kit.laser_dbm) * convert_loss_to_transmission(loss_db)


def compute_detector_power_w(snapshot: Snapshot, drives: Sequence[Samples]) -> Samples:
    """Return the power in W on the detector. `drives` are four arrays (samples,) or (1,), as fractions of full scale.

    Each line of the laser passes through its own arm, and leaks a little through the other arm, with a phase difference
    at the output. The powers of the two lines add.
    """
    kit = snapshot.parameters
    power_w, leak_fraction = compute_line_power_w(snapshot), convert_loss_to_transmission(kit.crosstalk_db)
    arm0_w, arm1_w = (
        power_w * _compute_arm_transmission(snapshot, drives, modulator_pair) for modulator_pair in ARMS
    )
    phase = kit.crosstalk_phase_rad
    return combine_powers_w(arm0_w, leak_fraction * arm1_w, phase) + combine_powers_w(
        arm1_w, leak_fraction * arm0_w, phase
    )


def _compute_arm_transmission(
    snapshot: Snapshot, drives: Sequence[Samples], modulator_pair: tuple[int, int]
) -> Samples:
    first, second = (
        compute_transmission(
            make_modulator(snapshot, index), drives[index] * snapshot.parameters.modulators[index].drive_v
        )
        for index in modulator_pair
    )
    return first * second


def compute_tap_power_w(snapshot: Snapshot) -> float:
    """Return the power in W at the tap of the power meter while all generators are idle."""
    idle_drives = [np.zeros(1)] * len(snapshot.parameters.modulators)
    return float(compute_detector_power_w(snapshot, idle_drives)[0]) * convert_loss_to_transmission(
        snapshot.parameters.meter_tap_db
    )


def draw_drift(
    snapshot: Snapshot, rng: np.random.Generator, *, duration_s: float
) -> tuple[tuple[float, ...], float]:
    """Return the drift of each null voltage in V and of the polarisation in rad, `duration_s` later, at random."""
    kit = snapshot.parameters
    drift_v = tuple(
        advance_process(_make_drift_process(kit, index), before_v, duration_s, float(rng.standard_normal()))
        for index, before_v in enumerate(snapshot.drift_v)
    )
    return drift_v, rotate_polarisation(
        make_polariser(kit), snapshot.polarisation_drift_rad, duration_s, float(rng.standard_normal())
    )


def compute_present_null_v(snapshot: Snapshot, index: int) -> float:
    """Return the bias voltage in V at which a modulator now transmits least."""
    kit = snapshot.parameters
    drift = BiasDrift(_make_drift_process(kit, index), kit.null_v_per_k)
    return compute_null_v(drift, kit.modulators[index].null_v, snapshot.drift_v[index], kit.temperature_c)


def make_polariser(kit: KitParameters) -> Polariser:
    """Return the polariser that the modulators form, with its drift."""
    return Polariser(kit.polariser_db, kit.polarisation_rad2_s)


def _make_drift_process(kit: KitParameters, index: int) -> OrnsteinUhlenbeck:
    return OrnsteinUhlenbeck(kit.drift_v_pi * kit.modulators[index].v_pi, kit.drift_time_s)


def delay_output(
    outputs: Outputs, generator: int, *, rate_hz: float, first: int, count: int, delay_s: float
) -> Samples:
    """Return `count` samples of a generator's signal at `rate_hz` from number `first`, delayed by `delay_s`.

    The voltage is interpolated linearly between samples. A step therefore takes one sample (163 ps at 6.144 GS/s),
    which is about the rise time of a 2 GHz driver. For a constant signal, the result may be a single sample.
    """
    generator_hz = outputs.get_rate_hz(generator)
    if generator_hz != rate_hz:
        return _resample(outputs, generator, generator_hz / rate_hz, first, count, delay_s * generator_hz)
    fractional_delay = FractionalDelay(round(delay_s * rate_hz, 9), "linear")
    samples = outputs.read_samples(generator, *fractional_delay.find_input_span(first, count))
    return samples[:1] if (samples == samples[0]).all() else fractional_delay.apply(samples)


def _resample(
    outputs: Outputs, generator: int, ratio: float, first: int, count: int, delay_samples: float
) -> Samples:
    """Return the result of `delay_output` for a generator with `ratio` times the rate; the delay is in its samples."""
    positions = (first + np.arange(count)) * ratio - delay_samples
    start = math.floor(positions[0])
    samples = outputs.read_samples(generator, start, math.floor(positions[-1]) + 2 - start)
    return np.asarray(np.interp(positions - start, np.arange(len(samples)), samples))
