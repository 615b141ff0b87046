"""The kit's program for the timed processor of version 1 (`axis_tproc64x32_x8`), the kit's own firmware."""

from __future__ import annotations

from typing import Any

import numpy as np
from qick import AveragerProgram

from lightning.kit.programs import Floats, count_ticks, split_by_shot
from lightning.kit.settings import Settings

SETTLE_TICKS = 200
"""Time before the first shot, in which the processor loads the pulses."""


class ShotProgram(AveragerProgram):  # type: ignore[misc]
    """Constant pulses on four generators at once, and one window of the readouts."""

    def initialize(self) -> None:
        """Declare generators and readouts, and set the pulse registers."""
        settings: Settings = self.cfg["settings"]
        freq = self.freq2reg(
            settings.pulse_freq_mhz, gen_ch=next(iter(self.cfg["words"])), ro_ch=settings.readouts[0]
        )
        for readout in settings.readouts:
            self.declare_readout(
                ch=readout,
                length=settings.readout_length,
                freq=settings.pulse_freq_mhz,
                gen_ch=next(iter(self.cfg["words"])),
            )
        for channel, word in self.cfg["words"].items():
            self.declare_gen(ch=channel, nqz=1)
            phase = self.deg2reg(settings.phase_deg, gen_ch=channel)
            self.set_pulse_registers(
                ch=channel, style="const", freq=freq, phase=phase, gain=word, length=settings.length
            )
        self.synci(SETTLE_TICKS)

    def body(self) -> None:
        """Play one shot and record its window."""
        settings: Settings = self.cfg["settings"]
        for channel in self.cfg["words"]:
            self.pulse(ch=channel, t=0)
        self.trigger(adcs=list(settings.readouts), adc_trig_offset=settings.adc_trig_offset)
        self.wait_all()
        self.sync_all(self.us2cycles(settings.relax_delay_us))


class ProgramV1:
    """`CompiledProgram` for version 1."""

    def __init__(self, soccfg: Any, settings: Settings, word_by_channel: dict[int, int]) -> None:
        self.settings = settings
        config = {
            "reps": settings.reps,
            "soft_avgs": settings.soft_avgs,
            "settings": settings,
            "words": word_by_channel,
        }
        self.program = ShotProgram(soccfg, config)

    def acquire_decimated(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return one array (reps, 2, samples) per readout, averaged over the runs."""
        readouts = self.program.acquire_decimated(soc, progress=progress)
        return [split_by_shot(readout, self.settings) for readout in readouts]

    def get_rounds(self) -> list[list[Floats]]:
        """Return the runs of the last acquisition, before averaging."""
        return [
            [split_by_shot(readout, self.settings) for readout in run] for run in self.program.get_rounds()
        ]

    def acquire(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return one array (2,) per readout: I and Q in counts, averaged over the window, all shots and all runs."""
        i_means, q_means = self.program.acquire(soc, progress=progress)
        return [np.array([i_mean[0], q_mean[0]]) for i_mean, q_mean in zip(i_means, q_means, strict=True)]

    def compute_duration_s(self) -> float:
        """Return the duration of one run: ticks of the compiled program over the processor's clock."""
        f_time_mhz = float(self.program.tproccfg["f_time"])
        tick_count = count_ticks(self.program.binprog)
        assert tick_count is not None, "this program has neither branches nor times in registers"
        return tick_count / (f_time_mhz * 1e6)


def compile_shot(soccfg: Any, settings: Settings, word_by_channel: dict[int, int]) -> ProgramV1:
    """Compile one shot."""
    return ProgramV1(soccfg, settings, word_by_channel)
