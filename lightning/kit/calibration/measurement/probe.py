"""The pattern of `delay` sent through one modulator of a device, and the trace that comes back.

Imported lazily by the guided run: what it runs is compiled by QICK.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.fringe import Floats
from lightning.kit.calibration.measurement.batch import CHANNELS, READOUT, generator_ticks, processor_ticks
from lightning.kit.calibration.measurement.delay import Arrival, locate, pattern
from lightning.kit.calibration.measurement.transfer import PARTNER
from lightning.optional import needed

GUARD_TICKS = 20
"""The partner opens so long before the pattern, and shuts so long after it."""
MARGIN_TICKS = 250
"""The partner stays open longer by this: fibres of two modulators differ by less."""
START_TICKS = GUARD_TICKS + MARGIN_TICKS
"""Of the pattern, after the partner opened."""
ROUNDS = 16
FULL_SCALE = 32_766
"""Of an envelope's samples."""
LOOKS = 4
"""Windows, one after the other, in which the pattern is looked for: some 2 us each."""
SURE = 0.7
"""Correlation from which the pattern is believed to be found."""


def arrival(
    soc: Any,
    index: int,
    words: tuple[int, int],
    *,
    channels: tuple[int, int, int, int] = CHANNELS,
    readout: int = READOUT,
) -> Arrival:
    """Return when light through modulator `index` answers to its generator, in ticks after the pulse's time.

    `words` open the modulator and its partner. The answer's quality is low when no window shows the pattern.
    """
    from lightning.kit.devices.guard import guarded

    soc = guarded(soc)
    length = int(soc["readouts"][readout]["buf_maxlen"]) - 24
    step = length - pattern().size - GUARD_TICKS
    best = Arrival(0.0, 0.0, 0.0)
    for look in range(LOOKS):
        offset = look * step
        trace = _trace(soc, (channels[index], channels[PARTNER[index]]), words, readout, (offset, length))
        found = locate(trace)
        if found.quality > best.quality:
            began = _rounded(soc, readout, offset + MARGIN_TICKS) - _rounded(soc, readout, START_TICKS)
            best = Arrival(found.ticks + began, found.swing, found.quality)
        if best.quality > SURE:
            break
    return best


def _trace(
    soc: Any, channels: tuple[int, int], words: tuple[int, int], readout: int, window: tuple[int, int]
) -> Floats:
    """Return the counts, mean of all rounds, (length,)."""
    program = _program_class()(soc, {"reps": 1, "rounds": ROUNDS}, (channels, words, window), readout)
    received = np.asarray(program.acquire_decimated(soc, progress=False)[0], dtype=float)
    in_phase: Floats = received.reshape(2, -1)[0]
    return in_phase


def _rounded(soccfg: Any, readout: int, ticks: float) -> float:
    """Return a time in ticks of the readout, as the timed processor can keep it."""
    ratio = float(soccfg["readouts"][readout]["f_output"]) / float(soccfg["tprocs"][0]["f_time"])
    return processor_ticks(soccfg, readout, ticks) * ratio


def envelope(soccfg: Any, readout: int, channel: int) -> npt.NDArray[np.int64]:
    """Return the pattern in samples of this generator, edges at the nearest sample, filled up to whole ticks."""
    per_tick = int(soccfg["gens"][channel]["samps_per_clk"])
    rate = (
        float(soccfg["gens"][channel]["f_fabric"]) * per_tick / float(soccfg["readouts"][readout]["f_output"])
    )
    edges = np.rint(np.arange(pattern().size + 1) * rate).astype(np.int64)
    samples = np.repeat(pattern(), np.diff(edges)) * FULL_SCALE
    return np.pad(samples, (0, -samples.size % per_tick))


_Played = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Generators of modulator and partner; their words; offset and length of the window."""


@lru_cache(maxsize=1)
def _program_class() -> Any:
    """Return QICK's averaging program with a pattern; made when QICK is there."""
    qick = needed("qick", "to compile programs for the board")

    class PatternProgram(qick.AveragerProgram):  # type: ignore[misc, name-defined]  # QICK has no types
        """One generator plays the pattern while its partner holds a modulator open."""

        def __init__(self, soccfg: Any, cfg: dict[str, Any], played: _Played, readout: int) -> None:
            self.played, self.words, (self.offset, self.length) = played
            self.readout = readout
            super().__init__(soccfg, cfg)

        def initialize(self) -> None:
            for channel in self.played:
                self.declare_gen(ch=channel, nqz=1)
            self.declare_readout(ch=self.readout, length=self.length, freq=0)
            first, partner = self.played
            samples = envelope(self.soccfg, self.readout, first)
            held = generator_ticks(self.soccfg, self.readout, partner, pattern().size + 2 * START_TICKS)
            play = {"freq": 0, "phase": 0}
            self.add_envelope(ch=first, name="pattern", idata=samples, qdata=np.zeros_like(samples))
            self.set_pulse_registers(ch=first, style="arb", waveform="pattern", gain=self.words[0], **play)
            self.set_pulse_registers(ch=partner, style="const", length=held, gain=self.words[1], **play)
            self.synci(200)

        def body(self) -> None:
            first, partner = self.played
            self.pulse(ch=partner, t=0)
            self.pulse(ch=first, t=processor_ticks(self.soccfg, self.readout, START_TICKS))
            offset = processor_ticks(self.soccfg, self.readout, self.offset + MARGIN_TICKS)
            self.trigger(adcs=[self.readout], adc_trig_offset=offset, t=0)
            self.wait_all()
            self.sync_all(self.us2cycles(1.0))

    return PatternProgram
