"""Programs of the timed processor, compiled by QICK on board or off.

`build(soccfg, settings, words)` gives the program for the processor that the firmware has; `Shot` is the record
that both versions compile, so both put out the same pulses and record the same window.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lightning.errors import ProgramError
from lightning.kit.settings import Settings
from lightning.optional import needed

Floats = npt.NDArray[np.float64]

PROCESSORS = {"axis_tproc64x32_x8": "v1", "qick_processor": "v2"}
"""Type of the timed processor in a configuration, and the module that writes programs for it."""


class Compiled(Protocol):
    """A program, ready for a device."""

    program: Any
    """QICK's own object: `asm()`, `dump_prog()`, `binprog`."""

    def acquire_decimated(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return one array (reps, 2, samples) per readout, averaged over the runs."""
        ...

    def rounds(self) -> list[list[Floats]]:
        """Return the runs of the last acquisition, before averaging."""
        ...

    def acquire(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return the mean I and Q of the window in counts, over all shots and runs, (2,) per readout."""
        ...

    def duration_s(self) -> float:
        """Return how long one run takes on the device."""
        ...


def build(soccfg: Any, settings: Settings, words: dict[int, int]) -> Compiled:
    """Compile one shot for this firmware, with these gain words per generator.

    Raises `ProgramError` for a processor that is of neither version, `MissingLibrary` without QICK.
    """
    needed("qick", "to compile programs")
    kind = str(soccfg["tprocs"][0]["type"])
    if kind not in PROCESSORS:
        raise ProgramError(
            f"the firmware has a timed processor of type {kind!r}",
            hint=f"Load firmware with one of {', '.join(PROCESSORS)}",
        )
    module = import_module(f"lightning.kit.programs.{PROCESSORS[kind]}")
    compiled: Compiled = module.compile_shot(soccfg, settings, words)
    return compiled


def by_shot(data: npt.NDArray[np.float64], settings: Settings) -> Floats:
    """Return the samples by shot, (reps, 2, samples), also when QICK leaves out the axis of a single repetition."""
    return np.asarray(data, dtype=float).reshape(settings.reps, 2, settings.readout_length)
