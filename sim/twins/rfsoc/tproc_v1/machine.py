"""The inner machine, which executes instructions and counts ticks. It is compiled if numba is installed.

All functions use flat sequences of integers: arrays if compiled, otherwise lists. The same source therefore runs in
both ways. Words are stored as 0 to 2**32 - 1. Import this module only to run a program: importing numba is slow.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TypeAlias

from sim.twins.rfsoc.tproc_v1 import instructions as field
from sim.twins.rfsoc.tproc_v1.compiled import compile_function
from sim.twins.rfsoc.tproc_v1.instructions import FIELD_COUNT, InstructionKind

Numbers: TypeAlias = MutableSequence[int]

WORD_MASK = 0xFFFF_FFFF
TIME_MASK = (1 << 48) - 1
"""Times have 48 bits."""

PC, TICK, TIME_OFFSET, STACK_DEPTH, STEP_COUNT, SENT_COUNT, STORED_COUNT = range(7)
"""Indices of `state`: address and tick of the decoding of the next instruction, time offset, words on the stack,
instructions executed, words sent to channels, words stored in memory."""
STATE_SIZE = 7

STACK_SIZE = 255
QUEUE_SIZE = 15
"""Capacity of a channel's queue, besides the word that waits for its time."""
QUEUE_STRIDE = QUEUE_SIZE + 2
"""Number of integers for each channel: ticks at which the latest words left the queue (a ring buffer), count of all
words, and tick at which the last word took effect."""
WORD_COUNT, LAST_TICK = QUEUE_SIZE, QUEUE_SIZE + 1

SENT_STRIDE = 7  # channel, time, five words
STORED_STRIDE = 3  # address, time, word

RUNNING, ENDED, READING, UNKNOWN, OUTSIDE, OVERFLOW, UNDERFLOW, LIMIT_REACHED, BUFFERS_FULL = range(9)
"""Reason why the machine stopped: none (it continues); `end`; it needs a word of an input port; an unknown opcode; an
address outside the program; a full or an empty stack; too many instructions; no capacity for more events."""

_ASSIGN, _FETCH, _STORE = int(InstructionKind.ASSIGN), int(InstructionKind.FETCH), int(InstructionKind.STORE)
_CALCULATE, _PUSH, _POP = int(InstructionKind.CALCULATE), int(InstructionKind.PUSH), int(InstructionKind.POP)
_SYNC, _SEND, _WAIT = int(InstructionKind.SYNC), int(InstructionKind.SEND), int(InstructionKind.WAIT)
_LOOP, _BRANCH, _READ, _END = (
    int(InstructionKind.LOOP),
    int(InstructionKind.BRANCH),
    int(InstructionKind.READ),
    int(InstructionKind.END),
)
_KIND, _TICKS, _USES_IMMEDIATE, _OPERATION = field.KIND, field.TICKS, field.USES_IMMEDIATE, field.OPERATION
_CHANNEL, _A, _B, _C, _D, _E = field.CHANNEL, field.A, field.B, field.C, field.D, field.E
_F, _G, _IMMEDIATE_VALUE, _TARGET = field.F, field.G, field.IMMEDIATE_VALUE, field.TARGET


@compile_function
def convert_to_signed(word: int, bits: int) -> int:
    """Return the lowest bits of a word as a signed number."""
    half = 1 << (bits - 1)
    return ((word & (2 * half - 1)) ^ half) - half


@compile_function
def calculate(operation: int, a: int, b: int) -> int:
    """Return the result of an operation. Codes below 8 are bit-wise, codes from 8 arithmetic; invalid codes give 0."""
    result = 0
    if operation == 8:
        result = a + b
    elif operation == 9:
        result = a - b
    elif operation == 10:
        result = convert_to_signed(a, 16) * convert_to_signed(b, 16)
    elif operation == 0:
        result = a & b
    elif operation == 1:
        result = a | b
    elif operation == 2:
        result = a ^ b
    elif operation == 3:
        result = ~b
    elif operation == 4:
        result = a << (b & 31)
    elif operation == 5:
        result = a >> (b & 31)
    return result & WORD_MASK


@compile_function
def compare(operation: int, a: int, b: int) -> bool:
    """Return True if a signed comparison is true. An invalid code is never true."""
    left, right = convert_to_signed(a, 32), convert_to_signed(b, 32)
    if operation < 2:
        return left > right or (operation == 1 and left == right)
    if operation < 4:
        return left < right or (operation == 3 and left == right)
    return (operation == 4 and left == right) or (operation == 5 and left != right)


@compile_function
def get_operand(code: Sequence[int], row: int, registers: Numbers, register: int) -> int:
    """Return the immediate or the value of a register, whichever the instruction selects."""
    return code[row + _IMMEDIATE_VALUE] if code[row + _USES_IMMEDIATE] else registers[code[row + register]]


@compile_function
def write_register(registers: Numbers, register: int, word: int) -> None:
    """Write a register. Register 0 of each page stays zero."""
    if register & 31:
        registers[register] = word


@compile_function
def execute_assignment(code: Sequence[int], row: int, registers: Numbers, memory: Numbers) -> None:
    """Execute an instruction that writes a register: an immediate, a calculation, or a word of memory."""
    kind = code[row + _KIND]
    if kind == _ASSIGN:
        word = code[row + _IMMEDIATE_VALUE]
    elif kind == _CALCULATE:
        word = calculate(
            code[row + _OPERATION], registers[code[row + _B]], get_operand(code, row, registers, _C)
        )
    else:
        word = memory[get_operand(code, row, registers, _B) & (len(memory) - 1)]
    write_register(registers, code[row + _A], word)


@compile_function
def store_word(
    code: Sequence[int], row: int, registers: Numbers, memory: Numbers, state: Numbers, stored_words: Numbers
) -> None:
    """Store a word in memory. It is readable from the tick at which the next instruction is decoded."""
    address = get_operand(code, row, registers, _B) & (len(memory) - 1)
    word = registers[code[row + _C]]
    memory[address] = word
    position = state[STORED_COUNT] * STORED_STRIDE
    stored_words[position], stored_words[position + 1], stored_words[position + 2] = (
        address,
        state[TICK],
        word,
    )
    state[STORED_COUNT] += 1


@compile_function
def execute_stack_instruction(
    code: Sequence[int], row: int, registers: Numbers, stack: Numbers, state: Numbers
) -> int:
    """Execute `pushi` or `popi`. Return RUNNING, OVERFLOW if the stack is full, or UNDERFLOW if it is empty."""
    depth = state[STACK_DEPTH]
    if code[row + _KIND] == _PUSH:
        if depth == STACK_SIZE:
            return OVERFLOW
        stack[depth] = registers[code[row + _B]]
        state[STACK_DEPTH] = depth + 1
        write_register(registers, code[row + _A], code[row + _IMMEDIATE_VALUE])
    else:
        if depth == 0:
            return UNDERFLOW
        state[STACK_DEPTH] = depth - 1
        write_register(registers, code[row + _A], stack[depth - 1])
    return RUNNING


@compile_function
def enqueue_word(queues: Numbers, channel: int, entry_tick: int, due_tick: int) -> int:
    """Put a word into a channel's queue at `entry_tick`, or later when the queue has space. Return the tick of entry.

    The word leaves the queue two ticks after it entered, or three ticks after the previous word took effect. It takes
    effect when it is due, or at once if that tick has passed. That tick becomes the channel's `LAST_TICK`.
    """
    base = channel * QUEUE_STRIDE
    slot = base + queues[base + WORD_COUNT] % QUEUE_SIZE
    entry_tick = max(entry_tick, queues[slot])
    leave_tick = max(entry_tick + 2, queues[base + LAST_TICK] + 3)
    queues[slot] = leave_tick
    queues[base + WORD_COUNT] += 1
    queues[base + LAST_TICK] = max(leave_tick, due_tick)
    return entry_tick


@compile_function
def send_word(
    code: Sequence[int], row: int, registers: Numbers, queues: Numbers, state: Numbers, sent_words: Numbers
) -> None:
    """Send a word of 160 or 32 bits to a channel. If the queue is full, the instruction takes longer."""
    channel = code[row + _CHANNEL]
    due_tick = (state[TIME_OFFSET] + get_operand(code, row, registers, _C)) & TIME_MASK
    earliest_tick = state[TICK] - 2
    state[TICK] += enqueue_word(queues, channel, earliest_tick, due_tick) - earliest_tick
    position = state[SENT_COUNT] * SENT_STRIDE
    sent_words[position], sent_words[position + 1] = channel, queues[channel * QUEUE_STRIDE + LAST_TICK]
    sent_words[position + 2] = registers[code[row + _B]]
    has_160_bits = not code[row + _USES_IMMEDIATE]
    sent_words[position + 3] = registers[code[row + _D]] if has_160_bits else 0
    sent_words[position + 4] = registers[code[row + _E]] if has_160_bits else 0
    sent_words[position + 5] = registers[code[row + _F]] if has_160_bits else 0
    sent_words[position + 6] = registers[code[row + _G]] if has_160_bits else 0
    state[SENT_COUNT] += 1


@compile_function
def wait_for_channel(
    code: Sequence[int], row: int, registers: Numbers, queues: Numbers, state: Numbers
) -> None:
    """Wait until all earlier words of the channel have taken effect, and the time has come."""
    channel = code[row + _CHANNEL]
    due_tick = (state[TIME_OFFSET] + get_operand(code, row, registers, _C)) & TIME_MASK
    enqueue_word(queues, channel, state[TICK] - 5, due_tick)
    state[TICK] = queues[channel * QUEUE_STRIDE + LAST_TICK] + 3


@compile_function
def execute_jump(code: Sequence[int], row: int, registers: Numbers, state: Numbers) -> None:
    """Execute `loopnz` or `condj`."""
    b = registers[code[row + _B]]
    operation = code[row + _OPERATION]
    if code[row + _KIND] == _BRANCH:
        if compare(operation, b, registers[code[row + _C]]):
            state[PC] = code[row + _TARGET]
            state[TICK] += 1
    elif b:
        write_register(registers, code[row + _A], calculate(operation, b, WORD_MASK))
        state[PC] = code[row + _TARGET]
        state[TICK] += 3


@compile_function
def execute_instruction(
    code: Sequence[int],
    row: int,
    registers: Numbers,
    memory: Numbers,
    stack: Numbers,
    queues: Numbers,
    state: Numbers,
    sent_words: Numbers,
    stored_words: Numbers,
) -> int:
    """Execute one instruction of any kind except `READ`, `END` and `UNKNOWN`. Return the status."""
    kind = code[row + _KIND]
    state[PC] += 1
    state[TICK] += code[row + _TICKS]
    if kind <= _FETCH:
        execute_assignment(code, row, registers, memory)
    elif kind == _SEND:
        send_word(code, row, registers, queues, state, sent_words)
    elif kind == _SYNC:
        state[TIME_OFFSET] = (state[TIME_OFFSET] + get_operand(code, row, registers, _C)) & TIME_MASK
    elif kind == _STORE:
        store_word(code, row, registers, memory, state, stored_words)
    elif kind == _WAIT:
        wait_for_channel(code, row, registers, queues, state)
    elif kind >= _LOOP:
        execute_jump(code, row, registers, state)
    else:
        return execute_stack_instruction(code, row, registers, stack, state)
    return RUNNING


@compile_function
def find_stop_reason(kind: int) -> int:
    """Return the reason to stop before an instruction of a kind, or RUNNING if there is none."""
    if kind == _END:
        return ENDED
    if kind == _READ:
        return READING
    return RUNNING if kind else UNKNOWN


@compile_function
def execute(
    code: Sequence[int],
    registers: Numbers,
    memory: Numbers,
    stack: Numbers,
    queues: Numbers,
    state: Numbers,
    sent_words: Numbers,
    stored_words: Numbers,
    instruction_limit: int,
) -> int:
    """Execute instructions until something stops the machine, and return the reason.

    The state is then the state before the instruction that stopped the machine. For a full or empty stack, the
    instruction has already increased PC, TICK and STEP_COUNT.
    """
    status = RUNNING
    while status == RUNNING:
        row = state[PC] * FIELD_COUNT
        if row >= len(code):
            return OUTSIDE
        status = find_stop_reason(code[row + _KIND])
        if status != RUNNING:
            return status
        if state[STEP_COUNT] >= instruction_limit:
            return LIMIT_REACHED
        if (state[SENT_COUNT] + 1) * SENT_STRIDE > len(sent_words) or (
            state[STORED_COUNT] + 1
        ) * STORED_STRIDE > len(stored_words):
            return BUFFERS_FULL
        state[STEP_COUNT] += 1
        status = execute_instruction(
            code, row, registers, memory, stack, queues, state, sent_words, stored_words
        )
    return status
