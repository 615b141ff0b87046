"""Waveforms: the samples of an acquisition, and its origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lightning.kit.config import Configuration
from lightning.kit.devices.identity import DeviceIdentity
from lightning.kit.settings import Settings

if TYPE_CHECKING:
    from lightning.kit.calibration import Calibration

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Origin:
    """Settings, device and timing of the acquisition of a waveform."""

    settings: Settings
    words: tuple[int, ...]
    """Gain word that drove each modulator."""
    device: DeviceIdentity
    calibration: Calibration | None
    """The calibration that chose the words; None if the words were linear in the values."""
    tick_ns: tuple[float, ...]
    """Time between two samples, per readout."""
    trigger_ns: float
    """Time of the first sample, from the start of the pulses."""
    pulse_ns: float
    """Length of the pulses."""
    rounds: Sequence[Sequence[Floats]] = field(default=(), repr=False)
    """Every run of the program before averaging: per run, per readout, (reps, 2, samples)."""


class Waveform(list[Floats]):
    """One array (reps, 2, samples) per readout: I and Q in counts of the converter, averaged over the runs.

    It is a list, as in the library published for the kit, and has an `origin`.
    """

    def __init__(self, readouts: Sequence[Floats], origin: Origin) -> None:
        super().__init__(readouts)
        self.origin = origin

    @property
    def config(self) -> Configuration:
        """A copy of the configuration of the acquisition."""
        return Configuration(self.origin.settings)

    @property
    def device(self) -> DeviceIdentity:
        """The device that measured it."""
        return self.origin.device

    @property
    def calibration(self) -> Calibration | None:
        """The calibration that chose the gain words. It also decodes this waveform."""
        return self.origin.calibration

    def time_us(self, readout: int = 0) -> Floats:
        """Return the sample times (samples,) of the readout with this list index, since the start of the pulses."""
        ticks = np.arange(self[readout].shape[-1])
        return np.asarray((self.origin.trigger_ns + ticks * self.origin.tick_ns[readout]) * 1e-3)

    def __reduce__(self) -> tuple[Any, ...]:
        return Waveform, (list(self), self.origin)

    def __repr__(self) -> str:
        """Return the device, the operands and the shapes."""
        operands = [
            word if value is None else value
            for value, word in zip(self.origin.settings.values, self.origin.words, strict=True)
        ]
        shapes = ", ".join(str(trace.shape) for trace in self)
        return f"<Waveform of {self.device.label}: operands {operands}, {shapes}>"
