"""The kit's program for the timed processor of version 2 (`qick_processor`).

The shot is that of version 1. Lengths and times are converted from ticks to microseconds, because version 2 does not
accept ticks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from qick.asm_v2 import AveragerProgramV2

from lightning.kit.programs import Floats
from lightning.kit.settings import Settings

SETTLE_US = 1.0
"""Time before the first shot, as QICK recommends."""


class ShotProgram(AveragerProgramV2):  # type: ignore[misc]
    """Constant pulses on four generators at once, and one window of the readouts."""

    def _initialize(self, cfg: dict[str, Any]) -> None:
        settings: Settings = cfg["settings"]
        for channel, word in cfg["words"].items():
            self.declare_gen(ch=channel, nqz=1)
            self.add_pulse(
                ch=channel,
                name=f"operand {channel}",
                style="const",
                freq=settings.pulse_freq_mhz,
                phase=settings.phase_deg,
                gain=word / self.soccfg.get_maxv(channel),
                length=self.cycles2us(settings.length, gen_ch=channel),
            )

        for readout in settings.readouts:
            self._declare_readout(readout, settings)

    def _declare_readout(self, readout: int, settings: Settings) -> None:
        length = self.cycles2us(settings.readout_length, ro_ch=readout)
        freq, gen_ch = settings.pulse_freq_mhz, next(iter(self.cfg["words"]))
        if "tproc_ctrl" not in self.soccfg["readouts"][readout]:
            self.declare_readout(ch=readout, length=length, freq=freq, gen_ch=gen_ch)
            return
        self.declare_readout(ch=readout, length=length)
        self.add_readoutconfig(ch=readout, name=f"window {readout}", freq=freq, gen_ch=gen_ch)
        self.send_readoutconfig(ch=readout, name=f"window {readout}", t=0)

    def _body(self, cfg: dict[str, Any]) -> None:
        settings: Settings = cfg["settings"]
        for channel in cfg["words"]:
            self.pulse(ch=channel, name=f"operand {channel}", t=0)
        self.trigger(ros=list(settings.readouts), t=self.cycles2us(settings.adc_trig_offset))


class ShotV2:
    """`CompiledProgram` for version 2."""

    def __init__(self, soccfg: Any, settings: Settings, words: dict[int, int]) -> None:
        self.settings = settings
        self.program = ShotProgram(
            soccfg,
            reps=settings.reps,
            final_delay=settings.relax_delay_us,
            initial_delay=SETTLE_US,
            cfg={"settings": settings, "words": words},
        )

    def acquire_decimated(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return one array (reps, 2, samples) per readout, averaged over the runs."""
        readouts = self.program.acquire_decimated(soc, rounds=self.settings.soft_avgs, progress=progress)
        return [self._split_by_shot(readout) for readout in readouts]

    def rounds(self) -> list[list[Floats]]:
        """Return the runs of the last acquisition, before averaging."""
        return [[self._split_by_shot(readout) for readout in run] for run in self.program.get_rounds()]

    def acquire(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return the mean I and Q of the window in counts, over all shots and runs, (2,) per readout."""
        means = self.program.acquire(soc, rounds=self.settings.soft_avgs, progress=progress)
        return [np.asarray(mean, dtype=float).reshape(2) for mean in means]

    def duration_s(self) -> float:
        """Return a lower bound for the duration of one run: windows, pulses and pauses without instructions."""
        settings = self.settings
        window = self.program.cycles2us(settings.adc_trig_offset) + max(
            self.program.cycles2us(settings.readout_length, ro_ch=readout) for readout in settings.readouts
        )
        pulse = max(
            self.program.cycles2us(settings.length, gen_ch=channel) for channel in self.program.cfg["words"]
        )
        shot = max(window, pulse) + settings.relax_delay_us
        return float(SETTLE_US + settings.reps * shot) * 1e-6

    def _split_by_shot(self, data: Floats) -> Floats:
        shots = np.asarray(data, dtype=float).reshape(self.settings.reps, self.settings.readout_length, 2)
        return np.moveaxis(shots, -1, -2)


def compile_shot(soccfg: Any, settings: Settings, words: dict[int, int]) -> ShotV2:
    """Compile one shot."""
    return ShotV2(soccfg, settings, words)
