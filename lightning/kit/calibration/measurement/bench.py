"""A device on its way to a calibration, and what the steps of the guided run have found out about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.decoder import Decoder
from lightning.kit.calibration.document import Outcome
from lightning.kit.calibration.fringe import Fringe
from lightning.kit.calibration.measurement import pairs
from lightning.kit.calibration.measurement.batch import CHANNELS, READOUT, Reader, Window, check_firmware
from lightning.kit.calibration.measurement.delay import Arrival
from lightning.kit.calibration.measurement.transfer import Sweep
from lightning.kit.calibration.noise import NoiseModel

CONVERTER = 8_449.0
"""Counts of a waveform at the end of the converter's range, until the saturation step has seen it: 32767, halved by
the readout's oscillator, times 270382/2**19, the gain of the filter of `axis_readout_v2`."""


class Instruments(NamedTuple):
    """Instruments of a bench, with the board; `lightning.kit.instruments.open_bench` gives the like."""

    laser: Any = None
    bias: Any = None
    meter: Any = None


@dataclass(slots=True)
class Bench:
    """A device on its way to a calibration, and what has been found out about it.

    Raises `ProgramError` or `WrongChannel` for a device whose firmware cannot be calibrated.
    """

    soc: Any
    instruments: Any = field(default_factory=Instruments)
    channels: tuple[int, int, int, int] = CHANNELS
    readout: int = READOUT
    shots: int = 4
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    turn_paddles: Callable[[Callable[[], float]], None] | None = None
    """Asked to turn the polarisation controller; it is given a function that reads the light."""
    window: Window = field(default_factory=Window)
    full_scale: float = CONVERTER
    idle: float = 0.0
    arrivals: tuple[Arrival, ...] = ()
    rough: tuple[Fringe, ...] = ()
    sweeps: dict[int, Sweep] = field(default_factory=dict)
    coded: pairs.Encoders | None = None
    decoder: Decoder | None = None
    noise: NoiseModel | None = None
    raw: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    conditions: dict[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Say at once what this firmware cannot do; QICK would say it in the middle."""
        check_firmware(self.soc, self.channels, self.readout)

    def reader(self, length: int | None = None) -> Reader:
        """Return the rows on this device, in windows of `length` decimated samples."""
        window = (
            Window.after(self.ticks, length=length or self.window.length) if self.arrivals else self.window
        )
        return Reader(self.soc, channels=self.channels, readout=self.readout, window=window)

    @property
    def ticks(self) -> tuple[float, float, float, float]:
        """Arrival of each modulator's light, after the time of the pulses."""
        one, two, three, four = (arrival.ticks for arrival in self.arrivals)
        return one, two, three, four


def word(setting: float) -> int:
    """Return the nearest word that a generator takes, room for a dither left."""
    return round(min(max(setting, -32766), 32763))


def judge(step: str, passed: bool, figure: str, limit: str, hint: str) -> Outcome:
    """Return the outcome of a step; a hint is for what failed."""
    return Outcome(step, bool(passed), figure, limit, "" if passed else hint)
