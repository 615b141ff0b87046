"""Interface of a timed processor: words on its output ports, levels on its pins, counts in its memory.

Both processors of QICK firmware (`tproc_v1`, `tproc_v2`) implement it. They do not depend on generators, readouts or
light: they turn a compiled program into a `Run`, which the board evaluates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

WRITE = np.dtype([("port", "<i4"), ("time", "<i8"), ("words", "<u4", (6,))])
"""A word on an output port: number of the port, time at which it takes effect (in ticks of the processor's clock since
the start), and the word in 32-bit parts, lowest first. Version 1 writes 160 bits (freq, phase, addr, gain, mode: five
parts, the sixth is 0), version 2 a waveform of 168 bits (freq, phase, env, gain, length, conf)."""

PIN = np.dtype([("kind", "<i1"), ("port", "<i4"), ("time", "<i8"), ("word", "<u4")])
"""A change of a digital output at `time`: kind 0 is a data port (the only kind of version 1), kind 1 a trigger port of
version 2, whose word is 0 or 1."""

COUNT = np.dtype([("address", "<i4"), ("time", "<i8"), ("value", "<i8")])
"""A change of a value that is readable from outside: a word of data memory (version 1) or one of two registers (2)."""

ReadInput = Callable[[int, int, int], int]
"""(input port, half (0 low, 1 high), tick) -> value that the readout returns to the program at that time."""


@dataclass(frozen=True, slots=True)
class Run:
    """All outputs of one run of a program, each array in order of time."""

    writes: npt.NDArray[Any]
    pins: npt.NDArray[Any]
    counts: npt.NDArray[Any]
    end: int
    """Tick at which the program ended."""


def describe_endless(progress: str, steps: int) -> str:
    """Return the message about a program that has not ended after `steps` instructions; `progress` says how far it got.

    The message suggests ten times as many instructions as the option of the address.
    """
    return (
        f"the program has not ended after {progress}; check that its loops end, or, if it is only long, raise the "
        f"limit in the address of the twin: sim://kit?instruction_limit={10 * steps}"
    )


class ProgramError(Exception):
    """A program that the processor cannot execute; the message has the address, the word and a hint."""


class Processor(Protocol):
    """Interface of a timed processor with its memories."""

    def load_bin_program(self, binprog: Any, *, load_mem: bool = True) -> None:
        """Load a compiled program in QICK's format. Raise `ProgramError` if it does not fit."""
        ...

    def reload_mem(self) -> None:
        """Restore waveform and data memory to the loaded contents (version 2)."""
        ...

    def load_mem(self, mem_sel: str, data: npt.NDArray[np.int32], addr: int = 0) -> None:
        """Write a block of "pmem", "dmem" or "wmem"; in version 1, only "dmem" is accessible."""
        ...

    def read_mem(self, mem_sel: str, length: int, addr: int = 0) -> npt.NDArray[np.int32]:
        """Return a block of memory."""
        ...

    def reset(self) -> None:
        """Set registers and program counter to zero, and keep the memories."""
        ...

    def run(self, read: ReadInput) -> Run:
        """Execute the loaded program from its beginning to its end.

        Raise `ProgramError` for an invalid opcode or address, and for a program that exceeds the instruction limit.
        """
        ...

    @property
    def version(self) -> int:
        """Number that changes with every change of program or memory; a run may be reused while it is the same."""
        ...
