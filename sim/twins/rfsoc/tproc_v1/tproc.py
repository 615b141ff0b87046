"""The processor with the interface that the board uses: loading of memories, and execution of a program."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.processor import ProgramError, ReadInput, Run
from sim.twins.rfsoc.tproc_v1.instructions import decode
from sim.twins.rfsoc.tproc_v1.memories import Memories

if TYPE_CHECKING:
    from sim.twins.rfsoc.tproc_v1.execution import Execution

INSTRUCTION_LIMIT = 50_000_000
UNCOMPILED_INSTRUCTION_LIMIT = 2_000_000
"""Default instruction limit without numba. It takes a few seconds to reach."""
EVENT_LIMIT = 10_000_000


class TprocV1:
    """The timed processor `axis_tproc64x32_x8` with its memories.

    `pmem_words` is the size of program memory in words of 64 bits, and `dmem_words` the size of data memory in words of
    32 bits, a power of two. `data_ports` are the channels that drive pins. A word to one of them is a `PIN` of the run;
    a word to any other channel is a `WRITE`. A program counts as endless after `instruction_limit` instructions. It
    also counts as endless if its event buffer is full and holds `event_limit` words or more. The default instruction
    limit is reached in a few seconds.
    """

    def __init__(
        self,
        pmem_words: int,
        dmem_words: int,
        *,
        data_ports: Collection[int] = (0,),
        instruction_limit: int | None = None,
        event_limit: int = EVENT_LIMIT,
    ) -> None:
        if dmem_words < 1 or dmem_words & (dmem_words - 1):
            raise ValueError(f"data memory of {dmem_words} words: the size must be a power of two")
        self.instruction_limit = instruction_limit
        self.event_limit = event_limit
        self._data_ports = frozenset(data_ports)
        self._pmem_words = pmem_words
        self._memories = Memories.make_empty(dmem_words)
        self._input_run_count = 0
        self._execution: Execution | None = None
        self._set_program(np.zeros(0, np.uint64))

    @property
    def version(self) -> int:
        """Number computed from everything that the next run depends on: program, memory, registers, stack.

        Equal contents give equal numbers. Repetitions of a program (QICK's rounds) therefore have the same number if
        the shot counter is cleared before each. After a run that has read an input port, the number changes.
        """
        digest = blake2b(self._program_digest + self._memories.compute_fingerprint(), digest_size=8)
        digest.update(self._input_run_count.to_bytes(8))
        return int.from_bytes(digest.digest())

    def load_bin_program(self, binprog: Any, *, load_mem: bool = True) -> None:
        """Load a program of 64-bit words in place of the previous one.

        Raise `ProgramError` if the program does not fit, or is for the other processor. `load_mem` has no effect,
        because a program has no contents for data memory.
        """
        if isinstance(binprog, Mapping):
            raise ProgramError(
                "this program is for the processor of version 2 (it has several memories), but the board has "
                "version 1; write it with AveragerProgram or QickProgram instead of their V2 forms"
            )
        words = _parse_words(binprog)
        if not 0 < len(words) <= self._pmem_words:
            raise ProgramError(
                f"a program of {len(words)} words does not fit into program memory, which holds 1 to "
                f"{self._pmem_words}; use loops for repeated parts"
            )
        self._set_program(words)

    def reload_mem(self) -> None:
        """Do nothing, like QICK's driver, because a program has no contents for data memory."""

    def load_mem(self, mem_sel: str, data: npt.NDArray[np.int32], addr: int = 0) -> None:
        """Write 32-bit words into data memory. Raise `ProgramError` for another memory or too long a block."""
        words = np.asarray(data).astype(np.int64) & 0xFFFF_FFFF
        self._get_block(mem_sel, len(words), addr)[:] = words

    def read_mem(self, mem_sel: str, length: int, addr: int = 0) -> npt.NDArray[np.int32]:
        """Return `length` words of data memory as signed numbers. Raise `ProgramError` as `load_mem` does."""
        return self._get_block(mem_sel, length, addr).astype(np.uint32).view(np.int32)

    def reset(self) -> None:
        """Set registers to zero, and empty the stack. Keep program and data memory."""
        self._memories.registers[:] = 0
        self._memories.depth = 0

    def run(self, read_input: ReadInput) -> Run:
        """Execute the program from its beginning. Raise `ProgramError` (see `Processor.run`).

        `read_input` is called at every `read` instruction, and may call `collect_events()`.
        """
        from sim.twins.rfsoc.tproc_v1 import compiled
        from sim.twins.rfsoc.tproc_v1.execution import Execution, Limits

        default_limit = INSTRUCTION_LIMIT if compiled.IS_COMPILED else UNCOMPILED_INSTRUCTION_LIMIT
        limits = Limits(self.instruction_limit or default_limit, self.event_limit)
        self._execution = Execution(
            self._program_words, self._decoded_program, self._memories, self._data_ports
        )
        try:
            return self._execution.run_to_end(read_input, limits)
        finally:
            self._input_run_count += self._execution.has_read_input
            self._execution = None

    def collect_events(self) -> Run:
        """Return all events of the program so far, with the current tick as `end_tick`. Only `read` may call it."""
        if self._execution is None:
            raise ProgramError(
                "no program is running: call collect_events() only from the function that answers `read`"
            )
        return self._execution.collect_events()

    def _set_program(self, words: npt.NDArray[np.uint64]) -> None:
        self._program_words = words
        self._decoded_program = decode(words)
        self._program_digest = blake2b(words.tobytes()).digest()

    def _get_block(self, mem_sel: str, length: int, addr: int) -> npt.NDArray[np.int64]:
        if mem_sel != "dmem":
            raise ProgramError(f"memory {mem_sel!r}: the processor of version 1 gives access to 'dmem' only")
        data = self._memories.data
        if min(addr, length) < 0 or addr + length > len(data):
            raise ProgramError(
                f"data memory has addresses 0 to {len(data) - 1}, but {length} words from {addr} on were "
                "requested"
            )
        return data[addr : addr + length]


def _parse_words(binprog: Iterable[Any]) -> npt.NDArray[np.uint64]:
    try:
        numbers = [index(number) for number in binprog]
    except TypeError as error:
        raise ProgramError(f"a program must be a list of 64-bit words: {error}") from error
    for address, number in enumerate(numbers):
        if not 0 <= number < 1 << 64:
            raise ProgramError(
                f"at address {address}, word {number}: it is not an unsigned 64-bit word; compile again"
            )
    return np.array(numbers, np.uint64)
