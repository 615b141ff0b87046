"""`TprocV2`: the second timed processor with its memories, ready for the board to run."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.processor import ProgramError, ReadInput, Run, endless
from sim.twins.rfsoc.tproc_v2 import compiled
from sim.twins.rfsoc.tproc_v2.decoding import cells
from sim.twins.rfsoc.tproc_v2.decoding.instruction import decode
from sim.twins.rfsoc.tproc_v2.execution import Execution
from sim.twins.rfsoc.tproc_v2.memories import Memories
from sim.twins.rfsoc.tproc_v2.refusal import refusal

PATIENCE = 500_000
"""Instructions of one run after which compiling (seconds, once) costs less than going on without."""
LIMIT = 10_000_000
SLOW_LIMIT = 2_000_000
"""Without numba. Either takes a few seconds."""


class TprocV2:
    """The processor `qick_processor` of QICK firmware: a `processor.Processor`.

    `dreg_qty` and `fifo_depth` are what the firmware was built with; `ticks_per_cycle` is the ratio of the timing
    clock to the core's; `limit` bounds the instructions of a run, so that a program without end is an error and
    does not hang (unless given, as many as take a few seconds).
    """

    def __init__(
        self,
        pmem_words: int,
        dmem_words: int,
        wmem_words: int,
        *,
        dreg_qty: int = 32,
        fifo_depth: int = 512,
        ticks_per_cycle: float = 2.1504,
        limit: int | None = None,
    ) -> None:
        self._memories = Memories(pmem_words, dmem_words, wmem_words)
        self._dreg_qty = dreg_qty
        self._fifo_depth = fifo_depth
        self._ratio = Fraction(ticks_per_cycle).limit_denominator(4096)
        self._limit = limit
        self._loaded: Mapping[str, Any] = {"pmem": None, "dmem": None, "wmem": None}
        self._length = 0
        self._registers = [0] * cells.REGISTERS
        self._random = 0
        self._random_mode = 0
        self._host = (0, 0)
        self._changes = 0

    @classmethod
    def from_config(cls, tproccfg: Mapping[str, Any], *, limit: int | None = None) -> TprocV2:
        """Make a processor from the entry of `soccfg["tprocs"]`: sizes, queue depth and clocks are there."""
        return cls(
            tproccfg["pmem_size"],
            tproccfg["dmem_size"],
            tproccfg["wmem_size"],
            dreg_qty=tproccfg["dreg_qty"],
            fifo_depth=tproccfg["fifo_depth"],
            ticks_per_cycle=tproccfg["f_time"] / tproccfg["f_core"],
            limit=limit,
        )

    # ------------------------------------------------------------------------------------- memories
    def load_bin_program(self, binprog: Any, *, load_mem: bool = True) -> None:
        """Take a compiled program: a mapping of pmem, dmem and wmem to blocks, or to None.

        Raises `ProgramError` when it does not fit.
        """
        self.load_mem("pmem", binprog["pmem"])
        self._loaded = dict(binprog)
        self._resize(len(binprog["pmem"]))
        if load_mem:
            self.reload_mem()

    def reload_mem(self) -> None:
        """Write waveform and data memory as loaded, over what the program changed."""
        for name in ("wmem", "dmem"):
            if self._loaded[name] is not None:
                self.load_mem(name, self._loaded[name])

    def load_mem(self, mem_sel: str, data: Any, addr: int = 0) -> None:
        """Write a block of "pmem", "dmem" or "wmem"; raises `ProgramError` when it does not fit."""
        self._memories.write(mem_sel, data, addr)
        if mem_sel == "pmem":
            self._resize(max(self._length, addr + len(data)))

    def read_mem(self, mem_sel: str, length: int, addr: int = 0) -> npt.NDArray[np.int32]:
        """Read a block: (n, 3) for "pmem", (n, 6) for "wmem", (n,) for "dmem"."""
        return self._memories.read(mem_sel, length, addr)

    def _resize(self, length: int) -> None:
        self._changes += length != self._length
        self._length = length

    # --------------------------------------------------------------------------------- what the host sets
    def set_lfsr(self, mode: int) -> None:
        """Set how the random register steps: 0 not at all, 2 with each read of `s1`, 3 with each write of `s0`."""
        if mode == 1:
            raise NotSimulated(
                "the free-running random register", "use mode 2 (step on read) or 3 (step on write)"
            )
        self._changes += mode != self._random_mode
        self._random_mode = mode

    def set_host_words(self, first: int, second: int) -> None:
        """Set the two registers that the host writes and programs read as `s_core_r1` and `s_core_r2`."""
        words = (first & cells.MASK, second & cells.MASK)
        self._changes += words != self._host
        self._host = words

    # ---------------------------------------------------------------------------------------- running
    @property
    def version(self) -> int:
        """Changes with every change of program, memory, or what the host set: a run may be reused while it stands."""
        return self._changes + self._memories.version

    @property
    def registers(self) -> dict[str, int]:
        """Registers as the last run left them, by the assembler's names (s0.., r0.., w0..), without sign."""
        names = [*(f"s{n}" for n in range(32)), *(f"r{n}" for n in range(32)), *(f"w{n}" for n in range(8))]
        return dict(zip(names, self._registers, strict=True))

    def reset(self) -> None:
        """Set registers to zero and the program counter to the beginning; memories and the random register stay."""
        self._registers = [0] * cells.REGISTERS

    def run(self, read: ReadInput) -> Run:
        """Carry the loaded program out from its beginning to its end.

        Raises `ProgramError` for a word that is no instruction, an address outside the program, waits that nothing
        can end, and programs longer than the limit; `NotSimulated` for instructions of parts that the twin lacks.
        """
        execution = self._start()
        stop = cells.GO
        while stop != cells.END:
            stop = execution.go(self._pause(execution))
            self._attend(stop, execution, read)
        self._finish(execution)
        return execution.run()

    def _start(self) -> Execution:
        self.reset()
        words = self._memories.instructions(self._length)
        state = {
            cells.LENGTH: len(words),
            cells.TICKS: self._ratio.numerator,
            cells.CYCLES: self._ratio.denominator,
            cells.DEPTH: self._fifo_depth,
            cells.LFSR_MODE: self._random_mode,
            cells.HOST: self._host[0],
            cells.HOST + 1: self._host[1],
        }
        registers = {1: self._random, 6: self._host[0], 7: self._host[1], 10: 0b0101}
        code = [number for word in words for number in decode(word, self._dreg_qty)]
        dmem, wmem = self._memories.numbers("dmem"), self._memories.numbers("wmem")
        execution = Execution(code, registers, state, dmem, wmem)
        if compiled.ready():
            self._compile(execution)
        return execution

    def _pause(self, execution: Execution) -> int:
        """After how many instructions to look whether compiling pays; never more than the limit."""
        most = self._most(execution)
        return most if execution.steps >= PATIENCE or execution.compiled else min(PATIENCE, most)

    def _most(self, execution: Execution) -> int:
        """Return the limit: as given, else by how fast it goes."""
        return self._limit or (LIMIT if execution.compiled else SLOW_LIMIT)

    def _compile(self, execution: Execution) -> None:
        executor = compiled.executor()
        if executor is not None:
            execution.compile(executor)

    def _attend(self, stop: int, execution: Execution, read: ReadInput) -> None:
        """Do what the machine stopped for, or say why it cannot go on."""
        if stop in {cells.END, cells.FULL}:
            execution.collect()
        elif stop == cells.READ:
            execution.feed(read)
        elif stop == cells.PAUSE and execution.steps < self._most(execution):
            self._compile(execution)
        elif stop == cells.PAUSE:
            reported = endless(f"{execution.steps} instructions", execution.steps)
            raise ProgramError(f"at address {execution.address}: {reported}; does it end with end()?")
        else:
            word = self._memories.instructions(self._length)[execution.address : execution.address + 1]
            raise refusal(stop, execution.address, word[0] if word else None, self._length)

    def _finish(self, execution: Execution) -> None:
        """Take over registers and memories; a change of what the next run reads is a new version."""
        self._registers = execution.registers()
        self._changes += self._random != self._registers[1]
        self._random = self._registers[1]
        self._memories.keep("dmem", execution.dmem)
        self._memories.keep("wmem", execution.wmem)
