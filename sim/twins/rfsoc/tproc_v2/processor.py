"""`TprocV2`: the second timed processor with its memories, with the interface that the board uses."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.processor import ProgramError, ReadInput, Run, describe_endless_program
from sim.twins.rfsoc.tproc_v2 import cells, compiled, instruction
from sim.twins.rfsoc.tproc_v2.execution import Execution
from sim.twins.rfsoc.tproc_v2.instruction import decode_instruction

COLUMN_COUNTS = {"pmem": 3, "dmem": 1, "wmem": 6}
COLUMN_MASKS = {
    "pmem": np.array([0xFFFF_FFFF, 0xFFFF_FFFF, 0xFF], np.uint32),
    "dmem": np.array([0xFFFF_FFFF], np.uint32),
    "wmem": np.array([0xFFFF_FFFF, 0xFFFF_FFFF, 0xFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF], np.uint32),
}
"""Mask of the bits of each column that a memory stores."""
COMPILE_THRESHOLD = 500_000
"""Number of instructions of a run after which it is compiled. Compilation takes some seconds, but only once."""
INSTRUCTION_LIMIT = 10_000_000
UNCOMPILED_INSTRUCTION_LIMIT = 2_000_000
"""Default instruction limit without numba. Both limits take a few seconds to reach."""
_ERROR_REASONS = {
    cells.ENDLESS_WAIT: "waits for a flag that nothing can change: set it before, or update flags in the jump",
    cells.TOO_DEEP: f"is a call inside {cells.MAX_CALL_DEPTH} others, and the stack of return addresses is full",
    cells.TOO_SHALLOW: "returns without a call: end the main program with end() before its subroutines",
    cells.TOO_EARLY: (
        "sends a word at a time before the start, which the processor never reaches: delay the reference first"
    ),
    cells.UNKNOWN: "is not a valid instruction: load a program made by QICK's assembler of tProc v2",
}

_UNSIMULATED_FEATURES = {
    cells.UNSIMULATED_FLAG_SOURCE: (
        "a flag from another source than the internal one and the arithmetic units",
        "use FLAG",
    ),
    cells.UNSIMULATED_DATA_SOURCE: (
        "core data from another source than host and multiplier",
        "use DPORT_RD for readouts",
    ),
}


class Memories:
    """Program, data and wave memory, as DMA writes and reads them. `version` counts changes of their contents.

    A block from QICK has lines of eight 32-bit words. An instruction uses three of these words. A wave uses six: its
    envelope address has 24 bits and its configuration 16. The data memory uses single words.
    """

    def __init__(self, pmem_words: int, dmem_words: int, wmem_words: int) -> None:
        sizes = {"pmem": pmem_words, "dmem": dmem_words, "wmem": wmem_words}
        self._banks = {name: np.zeros((size, COLUMN_COUNTS[name]), np.uint32) for name, size in sizes.items()}
        self.version = 0

    def write(self, name: str, data: Any, address: int = 0) -> None:
        """Write a block: (n, 8) for programs and waves (unused columns may be absent), (n,) for data.

        Raise `ProgramError` for an unknown memory, or a block that does not fit.
        """
        lines = self._make_lines(name, data)
        bank = self._get_block(name, len(lines), address)
        if not np.array_equal(bank, lines):
            bank[:] = lines
            self.version += 1

    def read(self, name: str, length: int, address: int = 0) -> npt.NDArray[np.int32]:
        """Return a block: (n, 3) for programs, (n, 6) for waves, (n,) for data. Raise `ProgramError` like `write`."""
        block = self._get_block(name, length, address).view(np.int32).copy()
        return block.ravel() if name == "dmem" else block

    def list_numbers(self, name: str) -> list[int]:
        """Return the contents of a memory as a flat list of unsigned numbers."""
        numbers: list[int] = self._banks[name].ravel().tolist()
        return numbers

    def replace_contents(self, name: str, numbers: Any) -> None:
        """Replace the contents of a memory. `numbers` is a flat sequence of unsigned numbers."""
        self.write(name, np.asarray(numbers, np.int64).reshape(-1, COLUMN_COUNTS[name]))

    def list_instructions(self, count: int) -> list[int]:
        """Return the first `count` words of the program memory, 72 bits each."""
        return [low | middle << 32 | high << 64 for low, middle, high in self._banks["pmem"][:count].tolist()]

    def _get_block(self, name: str, length: int, address: int) -> npt.NDArray[np.uint32]:
        bank = self._get_bank(name)
        if address < 0 or length < 0 or address + length > len(bank):
            raise ProgramError(
                f"{length} words from address {address} on do not fit into {name}, which has {len(bank)}: "
                "shorten the program, or use firmware with larger memories"
            )
        return bank[address : address + length]

    def _get_bank(self, name: str) -> npt.NDArray[np.uint32]:
        if name not in self._banks:
            raise ProgramError(f"there is no memory {name!r}: use one of {', '.join(self._banks)}")
        return self._banks[name]

    def _make_lines(self, name: str, data: Any) -> npt.NDArray[np.uint32]:
        column_count = self._get_bank(name).shape[1]
        block = np.asarray(data, np.int64)
        block = block.reshape(-1, 1) if block.ndim == 1 else block
        if block.ndim != 2 or block.shape[1] < column_count:
            raise ProgramError(
                f"a block for {name} must have at least {column_count} words per line, not shape {block.shape}: "
                "pass (n, 8) for programs and waves, (n,) for data"
            )
        return (block[:, :column_count] & COLUMN_MASKS[name]).astype(np.uint32)


class TprocV2:
    """The processor `qick_processor` of QICK firmware: a `processor.Processor`.

    `dreg_qty` and `fifo_depth` are build parameters of the firmware. `ticks_per_cycle` is the ratio of the timing clock
    to the core clock. A run raises an error after `instruction_limit` instructions, because the program
    is probably endless. The default limit takes a few seconds.
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
        instruction_limit: int | None = None,
    ) -> None:
        self._memories = Memories(pmem_words, dmem_words, wmem_words)
        self._dreg_qty = dreg_qty
        self._fifo_depth = fifo_depth
        self._ticks_per_cycle = Fraction(ticks_per_cycle).limit_denominator(4096)
        self._instruction_limit = instruction_limit
        self._loaded_blocks: Mapping[str, Any] = {"pmem": None, "dmem": None, "wmem": None}
        self._program_length = 0
        self._registers = [0] * cells.REGISTER_COUNT
        self._random_word = 0
        self._lfsr_mode = 0
        self._host_words = (0, 0)
        self._change_count = 0

    @classmethod
    def from_config(
        cls, processor_config: Mapping[str, Any], *, instruction_limit: int | None = None
    ) -> TprocV2:
        """Return a processor with the sizes, queue depth and clocks of an entry of `soccfg["tprocs"]`."""
        return cls(
            processor_config["pmem_size"],
            processor_config["dmem_size"],
            processor_config["wmem_size"],
            dreg_qty=processor_config["dreg_qty"],
            fifo_depth=processor_config["fifo_depth"],
            ticks_per_cycle=processor_config["f_time"] / processor_config["f_core"],
            instruction_limit=instruction_limit,
        )

    # ------------------------------------------------------------------------------------- memories
    def load_bin_program(self, binprog: Any, *, load_mem: bool = True) -> None:
        """Load a compiled program: a mapping of pmem, dmem and wmem to blocks or None.

        Raise `ProgramError` if it does not fit.
        """
        self.load_mem("pmem", binprog["pmem"])
        self._loaded_blocks = dict(binprog)
        self._set_program_length(len(binprog["pmem"]))
        if load_mem:
            self.reload_mem()

    def reload_mem(self) -> None:
        """Restore waveform and data memory to the contents of the loaded program."""
        for name in ("wmem", "dmem"):
            if self._loaded_blocks[name] is not None:
                self.load_mem(name, self._loaded_blocks[name])

    def load_mem(self, mem_sel: str, data: Any, addr: int = 0) -> None:
        """Write a block of "pmem", "dmem" or "wmem". Raise `ProgramError` if it does not fit."""
        self._memories.write(mem_sel, data, addr)
        if mem_sel == "pmem":
            self._set_program_length(max(self._program_length, addr + len(data)))

    def read_mem(self, mem_sel: str, length: int, addr: int = 0) -> npt.NDArray[np.int32]:
        """Return a block: (n, 3) for "pmem", (n, 6) for "wmem", (n,) for "dmem". Raise `ProgramError` if invalid."""
        return self._memories.read(mem_sel, length, addr)

    def _set_program_length(self, length: int) -> None:
        self._change_count += length != self._program_length
        self._program_length = length

    # ------------------------------------------------------------------------------- settings of the host
    def set_lfsr(self, mode: int) -> None:
        """Set when the random register changes: never (0), at each read of `s1` (2), or at each write of `s0` (3).

        Raise `NotSimulated` for 1 (free-running).
        """
        if mode == 1:
            raise NotSimulated(
                "the free-running random register", "use mode 2 (step on read) or 3 (step on write)"
            )
        self._change_count += mode != self._lfsr_mode
        self._lfsr_mode = mode

    def set_host_words(self, first: int, second: int) -> None:
        """Set the two registers that programs read as `s_core_r1` and `s_core_r2`."""
        words = (first & cells.WORD_MASK, second & cells.WORD_MASK)
        self._change_count += words != self._host_words
        self._host_words = words

    # -------------------------------------------------------------------------------------- execution
    @property
    def version(self) -> int:
        """Number that changes with program, memory and settings. While it is the same, a run may be reused."""
        return self._change_count + self._memories.version

    @property
    def registers(self) -> dict[str, int]:
        """Registers after the last run as unsigned numbers, by assembler name (s0.., r0.., w0..)."""
        names = [*(f"s{n}" for n in range(32)), *(f"r{n}" for n in range(32)), *(f"w{n}" for n in range(8))]
        return dict(zip(names, self._registers, strict=True))

    def reset(self) -> None:
        """Set registers and program counter to zero. Keep the memories and the random register."""
        self._registers = [0] * cells.REGISTER_COUNT

    def run(self, read_input: ReadInput) -> Run:
        """Execute the loaded program from its beginning to its end.

        Raise `ProgramError` for an invalid instruction, an address outside the program, a wait that nothing can end,
        and a program that exceeds the limit; raise `NotSimulated` for features that the twin lacks.
        """
        execution = self._make_execution()
        stop_code = cells.CONTINUE
        while stop_code != cells.END:
            stop_code = execution.run_until_stop(self._get_pause_step(execution))
            self._continue_or_raise(stop_code, execution, read_input)
        self._store_results(execution)
        return execution.make_run()

    def _make_execution(self) -> Execution:
        self.reset()
        words = self._memories.list_instructions(self._program_length)
        state = {
            cells.PROGRAM_LENGTH: len(words),
            cells.RATIO_TICKS: self._ticks_per_cycle.numerator,
            cells.RATIO_CYCLES: self._ticks_per_cycle.denominator,
            cells.QUEUE_DEPTH: self._fifo_depth,
            cells.LFSR_MODE: self._lfsr_mode,
            cells.HOST_WORDS: self._host_words[0],
            cells.HOST_WORDS + 1: self._host_words[1],
        }
        registers = {1: self._random_word, 6: self._host_words[0], 7: self._host_words[1], 10: 0b0101}
        code = [number for word in words for number in decode_instruction(word, self._dreg_qty)]
        dmem, wmem = self._memories.list_numbers("dmem"), self._memories.list_numbers("wmem")
        execution = Execution(code, registers, state, dmem, wmem)
        if compiled.is_ready():
            self._switch_to_compiled_code(execution)
        return execution

    def _get_pause_step(self, execution: Execution) -> int:
        """Return the number of instructions after which to compile, or the limit once compilation was tried."""
        limit = self._get_limit(execution)
        return (
            limit
            if execution.step_count >= COMPILE_THRESHOLD or execution.is_compiled
            else min(COMPILE_THRESHOLD, limit)
        )

    def _get_limit(self, execution: Execution) -> int:
        """Return the configured instruction limit, or the default for compiled or uncompiled code."""
        return self._instruction_limit or (
            INSTRUCTION_LIMIT if execution.is_compiled else UNCOMPILED_INSTRUCTION_LIMIT
        )

    def _switch_to_compiled_code(self, execution: Execution) -> None:
        executor = compiled.get_executor()
        if executor is not None:
            execution.use_compiled_code(executor)

    def _continue_or_raise(self, stop_code: int, execution: Execution, read_input: ReadInput) -> None:
        """Do what the stop code requests, or raise the error that it means."""
        if stop_code in {cells.END, cells.RECORDS_FULL}:
            execution.collect_records()
        elif stop_code == cells.READ_INPUT:
            execution.answer_read(read_input)
        elif stop_code == cells.PAUSE and execution.step_count < self._get_limit(execution):
            self._switch_to_compiled_code(execution)
        elif stop_code == cells.PAUSE:
            message = describe_endless_program(f"{execution.step_count} instructions", execution.step_count)
            raise ProgramError(f"at address {execution.address}: {message}; does it end with end()?")
        else:
            words = self._memories.list_instructions(self._program_length)[
                execution.address : execution.address + 1
            ]
            raise make_error(stop_code, execution.address, words[0] if words else None, self._program_length)

    def _store_results(self, execution: Execution) -> None:
        """Store registers and memories after a run. If this can change the next run, `version` changes."""
        self._registers = execution.list_registers()
        self._change_count += self._random_word != self._registers[1]
        self._random_word = self._registers[1]
        self._memories.replace_contents("dmem", execution.dmem)
        self._memories.replace_contents("wmem", execution.wmem)


def make_error(stop_code: int, address: int, word: int | None, length: int) -> Exception:
    """Return the exception for a stop code at an address. `word` is its instruction, or None outside the program."""
    if word is None:
        return ProgramError(
            f"address {address} is outside the program, which has {length} words: end it with end(), "
            "and keep jumps inside it"
        )
    location = f"the instruction at address {address} (word 0x{word:018x})"
    if stop_code in _ERROR_REASONS:
        return ProgramError(f"{location} {_ERROR_REASONS[stop_code]}")
    feature, hint = _UNSIMULATED_FEATURES.get(
        stop_code,
        (instruction.describe_refused_instruction(word), "leave it out of the program, or use a board"),
    )
    return NotSimulated(f"{feature}, {location},", hint)
