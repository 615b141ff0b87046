"""Programs of the timed processor, compiled by QICK with or without a board.

`build(soccfg, settings, words)` returns the program for the firmware's processor. Both processor versions play the same
pulses and window for the same `Settings`. `ticks` computes the duration of a compiled program from its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lightning.errors import ProgramError
from lightning.kit.settings import Settings
from lightning.optional import require

Floats = npt.NDArray[np.float64]

SYNCI, REGWI, LOOPNZ = 0x14, 0x19, 0x30
DATA_DEPENDENT = frozenset((0x31, 0x52, 0x54))
"""Opcodes of version 1 that make the duration of a program depend on data: `condj`, `sync`, `wait`."""
_IMMEDIATE = (1 << 31) - 1

PROCESSORS = {"axis_tproc64x32_x8": "v1", "qick_processor": "v2"}
"""Type of the timed processor in a configuration, and the module that writes programs for it."""


class CompiledProgram(Protocol):
    """A compiled program."""

    program: Any
    """The QICK program: `asm()`, `dump_prog()`, `binprog`."""

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
        """Return the duration of one run on the device."""
        ...


def build(soccfg: Any, settings: Settings, words: dict[int, int]) -> CompiledProgram:
    """Compile one shot for this firmware. `words` maps generators to gain words.

    Raise `ProgramError` for an unsupported processor, `MissingLibrary` without QICK.
    """
    require("qick", "to compile programs")
    kind = str(soccfg["tprocs"][0]["type"])
    if kind not in PROCESSORS:
        raise ProgramError(
            f"the firmware has the unsupported timed processor {kind!r}",
            hint=f"Load firmware with one of {', '.join(PROCESSORS)}",
        )
    module = import_module(f"lightning.kit.programs.{PROCESSORS[kind]}")
    compiled: CompiledProgram = module.compile_shot(soccfg, settings, words)
    return compiled


def split_by_shot(data: npt.NDArray[np.float64], settings: Settings) -> Floats:
    """Return the samples by shot, (reps, 2, samples). QICK omits the first axis of a single repetition."""
    return np.asarray(data, dtype=float).reshape(settings.reps, 2, settings.readout_length)


def ticks(words: Sequence[int], *, per_instruction: int = 0) -> int | None:
    """Return the duration of a version 1 program in ticks of the processor's clock, or None if it depends on data.

    `synci` (0x14) advances the reference time. `loopnz` (0x30) jumps back and decrements a register that an earlier
    `regwi` (0x19) has set. The fields are those of QICK's table of instructions: page in bits 55..53, register in bits
    45..41, immediate in bits 30..0, jump target in bits 15..0. The result is None if the program advances time by a
    register (`sync`, 0x52), waits for a register (`wait`, 0x54), branches on data (`condj`, 0x31), or has an unknown
    loop count.

    Each executed instruction adds `per_instruction` ticks. A loop of three rounds of ten ticks each:

    >>> regwi = (0x19 << 56) | (14 << 41) | 2
    >>> loopnz = (0x30 << 56) | (14 << 41) | (8 << 46) | (14 << 36) | 1
    >>> ticks([regwi, (0x14 << 56) | 10, loopnz, 0x3F << 56])
    30
    """
    elapsed = [0]
    """For each address, the ticks until the program first reaches it after all earlier loops."""
    for address, word in enumerate(words):
        opcode = int(word) >> 56
        if opcode in DATA_DEPENDENT:
            return None
        elapsed_after = elapsed[address] + per_instruction
        if opcode == SYNCI:
            elapsed_after += int(word) & _IMMEDIATE
        elif opcode == LOOPNZ:
            start = int(word) & 0xFFFF
            count = _find_loop_count(words, address, start)
            if count is None:
                return None
            elapsed_after += (elapsed_after - elapsed[start]) * count
        elapsed.append(elapsed_after)
    return elapsed[-1]


def _find_loop_count(words: Sequence[int], loop: int, start: int) -> int | None:
    """Return how often the loop jumps back: the last value written to its register before the loop, or None."""
    register = _decode_register(words[loop])
    if start > loop:
        return None
    for word in reversed(words[:start]):
        if int(word) >> 56 == REGWI and _decode_register(word) == register:
            return int(word) & _IMMEDIATE
    return None


def _decode_register(word: int) -> tuple[int, int]:
    return (int(word) >> 53) & 7, (int(word) >> 41) & 31
