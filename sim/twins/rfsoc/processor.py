"""Interface of a timed processor: words on its output ports, levels on its pins, counts in its memory.

Both processors of QICK firmware (`tproc_v1`, `tproc_v2`) are machines of this one shape. They know nothing of
generators, readouts or light: they turn a compiled program into a `Run`, and the board (`soc`) reads that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

WRITE = np.dtype([("port", "<i4"), ("time", "<i8"), ("words", "<u4", (6,))])
"""One word on an output port: the port's number, ticks of the processor's clock since the start at which it takes
effect, and the word in 32-bit parts, lowest first. Version 1 writes 160 bits (freq, phase, addr, gain, mode: five
parts, the sixth 0), version 2 a waveform of 168 bits (freq, phase, env, gain, length, conf)."""

PIN = np.dtype([("kind", "<i1"), ("port", "<i4"), ("time", "<i8"), ("word", "<u4")])
"""A digital output that changed at `time`: kind 0 is a data port (version 1 has only these), kind 1 a trigger port
of version 2, whose word is 0 or 1."""

COUNT = np.dtype([("address", "<i4"), ("time", "<i8"), ("value", "<i8")])
"""What became readable from outside: a word of data memory (version 1), or one of the two registers (version 2)."""

ReadInput = Callable[[int, int, int], int]
"""(input port, which half: 0 low, 1 high, tick) -> what the readout gives back to the program at that time."""


@dataclass(frozen=True, slots=True)
class Run:
    """All that one run of a program sent out, each array in the order of its times."""

    writes: npt.NDArray[Any]
    pins: npt.NDArray[Any]
    counts: npt.NDArray[Any]
    end: int
    """Tick at which the program came to its end."""


def endless(done: str, steps: int) -> str:
    """Return the message about a program that has done so much, in so many instructions, and is held to be endless.

    The hint names the address's option, with ten times as many.
    """
    return (
        f"the program has not ended after {done}; see that its loops end, or, where it is only long, give the twin "
        f"more in its address, as in sim://kit?instruction_limit={10 * steps}"
    )


class ProgramError(Exception):
    """A program that the processor cannot carry out: what, at which address, which word, and what to do."""


class Processor(Protocol):
    """A timed processor with its memories."""

    def load_bin_program(self, binprog: Any, *, load_mem: bool = True) -> None:
        """Take a compiled program as QICK hands it over. Raises `ProgramError` when it does not fit."""
        ...

    def reload_mem(self) -> None:
        """Write waveform and data memory as loaded, over what the program changed (version 2)."""
        ...

    def load_mem(self, mem_sel: str, data: npt.NDArray[np.int32], addr: int = 0) -> None:
        """Write a block of "pmem", "dmem" or "wmem"; version 1 has only "dmem" open."""
        ...

    def read_mem(self, mem_sel: str, length: int, addr: int = 0) -> npt.NDArray[np.int32]:
        """Read a block of memory."""
        ...

    def reset(self) -> None:
        """Set registers to zero and the program counter to the beginning; memories stay."""
        ...

    def run(self, read: ReadInput) -> Run:
        """Carry the loaded program out from its beginning to its end.

        Raises `ProgramError` for an opcode or address that is none (naming address and word), and for a program
        that does not end within the machine's limit of instructions.
        """
        ...

    @property
    def version(self) -> int:
        """Changes with every change of program or memory: a run may be reused while it stands."""
        ...
