"""Programs of the timed processor, compiled by QICK with or without a board.

`build_program(soccfg, settings, word_by_channel)` returns the program for the firmware's processor. Both processor
versions play the same pulses and record the same window for the same `Settings`. `count_ticks` computes the duration of
a compiled program from its words.
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
DATA_DEPENDENT_OPCODES = frozenset((0x31, 0x52, 0x54))
"""Opcodes of version 1 that make the duration of a program depend on data: `condj`, `sync`, `wait`."""
_IMMEDIATE_MASK = (1 << 31) - 1

MODULE_BY_PROCESSOR = {"axis_tproc64x32_x8": "v1", "qick_processor": "v2"}
"""Type of the timed processor in a configuration, and the module that writes programs for it."""


class CompiledProgram(Protocol):
    """A compiled program."""

    program: Any
    """The QICK program: `asm()`, `dump_prog()`, `binprog`."""

    def acquire_decimated(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return one array (reps, 2, samples) per readout, averaged over the runs."""
        ...

    def get_rounds(self) -> list[list[Floats]]:
        """Return the runs of the last acquisition, before averaging."""
        ...

    def acquire(self, soc: Any, *, progress: bool) -> list[Floats]:
        """Return one array (2,) per readout: I and Q in counts, averaged over the window, all shots and all runs."""
        ...

    def compute_duration_s(self) -> float:
        """Return the duration of one run on the device."""
        ...


def build_program(soccfg: Any, settings: Settings, word_by_channel: dict[int, int]) -> CompiledProgram:
    """Compile one shot for this firmware. `word_by_channel` maps generators to gain words.

    Raise `ProgramError` for an unsupported processor, `MissingLibrary` without QICK.
    """
    require("qick", "to compile programs")
    processor_type = str(soccfg["tprocs"][0]["type"])
    if processor_type not in MODULE_BY_PROCESSOR:
        raise ProgramError(
            f"the firmware has the unsupported timed processor {processor_type!r}",
            hint=f"Load firmware with one of {', '.join(MODULE_BY_PROCESSOR)}",
        )
    module = import_module(f"lightning.kit.programs.{MODULE_BY_PROCESSOR[processor_type]}")
    compiled: CompiledProgram = module.compile_shot(soccfg, settings, word_by_channel)
    return compiled


def split_by_shot(data: npt.NDArray[np.float64], settings: Settings) -> Floats:
    """Return the samples by shot, (reps, 2, samples). QICK omits the first axis of a single repetition."""
    return np.asarray(data, dtype=float).reshape(settings.reps, 2, settings.readout_length)


def count_ticks(words: Sequence[int], *, ticks_per_instruction: int = 0) -> int | None:
    """Return the duration of a version 1 program in ticks of the processor's clock, or None if it depends on data.

    `synci` (0x14) advances the reference time. `loopnz` (0x30) jumps back and decrements a register that an earlier
    `regwi` (0x19) has set. The fields are those of QICK's table of instructions: page in bits 55..53, register in bits
    45..41, immediate in bits 30..0, jump target in bits 15..0. The result is None if the program advances time by a
    register (`sync`, 0x52), waits for a register (`wait`, 0x54), branches on data (`condj`, 0x31), or has an unknown
    loop count.

    Each executed instruction adds `ticks_per_instruction` ticks. A loop of three rounds of ten ticks each:

    >>> regwi = (0x19 << 56) | (14 << 41) | 2
    >>> loopnz = (0x30 << 56) | (14 << 41) | (8 << 46) | (14 << 36) | 1
    >>> count_ticks([regwi, (0x14 << 56) | 10, loopnz, 0x3F << 56])
    30
    """
    elapsed_ticks = [0]
    """For each address, the ticks until the program first reaches it after all earlier loops."""
    for address, word in enumerate(words):
        opcode = int(word) >> 56
        if opcode in DATA_DEPENDENT_OPCODES:
            return None
        next_elapsed_ticks = elapsed_ticks[address] + ticks_per_instruction
        if opcode == SYNCI:
            next_elapsed_ticks += int(word) & _IMMEDIATE_MASK
        elif opcode == LOOPNZ:
            start_address = int(word) & 0xFFFF
            loop_count = _find_loop_count(words, address, start_address)
            if loop_count is None:
                return None
            next_elapsed_ticks += (next_elapsed_ticks - elapsed_ticks[start_address]) * loop_count
        elapsed_ticks.append(next_elapsed_ticks)
    return elapsed_ticks[-1]


def _find_loop_count(words: Sequence[int], loop_address: int, start_address: int) -> int | None:
    """Return how often the loop jumps back: the last value written to its register before the loop, or None."""
    register = _decode_register(words[loop_address])
    if start_address > loop_address:
        return None
    for word in reversed(words[:start_address]):
        if int(word) >> 56 == REGWI and _decode_register(word) == register:
            return int(word) & _IMMEDIATE_MASK
    return None


def _decode_register(word: int) -> tuple[int, int]:
    return (int(word) >> 53) & 7, (int(word) >> 41) & 31
