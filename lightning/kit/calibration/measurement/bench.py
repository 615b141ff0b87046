"""The device under calibration, and the results of the steps of the guided run so far."""

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
from lightning.kit.calibration.measurement.batch import (
    DEFAULT_CHANNELS,
    READOUT,
    TableReader,
    Window,
    check_firmware,
)
from lightning.kit.calibration.measurement.delay import Arrival
from lightning.kit.calibration.measurement.transfer import Sweep
from lightning.kit.calibration.noise import NoiseModel

DEFAULT_FULL_SCALE = 8_449.0
"""Full scale of a waveform in counts, used until the saturation step measures it: 32767, halved by the readout's
oscillator, times 270382/2**19 (the gain of the filter of `axis_readout_v2`)."""


class Instruments(NamedTuple):
    """Instruments of a bench. The result of `lightning.kit.instruments.open_bench` has the same attributes."""

    laser: Any = None
    bias: Any = None
    meter: Any = None


@dataclass(slots=True)
class Bench:
    """The device under calibration, and the results so far.

    Raise `ProgramError` or `WrongChannel` for a device whose firmware cannot be calibrated.
    """

    soc: Any
    instruments: Any = field(default_factory=Instruments)
    channels: tuple[int, int, int, int] = DEFAULT_CHANNELS
    readout: int = READOUT
    shots: int = 4
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    turn_paddles: Callable[[Callable[[], float]], None] | None = None
    """Turns the polarisation controller; its argument is a function that reads the light."""
    window: Window = field(default_factory=Window)
    full_scale: float = DEFAULT_FULL_SCALE
    idle_level: float = 0.0
    arrivals: tuple[Arrival, ...] = ()
    rough_curves: tuple[Fringe, ...] = ()
    sweeps: dict[int, Sweep] = field(default_factory=dict)
    encoders: pairs.Encoders | None = None
    decoder: Decoder | None = None
    noise: NoiseModel | None = None
    raw_data: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    conditions: dict[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the firmware now: QICK would report a mismatch only during a step."""
        check_firmware(self.soc, self.channels, self.readout)

    def make_reader(self, length: int | None = None) -> TableReader:
        """Return a reader of rows on this device, with windows of `length` decimated samples."""
        window = (
            Window.for_arrival(self.arrival_ticks, length=length or self.window.length)
            if self.arrivals
            else self.window
        )
        return TableReader(self.soc, channels=self.channels, readout=self.readout, window=window)

    @property
    def arrival_ticks(self) -> tuple[float, float, float, float]:
        """Arrival of each modulator's light, in ticks after the pulses."""
        ticks_0, ticks_1, ticks_2, ticks_3 = (arrival.ticks for arrival in self.arrivals)
        return ticks_0, ticks_1, ticks_2, ticks_3


def clip_word(setting: float) -> int:
    """Return the nearest gain word that a generator accepts, with room for the dither, which adds up to 3."""
    return round(min(max(setting, -32766), 32763))


def make_outcome(step: str, passed: bool, figure: str, limit: str, hint: str) -> Outcome:
    """Return the outcome of a step, without the hint if it passed."""
    return Outcome(step, bool(passed), figure, limit, "" if passed else hint)
