"""Interface of a timed processor: words on its output ports, levels on its pins, counts in its memory.

Both processors of QICK firmware (`tproc_v1`, `tproc_v2`) implement it. They do not depend on generators, readouts or
light. They execute a compiled program, and return a `Run`, which the board evaluates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

WRITE_DTYPE = np.dtype([("port", "<i4"), ("time", "<i8"), ("words", "<u4", (6,))])
"""A word on an output port: number of the port, time of effect (in ticks of the processor's clock since the start), and
the word in 32-bit parts, lowest first. Version 1 writes 160 bits: freq, phase, addr, gain, mode; the sixth part is 0.
Version 2 writes a waveform of 168 bits: freq, phase, env, gain, length, conf."""

PIN_DTYPE = np.dtype([("kind", "<i1"), ("port", "<i4"), ("time", "<i8"), ("word", "<u4")])
"""A change of a digital output at `time`. Kind 0 is a data port. Kind 1 is a trigger port, which only version 2 has.
The word of a trigger port is 0 or 1."""

COUNT_DTYPE = np.dtype([("address", "<i4"), ("time", "<i8"), ("value", "<i8")])
"""A change of a value that the host can read: a word of data memory (version 1) or one of two registers (version 2)."""

ReadInput = Callable[[int, int, int], int]
"""(input port, half, tick) -> value that the readout returns to the program at that tick. Half 0 is low, 1 is high."""


@dataclass(frozen=True, slots=True)
class Run:
    """All outputs of one run of a program, each array in order of time."""

    port_writes: npt.NDArray[Any]
    pin_events: npt.NDArray[Any]
    counter_events: npt.NDArray[Any]
    end_tick: int
    """Tick at which the program ended."""


def describe_endless_program(progress: str, instruction_count: int) -> str:
    """Return the message for a program that has not ended after `instruction_count` instructions.

    `progress` says how far it got.

    The message suggests an instruction limit of ten times `instruction_count`.
    """
    return (
        f"the program has not ended after {progress}; check that its loops end, or, if it is only long, raise the "
        f"limit in the address of the twin: sim://kit?instruction_limit={10 * instruction_count}"
    )


class ProgramError(Exception):
    """A program that the processor cannot execute. The message has the address, the word and a hint if known."""


class Processor(Protocol):
    """Interface of a timed processor with its memories."""

    def load_bin_program(self, binprog: Any, *, load_mem: bool = True) -> None:
        """Load a compiled program in QICK's format. Raise `ProgramError` if it does not fit."""
        ...

    def reload_mem(self) -> None:
        """Restore waveform and data memory to the loaded contents (version 2)."""
        ...

    def load_mem(self, mem_sel: str, data: npt.NDArray[np.int32], addr: int = 0) -> None:
        """Write a block of "pmem", "dmem" or "wmem". In version 1, only "dmem" is accessible."""
        ...

    def read_mem(self, mem_sel: str, length: int, addr: int = 0) -> npt.NDArray[np.int32]:
        """Return a block of memory."""
        ...

    def reset(self) -> None:
        """Set registers and program counter to zero, and keep the memories."""
        ...

    def run(self, read_input: ReadInput) -> Run:
        """Execute the loaded program from its beginning to its end.

        Raise `ProgramError` for an invalid opcode or address, and for a program that exceeds the instruction limit.
        """
        ...

    @property
    def version(self) -> int:
        """Number that changes with every change of program or memory. While it is the same, a run may be reused."""
        ...
