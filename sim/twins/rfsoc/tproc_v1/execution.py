"""Execution of one program by `machine.execute`: event buffers, input ports, errors, and the resulting `Run`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.processor import (
    COUNT_DTYPE,
    PIN_DTYPE,
    WRITE_DTYPE,
    ProgramError,
    ReadInput,
    Run,
    describe_endless_program,
)
from sim.twins.rfsoc.tproc_v1 import machine
from sim.twins.rfsoc.tproc_v1.compiled import IS_COMPILED
from sim.twins.rfsoc.tproc_v1.instructions import CHANNEL, FIELD_COUNT, OPERATION, A
from sim.twins.rfsoc.tproc_v1.memories import Memories

Array: TypeAlias = npt.NDArray[np.int64]

CHANNEL_COUNT = 8
INPUT_COUNT = 4
UPPER_HALF_OPERATION = 0b1010
"""Operation code with which `read` returns the upper half."""
READ_TICKS = 2
INITIAL_CAPACITY = 256
"""Initial capacity for events. The capacity doubles when it is exhausted."""
_ERROR_REASONS = {
    machine.UNKNOWN: "opcode {opcode:#04x} is not valid for the timed processor (version 1); a board would stop "
    "without an error; compile the program again, and make sure that every path reaches `end`",
    machine.OVERFLOW: "`pushi` on a full stack; a board would stop without an error; pop as often as you push",
    machine.UNDERFLOW: "`popi` from an empty stack; a board would stop without an error; push before you pop",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers of instructions and events after which a program counts as endless."""

    max_instructions: int
    max_events: int


class Execution:
    """The execution of a program from its first instruction to `end`. It changes `memories` only when it ends."""

    def __init__(
        self, words: npt.NDArray[np.uint64], code: Array, memories: Memories, data_ports: Collection[int]
    ) -> None:
        self._program_words = words
        self._memories = memories
        self._data_ports = data_ports
        self._decoded_program = _to_machine(code.reshape(-1))
        self._registers = _to_machine(memories.registers)
        self._data = _to_machine(memories.data)
        self._stack = _to_machine(memories.stack)
        self._queues = _to_machine(_make_queues())
        self._state = _to_machine(_make_first_state(memories.depth))
        self._sent_words = _to_machine(np.zeros(INITIAL_CAPACITY * machine.SENT_STRIDE, np.int64))
        self._stored_words = _to_machine(np.zeros(INITIAL_CAPACITY * machine.STORED_STRIDE, np.int64))
        self.has_read_input = False
        """True if the program has read an input port. Another run may then differ."""

    def collect_events(self) -> Run:
        """Return all events so far, even if they take effect later. `end_tick` is the current tick."""
        sent_words = _to_array(self._sent_words)[: self._state[machine.SENT_COUNT] * machine.SENT_STRIDE]
        stored_words = _to_array(self._stored_words)[
            : self._state[machine.STORED_COUNT] * machine.STORED_STRIDE
        ]
        return make_run(
            sent_words.reshape(-1, machine.SENT_STRIDE),
            stored_words.reshape(-1, machine.STORED_STRIDE),
            int(self._state[machine.TICK]),
            self._data_ports,
        )

    def run_to_end(self, read_input: ReadInput, limits: Limits) -> Run:
        """Execute the program to its end. Raise `ProgramError`; memory changes before the error are kept."""
        try:
            while (status := self._execute(limits.max_instructions)) != machine.ENDED:
                self._continue_or_raise(status, read_input, limits)
        finally:
            self._store_memories()
        self._state[machine.TICK] += 1
        return self.collect_events()

    def _continue_or_raise(self, status: int, read_input: ReadInput, limits: Limits) -> None:
        if status == machine.READING:
            self._execute_read(read_input)
        elif status == machine.BUFFERS_FULL and self._count_events() < limits.max_events:
            self._grow_buffers()
        else:
            raise self._make_error(status)

    def _count_events(self) -> int:
        return int(self._state[machine.SENT_COUNT] + self._state[machine.STORED_COUNT])

    def _execute(self, instruction_limit: int) -> int:
        return machine.execute(
            self._decoded_program,
            self._registers,
            self._data,
            self._stack,
            self._queues,
            self._state,
            self._sent_words,
            self._stored_words,
            instruction_limit,
        )

    def _execute_read(self, read_input: ReadInput) -> None:
        """Execute the instruction `read`. Ports 4 to 7 do not exist, and their value is 0."""
        row = self._state[machine.PC] * FIELD_COUNT
        channel, half = (
            int(self._decoded_program[row + CHANNEL]),
            int(self._decoded_program[row + OPERATION] == UPPER_HALF_OPERATION),
        )
        tick = int(self._state[machine.TICK]) + 1
        value = read_input(channel, half, tick) & machine.WORD_MASK if channel < INPUT_COUNT else 0
        machine.write_register(self._registers, self._decoded_program[row + A], value)
        self._state[machine.PC] += 1
        self._state[machine.TICK] += READ_TICKS
        self._state[machine.STEP_COUNT] += 1
        self.has_read_input = True

    def _grow_buffers(self) -> None:
        if (self._state[machine.SENT_COUNT] + 1) * machine.SENT_STRIDE > len(self._sent_words):
            self._sent_words = _double_capacity(self._sent_words)
        else:
            self._stored_words = _double_capacity(self._stored_words)

    def _store_memories(self) -> None:
        """Copy registers, data and stack back to the memories, because they outlive the run."""
        self._memories.registers[:] = self._registers
        self._memories.data[:] = self._data
        self._memories.stack[:] = self._stack
        self._memories.depth = int(self._state[machine.STACK_DEPTH])

    def _make_error(self, status: int) -> ProgramError:
        address = int(self._state[machine.PC])
        if status in {machine.OVERFLOW, machine.UNDERFLOW}:
            address -= 1  # the machine stopped after it had increased the program counter
        if address >= len(self._program_words):
            return ProgramError(
                f"at address {address}, without word: the program has only {len(self._program_words)} words; make sure "
                "that every path reaches `end`"
            )
        value = int(self._program_words[address])
        reason = self._describe_endless(status) or _ERROR_REASONS[status].format(opcode=value >> 56)
        return ProgramError(f"at address {address}, word {value:#018x}: {reason}")

    def _describe_endless(self, status: int) -> str:
        """Return the message for a run that exceeds a limit, or an empty text for any other status."""
        steps = int(self._state[machine.STEP_COUNT])
        progress = {
            machine.LIMIT_REACHED: f"{steps} instructions",
            machine.BUFFERS_FULL: f"{self._count_events()} words sent and stored",
        }
        return describe_endless_program(progress[status], steps) if status in progress else ""


def _to_machine(array: Array) -> Any:
    """Return an array if the machine is compiled. Otherwise return a list, which is faster to index."""
    return array if IS_COMPILED else array.tolist()


def _to_array(numbers: Any) -> Array:
    return np.asarray(numbers, np.int64)


def _double_capacity(numbers: Any) -> Any:
    larger = np.zeros(2 * len(numbers), np.int64)
    larger[: len(numbers)] = numbers
    return _to_machine(larger)


def _make_queues() -> Array:
    queues = np.zeros((CHANNEL_COUNT, machine.QUEUE_STRIDE), np.int64)
    queues[:, machine.LAST_TICK] = -3  # early enough not to delay the first word
    return queues.reshape(-1)


def _make_first_state(depth: int) -> Array:
    state = np.zeros(machine.STATE_SIZE, np.int64)
    state[machine.TICK], state[machine.STACK_DEPTH] = 1, depth
    return state


def make_run(
    sent_words: npt.NDArray[np.int64],
    stored_words: npt.NDArray[np.int64],
    end_tick: int,
    data_ports: Collection[int],
) -> Run:
    """Return the run of `sent_words` (n, 7: channel, time, five parts) and `stored_words` (n, 3: address, time, word).

    Words to `data_ports` are levels of pins. All other words go to generators and readouts. Words that take effect at
    the same tick stay in the order in which the program sent them.
    """
    ordered_words = sent_words[np.argsort(sent_words[:, 1], kind="stable")]
    is_pin_word = np.isin(ordered_words[:, 0], list(data_ports))
    return Run(
        _make_writes(ordered_words[~is_pin_word]),
        _make_pins(ordered_words[is_pin_word]),
        _make_counts(stored_words),
        end_tick,
    )


def _make_writes(sent_words: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    writes = np.zeros(len(sent_words), WRITE_DTYPE)
    writes["port"], writes["time"] = sent_words[:, 0], sent_words[:, 1]
    writes["words"][:, :5] = sent_words[:, 2:]
    return writes


def _make_pins(sent_words: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    pins = np.zeros(len(sent_words), PIN_DTYPE)
    pins["port"], pins["time"], pins["word"] = sent_words[:, 0], sent_words[:, 1], sent_words[:, 2]
    return pins


def _make_counts(stored_words: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    counts = np.zeros(len(stored_words), COUNT_DTYPE)
    counts["address"], counts["time"] = stored_words[:, 0], stored_words[:, 1]
    counts["value"] = stored_words[:, 2].astype(np.uint32).view(np.int32)
    return counts
