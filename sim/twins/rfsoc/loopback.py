"""The plant of `sim://loopback`: cables from every generator to every readout, with delay, gain, phase and noise.

Signals of generators are treated as band-limited. A windowed sinc interpolates between their samples, so delays can be
fractions of a sample. A phase shifts all frequencies alike (Hilbert transform). It multiplies the level at zero
frequency by its cosine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.models.photonics.fibre import compute_kernel_taps
from sim.twins.rfsoc.plant import Outputs, ReceivedSignal
from sim.twins.rfsoc.signals.track import find_integer_ratio

Samples = npt.NDArray[np.float64]

TAP_COUNT = 32
"""Number of taps of `compute_kernel_taps("sinc")`."""
HILBERT_MARGIN = 4096
"""Additional samples on each side of a phase-shifted section. They keep edge effects of the FFT out of the section."""

DEFAULTS: Mapping[str, float] = {"delay_ns": 200.0, "gain": 0.5, "phase_deg": 0.0}
LIMITS: Mapping[str, tuple[float, float]] = {
    "delay_ns": (0.0, 1e6),
    "gain": (-10.0, 10.0),
    "phase_deg": (-360.0, 360.0),
    "noise_rms": (0.0, 1.0),
}
DEFAULT_NOISE_RMS = 1e-3
"""Default noise as a fraction of full scale: two steps of a 12-bit converter."""


@dataclass(frozen=True, slots=True)
class Cable:
    """Cable from one generator to one readout."""

    delay_ns: float
    gain: float
    phase_deg: float


class LoopbackKnobs(MutableMapping[str, Any]):
    """Knobs of the loopback: `delay_ns`, `gain` and `phase_deg` of all cables or of one.

    `gain_0_1` is the gain of the cable from generator 0 to readout 1. `noise` ("on", "off") and `noise_rms` (fraction
    of full scale) set the noise. Raise `KeyError` for an unknown knob, and `ValueError` for an invalid value.
    `version` increases with every change.
    """

    def __init__(self, generator_count: int, readout_count: int) -> None:
        self._common_settings: dict[str, float] = dict(DEFAULTS)
        self._settings_by_cable: dict[tuple[str, int, int], float] = {}
        self._noise_settings: dict[str, float | str] = {"noise": "on", "noise_rms": DEFAULT_NOISE_RMS}
        self._cable_paths = [(g, r) for g in range(generator_count) for r in range(readout_count)]
        self.version = 0

    @property
    def noise_rms(self) -> float:
        """Standard deviation of the noise of one sample, as a fraction of full scale."""
        return 0.0 if self._noise_settings["noise"] == "off" else float(self._noise_settings["noise_rms"])

    def get_cable(self, generator: int, readout: int) -> Cable:
        """Return the cable between a generator and a readout with its current settings."""
        return Cable(
            *(
                self._settings_by_cable.get((name, generator, readout), self._common_settings[name])
                for name in DEFAULTS
            )
        )

    def __getitem__(self, name: str) -> Any:
        if name in self._noise_settings:
            return self._noise_settings[name]
        quantity, path = self._split_name(name)
        if path is None:
            return self._common_settings[quantity]
        return self._settings_by_cable.get((quantity, *path), self._common_settings[quantity])

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "noise":
            if value not in {"on", "off"}:
                raise ValueError(f"noise must be on or off, not {value!r}")
            self._noise_settings[name] = value
        elif name == "noise_rms":
            self._noise_settings[name] = _parse_number(name, name, value)
        else:
            quantity, path = self._split_name(name)
            if path is None:
                self._common_settings[quantity] = _parse_number(name, quantity, value)
            else:
                self._settings_by_cable[quantity, *path] = _parse_number(name, quantity, value)
        self.version += 1

    def __delitem__(self, name: str) -> None:
        """Reset a knob to its default. The default for one cable is the knob of all cables."""
        defaults = LoopbackKnobs(0, 0)
        quantity, path = ("noise", None) if name in self._noise_settings else self._split_name(name)
        if path is not None:
            self._settings_by_cable.pop((quantity, *path), None)
            self.version += 1
        else:
            self[name] = defaults[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._noise_settings
        yield from self._common_settings
        yield from (f"{name}_{g}_{r}" for name in DEFAULTS for g, r in self._cable_paths)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _split_name(self, name: str) -> tuple[str, tuple[int, int] | None]:
        if name in self._common_settings:
            return name, None
        quantity, _, readout = name.rpartition("_")
        quantity, _, generator = quantity.rpartition("_")
        if quantity in self._common_settings and generator.isdecimal() and readout.isdecimal():
            pair = int(generator), int(readout)
            if pair in self._cable_paths:
                return quantity, pair
        raise KeyError(
            f"the loopback has no knob {name!r}; it has noise, noise_rms, {', '.join(DEFAULTS)}, and, for one cable, "
            f"{', '.join(DEFAULTS)} with two numbers: gain_GENERATOR_READOUT (gain_0_1)"
        )


def _parse_number(name: str, quantity: str, value: Any) -> float:
    low, high = LIMITS[quantity]
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, not {value!r}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} must be {low:g} to {high:g}, not {number:g}")
    return number


class Loopback:
    """The loopback plant: a readout receives the sum of its cables."""

    def __init__(self, generator_count: int, readout_count: int) -> None:
        self._generator_count = generator_count
        self.knobs = LoopbackKnobs(generator_count, readout_count)

    @property
    def version(self) -> int:
        """Number that changes with every change of a knob."""
        return self.knobs.version

    def elapse(self, duration_s: float) -> None:
        """Do nothing, because cables do not drift."""

    def receive(
        self, readout: int, rate_hz: float, first: int, count: int, outputs: Outputs
    ) -> ReceivedSignal:
        """Return the received samples, as `Plant.receive` specifies."""
        level = np.zeros(count)
        for generator in range(self._generator_count):
            cable = self.knobs.get_cable(generator, readout)
            if cable.gain:
                level += cable.gain * compute_transmitted_samples(
                    outputs, generator, cable, rate_hz, first, count
                )
        return ReceivedSignal(level, np.full(count, self.knobs.noise_rms), 0.0)


def compute_transmitted_samples(
    outputs: Outputs, generator: int, cable: Cable, rate_hz: float, first: int, count: int
) -> Samples:
    """Return `count` samples of a generator's signal with the delay and phase of a cable, but without its gain."""
    generator_hz = outputs.get_rate_hz(generator)
    # The generator sends numerator / denominator samples for each received sample.
    numerator, denominator = find_integer_ratio(generator_hz / rate_hz)
    position = first * numerator / denominator - cable.delay_ns * 1e-9 * generator_hz
    start = math.floor(position) - TAP_COUNT
    length = 2 * TAP_COUNT + math.ceil((count + 1) * numerator / denominator) + 1
    samples = _shift_phase(outputs, generator, math.radians(cable.phase_deg), start, length)
    if (samples == samples[0]).all():
        return np.full(count, samples[0])
    return _interpolate(samples, position - start, numerator, denominator, count)


def _shift_phase(outputs: Outputs, generator: int, phase_rad: float, start: int, count: int) -> Samples:
    if phase_rad == 0.0:
        return outputs.read_samples(generator, start, count)
    padded_samples = outputs.read_samples(generator, start - HILBERT_MARGIN, count + 2 * HILBERT_MARGIN)
    spectrum = np.fft.rfft(padded_samples)
    spectrum[1:] *= np.exp(1j * phase_rad)
    spectrum[0] *= math.cos(phase_rad)
    return np.fft.irfft(spectrum, len(padded_samples))[HILBERT_MARGIN : HILBERT_MARGIN + count]


def _interpolate(samples: Samples, position: float, numerator: int, denominator: int, count: int) -> Samples:
    """Return `count` values: the first at `position`, and each later one `numerator / denominator` samples further.

    Because `denominator` values span `numerator` whole samples, every `denominator`-th value has the same fractional
    position. These values share one filter.
    """
    values = np.empty(count)
    sections = np.lib.stride_tricks.sliding_window_view(samples, TAP_COUNT)
    for first in range(min(denominator, count)):
        value_position = position + first * numerator / denominator
        whole_position = math.floor(value_position)
        first_sections = sections[whole_position - TAP_COUNT // 2 + 1 :: numerator]
        value_sections = first_sections[: len(range(first, count, denominator))]
        values[first::denominator] = value_sections @ make_interpolation_taps(
            round(value_position - whole_position, 9)
        )
    return values


@lru_cache(maxsize=256)
def make_interpolation_taps(delay_fraction: float) -> Samples:
    """Return the taps that interpolate `delay_fraction` samples after tap TAP_COUNT / 2 - 1.

    They are a Kaiser-windowed sinc with a sum of 1.

    >>> [round(abs(tap), 6) for tap in make_interpolation_taps(0.0)[14:18].tolist()]
    [0.0, 1.0, 0.0, 0.0]
    """
    return compute_kernel_taps("sinc", delay_fraction)
