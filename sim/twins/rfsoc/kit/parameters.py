"""Parameters and settings of the simulated photonic kit, with units.

In a real kit, these values exist but are unknown. Tests and operators set them here, but a calibration must never read
them. Each field is a knob (`knobs`) of the same name. Names of a modulator's knobs end with the number of the modulator
(`v_pi_2`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

MODULATOR_COUNT = 4
"""Number of modulators. Modulators 0 and 1 are in series in arm 0, 2 and 3 in arm 1."""

HALF_WAVE_WORD = 20000
"""Gain word with which a generator drives its modulator by one half-wave voltage (factory setting)."""

FULL_SCALE_WORD = 32766
"""Gain word with which a generator drives its converter to full scale."""

Noise = Literal["on", "off", "constant"]


def _make_knob_field(default: Any, description: str, low: float = -math.inf, high: float = math.inf) -> Any:
    return field(default=default, metadata=_make_metadata(description, low, high))


def _make_metadata(description: str, low: float = -math.inf, high: float = math.inf) -> dict[str, Any]:
    return {"about": description, "low": low, "high": high}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulatorParameters:
    """Parameters of a Mach-Zehnder intensity modulator with its driver amplifier, bias and fibre."""

    v_pi: float = _make_knob_field(5.0, "half-wave voltage in volts", 0.1, 50.0)
    null_v: float = _make_knob_field(
        3.0, "bias voltage at which the modulator is darkest, at 25 °C and before drift", -50.0, 50.0
    )
    bias_v: float = _make_knob_field(3.0, "bias voltage that the supply gives the modulator", -50.0, 50.0)
    extinction_db: float = _make_knob_field(
        27.0, "ratio of the modulator's brightest to its darkest light", 1.0, 80.0
    )
    insertion_loss_db: float = _make_knob_field(4.0, "loss of the modulator at its brightest", 0.0, 60.0)
    drive_v: float = _make_knob_field(
        5.0 * FULL_SCALE_WORD / HALF_WAVE_WORD,
        "volts at the modulator for full scale of the generator",
        0.0,
        100.0,
    )
    skew_ns: float = _make_knob_field(
        0.0, "delay from the modulator to the detector beyond `delay_ns`", -100.0, 100.0
    )


_SKEWS_NS = (0.0, 0.41, 0.13, 0.57)


@dataclass(frozen=True, slots=True, kw_only=True)
class KitParameters:
    """Parameters of the whole kit, from the laser to the input of the analogue-to-digital converter.

    With the defaults, two open modulators pass 10 dBm - 2 dB - 2 x 4 dB = 0 dBm = 1 mW to the detector. That is 1 mA,
    0.47 V, and 0.94 of the converter's full scale of 0.5 V. The sum of two full products would be 1.88, and is clipped.
    To add two products without clipping, limit one modulator of each arm to half of its full transmission.
    """

    modulators: tuple[ModulatorParameters, ...] = field(
        default_factory=lambda: tuple(ModulatorParameters(skew_ns=skew_ns) for skew_ns in _SKEWS_NS)
    )
    laser: bool = _make_knob_field(True, "whether the laser's output is on")
    shutter_open: bool = _make_knob_field(True, "whether the laser's shutter is open")
    laser_dbm: float = _make_knob_field(10.0, "power of each of the two lines", -60.0, 20.0)
    laser_dropped: bool = _make_knob_field(
        False, "a fault: the laser emits no light, whatever its settings are"
    )
    wavelength_nm: float = _make_knob_field(
        1550.0, "wavelength of line 0; line 1 is 0.8 nm above", 1200.0, 1700.0
    )
    channel_nm: float = _make_knob_field(
        1550.0, "centre of the multiplexer's channel of line 0", 1200.0, 1700.0
    )
    channel_width_nm: float = _make_knob_field(
        0.4, "full width of a channel at half its transmission", 0.01, 100.0
    )
    path_loss_db: float = _make_knob_field(
        2.0, "loss of fibres, couplers and multiplexers in an arm", 0.0, 100.0
    )
    polarisation_rad: float = _make_knob_field(0.0, "angle between the light and the modulators' axis")
    polariser_db: float = _make_knob_field(30.0, "extinction of the modulators' polarisers", 0.0, 100.0)
    crosstalk_db: float = _make_knob_field(
        60.0, "isolation of an arm from the other line's light", 0.0, 200.0
    )
    crosstalk_phase_rad: float = _make_knob_field(
        math.pi / 2,
        "phase between a line's light in its own arm and its light that leaked through the other arm",
    )
    delay_ns: float = _make_knob_field(
        380.0,
        "time from the moment when a sample leaves a generator until its light reaches a readout",
        0.0,
        1e5,
    )
    responsivity_a_w: float = _make_knob_field(1.0, "responsivity of the detector", 0.0, 2.0)
    dark_current_a: float = _make_knob_field(5e-9, "dark current of the detector", 0.0, 1e-3)
    bandwidth_hz: float = _make_knob_field(
        4e9, "noise-equivalent bandwidth of the receiver, one pole", 5e7, 1e12
    )
    rin_db_hz: float = _make_knob_field(-140.0, "relative intensity noise of the laser", -250.0, -60.0)
    thermal_a_rthz: float = _make_knob_field(20e-12, "input current noise of the receiver", 0.0, 1e-6)
    transimpedance_ohm: float = _make_knob_field(
        470.0,
        "volts at the converter per ampere of the detector's current, including the amplifier",
        0.0,
        1e6,
    )
    saturation_v: float = _make_knob_field(
        math.inf, "voltage at which the receiver's amplifier saturates; inf: a linear amplifier", 1e-3
    )
    offset_v: float = _make_knob_field(0.01, "volts at the converter's input without any light", -10.0, 10.0)
    adc_full_scale_v: float = _make_knob_field(0.5, "volts of the converter's largest code", 1e-3, 100.0)
    adc_enob: float = _make_knob_field(
        10.1,
        "effective bits of the converter over its range from -1 to 1; they determine its noise",
        1.0,
        24.0,
    )
    jitter_s: float = _make_knob_field(
        100e-15, "standard deviation of the converter's sampling instant", 0.0, 1e-9
    )
    noise: Noise = field(
        default="on",
        metadata=_make_metadata(
            "on: physical noise; off: no noise; constant: noise of `noise_lsb`, however bright the light is"
        ),
    )
    noise_lsb: float = _make_knob_field(
        1.6569279459762971,
        "standard deviation of the noise if `noise` is constant, in units of 1/255 of a full product",
        0.0,
        255.0,
    )
    drift: bool = _make_knob_field(True, "whether null voltages and polarisation drift with device time")
    drift_v_pi: float = _make_knob_field(
        0.01, "long-run standard deviation of a null voltage, as a fraction of V_pi", 0.0, 10.0
    )
    drift_time_s: float = _make_knob_field(86400.0, "correlation time of the drift", 1e-3, 1e12)
    polarisation_rad2_s: float = _make_knob_field(
        1e-9, "diffusion coefficient of the polarisation's angle", 0.0, 10.0
    )
    temperature_c: float = _make_knob_field(25.0, "temperature of the modulators", -50.0, 150.0)
    null_v_per_k: float = _make_knob_field(0.005, "shift of every null voltage with temperature", -10.0, 10.0)
    meter_tap_db: float = _make_knob_field(
        20.0, "loss of the tap in front of the optical power meter", 0.0, 100.0
    )
    seed: int = 1

    def with_modulator(self, index: int, **changes: float) -> KitParameters:
        """Return the parameters, with `changes` applied to one modulator."""
        changed_modulators = list(self.modulators)
        changed_modulators[index] = replace(changed_modulators[index], **changes)
        return replace(self, modulators=tuple(changed_modulators))


def vary_modulators(parameters: KitParameters, seed: int) -> KitParameters:
    """Return the parameters with random modulators. They vary within the tolerances of a data sheet.

    Half-wave voltage: normal, 4 %. Null voltage: normal around the bias, 3 % of V_pi. Extinction: uniform, 25 to 30 dB.
    Insertion loss: uniform, 4.0 to 4.6 dB. Skew: uniform, 0 to 0.6 ns. Normal deviates are clipped at 2.5 sigma.
    """
    rng = np.random.default_rng((seed, 0x6B6974))
    return replace(
        parameters, modulators=tuple(_vary_modulator(nominal, rng) for nominal in parameters.modulators)
    )


def _vary_modulator(nominal: ModulatorParameters, rng: np.random.Generator) -> ModulatorParameters:
    v_pi = nominal.v_pi * (1 + 0.04 * float(np.clip(rng.standard_normal(), -2.5, 2.5)))
    return replace(
        nominal,
        v_pi=v_pi,
        null_v=nominal.bias_v + 0.03 * v_pi * float(np.clip(rng.standard_normal(), -2.5, 2.5)),
        extinction_db=float(rng.uniform(25.0, 30.0)),
        insertion_loss_db=float(rng.uniform(4.0, 4.6)),
        skew_ns=float(rng.uniform(0.0, 0.6)),
    )
