"""The kit's program for the timed processor of version 2 (`qick_processor`).

A shot has the same pulses and the same window as in the program for version 1. Lengths and times are converted from
ticks to microseconds, because version 2 does not accept ticks.
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
        length_us = self.cycles2us(settings.readout_length, ro_ch=readout)
        freq, gen_ch = settings.pulse_freq_mhz, next(iter(self.cfg["words"]))
        if "tproc_ctrl" not in self.soccfg["readouts"][readout]:
            self.declare_readout(ch=readout, length=length_us, freq=freq, gen_ch=gen_ch)
            return
        self.declare_readout(ch=readout, length=length_us)
        self.add_readoutconfig(ch=readout, name=f"window {readout}", freq=freq, gen_ch=gen_ch)
        self.send_readoutconfig(ch=readout, name=f"window {readout}", t=0)

    def _body(self, cfg: dict[str, Any]) -> None:
        settings: Settings = cfg["settings"]
        for channel in cfg["words"]:
            self.pulse(ch=channel, name=f"operand {channel}", t=0)
        self.trigger(ros=list(settings.readouts), t=self.cycles2us(settings.adc_trig_offset))


class ProgramV2:
    """`CompiledProgram` for version 2."""

    def __init__(self, soccfg: Any, settings: Settings, word_by_channel: dict[int, int]) -> None:
        self.settings = settings
        self.program = ShotProgram(
            soccfg,
            reps=settings.reps,
            final_delay=settings.relax_delay_us,
            initial_delay=SETTLE_US,
            cfg={"settings": settings, "words": word_by_channel},
        )

    def acquire_decimated(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return one array (reps, 2, samples) per readout, averaged over the runs."""
        readouts = self.program.acquire_decimated(soc, rounds=self.settings.soft_avgs, progress=progress)
        return [self._split_by_shot(readout) for readout in readouts]

    def get_rounds(self) -> list[list[Floats]]:
        """Return the runs of the last acquisition, before averaging."""
        return [[self._split_by_shot(readout) for readout in run] for run in self.program.get_rounds()]

    def acquire(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return one array (2,) per readout: I and Q in counts, averaged over the window, all shots and all runs."""
        means = self.program.acquire(soc, rounds=self.settings.soft_avgs, progress=progress)
        return [np.asarray(mean, dtype=float).reshape(2) for mean in means]

    def compute_duration_s(self) -> float:
        """Return a lower bound for the duration of one run. It includes windows, pulses and pauses, no instructions."""
        settings = self.settings
        window_us = self.program.cycles2us(settings.adc_trig_offset) + max(
            self.program.cycles2us(settings.readout_length, ro_ch=readout) for readout in settings.readouts
        )
        pulse_us = max(
            self.program.cycles2us(settings.length, gen_ch=channel) for channel in self.program.cfg["words"]
        )
        shot_us = max(window_us, pulse_us) + settings.relax_delay_us
        return float(SETTLE_US + settings.reps * shot_us) * 1e-6

    def _split_by_shot(self, data: Floats) -> Floats:
        shots = np.asarray(data, dtype=float).reshape(self.settings.reps, self.settings.readout_length, 2)
        return np.moveaxis(shots, -1, -2)


def compile_shot(soccfg: Any, settings: Settings, word_by_channel: dict[int, int]) -> ProgramV2:
    """Compile one shot."""
    return ProgramV2(soccfg, settings, word_by_channel)
