"""The inner machine, which executes instructions and counts ticks. It is compiled if numba is installed.

All functions use flat sequences of integers: arrays if compiled, otherwise lists. The same source therefore runs in
both ways. Words are stored as 0 to 2**32 - 1. Import this module only to run a program: importing numba is slow.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TypeAlias

from sim.twins.rfsoc.tproc_v1 import instructions as field
from sim.twins.rfsoc.tproc_v1.compiled import compile_function
from sim.twins.rfsoc.tproc_v1.instructions import FIELDS, Kind

Numbers: TypeAlias = MutableSequence[int]

WORD = 0xFFFF_FFFF
SIGN = 0x8000_0000
CLOCK = (1 << 48) - 1
"""Times have 48 bits."""

PC, TICK, OFFSET, DEPTH, STEPS, SENT, STORED = range(7)
"""Indices of `state`: address and tick of the decoding of the next instruction, time offset, words on the stack,
instructions executed, words sent to channels, words stored in memory."""
STATE_SIZE = 7

STACK_SIZE = 255
QUEUE_SIZE = 15
"""Capacity of a channel's queue, besides the word that waits for its time."""
QUEUE_STRIDE = QUEUE_SIZE + 2
"""Number of integers for each channel: ticks at which the latest words left the queue (a ring buffer), count of all
words, and tick at which the last word took effect."""
COUNT, LAST = QUEUE_SIZE, QUEUE_SIZE + 1

SENT_STRIDE = 7  # channel, time, five words
STORED_STRIDE = 3  # address, time, word

RUNNING, ENDED, READING, UNKNOWN, OUTSIDE, OVERFLOW, UNDERFLOW, LIMIT, FULL = range(9)
"""Reason why the machine stopped: none (it continues); `end`; it needs a word of an input port; an unknown opcode; an
address outside the program; a full or an empty stack; too many instructions; no capacity for more events."""

_ASSIGN, _FETCH, _STORE = int(Kind.ASSIGN), int(Kind.FETCH), int(Kind.STORE)
_CALCULATE, _PUSH, _POP = int(Kind.CALCULATE), int(Kind.PUSH), int(Kind.POP)
_SYNC, _SEND, _WAIT = int(Kind.SYNC), int(Kind.SEND), int(Kind.WAIT)
_LOOP, _BRANCH, _READ, _END = int(Kind.LOOP), int(Kind.BRANCH), int(Kind.READ), int(Kind.END)
_KIND, _TICKS, _IMMEDIATE, _OPER = field.KIND, field.TICKS, field.IMMEDIATE, field.OPER
_CHANNEL, _A, _B, _C, _D, _E = field.CHANNEL, field.A, field.B, field.C, field.D, field.E
_F, _G, _IMM, _TARGET = field.F, field.G, field.IMM, field.TARGET


@compile_function
def sign(word: int, bits: int) -> int:
    """Return the lowest bits of a word as a signed number."""
    half = 1 << (bits - 1)
    return ((word & (2 * half - 1)) ^ half) - half


@compile_function
def calculate(oper: int, a: int, b: int) -> int:
    """Return the result of an operation. Codes below 8 are bit-wise, codes from 8 arithmetic; invalid codes give 0."""
    result = 0
    if oper == 8:
        result = a + b
    elif oper == 9:
        result = a - b
    elif oper == 10:
        result = sign(a, 16) * sign(b, 16)
    elif oper == 0:
        result = a & b
    elif oper == 1:
        result = a | b
    elif oper == 2:
        result = a ^ b
    elif oper == 3:
        result = ~b
    elif oper == 4:
        result = a << (b & 31)
    elif oper == 5:
        result = a >> (b & 31)
    return result & WORD


@compile_function
def compare(oper: int, a: int, b: int) -> bool:
    """Return True if a signed comparison is true. An invalid code is never true."""
    left, right = sign(a, 32), sign(b, 32)
    if oper < 2:
        return left > right or (oper == 1 and left == right)
    if oper < 4:
        return left < right or (oper == 3 and left == right)
    return (oper == 4 and left == right) or (oper == 5 and left != right)


@compile_function
def get_operand(code: Sequence[int], row: int, regs: Numbers, register: int) -> int:
    """Return the immediate or the value of a register, whichever the instruction selects."""
    return code[row + _IMM] if code[row + _IMMEDIATE] else regs[code[row + register]]


@compile_function
def assign(regs: Numbers, register: int, word: int) -> None:
    """Write a register. Register 0 of each page stays zero."""
    if register & 31:
        regs[register] = word


@compile_function
def take_word(code: Sequence[int], row: int, regs: Numbers, memory: Numbers) -> None:
    """Execute an instruction that writes a register: an immediate, a calculation, or a word of memory."""
    kind = code[row + _KIND]
    if kind == _ASSIGN:
        word = code[row + _IMM]
    elif kind == _CALCULATE:
        word = calculate(code[row + _OPER], regs[code[row + _B]], get_operand(code, row, regs, _C))
    else:
        word = memory[get_operand(code, row, regs, _B) & (len(memory) - 1)]
    assign(regs, code[row + _A], word)


@compile_function
def store(
    code: Sequence[int], row: int, regs: Numbers, memory: Numbers, state: Numbers, stored_words: Numbers
) -> None:
    """Store a word in memory. It is readable from the tick at which the next instruction is decoded."""
    address = get_operand(code, row, regs, _B) & (len(memory) - 1)
    word = regs[code[row + _C]]
    memory[address] = word
    position = state[STORED] * STORED_STRIDE
    stored_words[position], stored_words[position + 1], stored_words[position + 2] = (
        address,
        state[TICK],
        word,
    )
    state[STORED] += 1


@compile_function
def use_stack(code: Sequence[int], row: int, regs: Numbers, stack: Numbers, state: Numbers) -> int:
    """Execute `pushi` or `popi`. Return RUNNING, OVERFLOW if the stack is full, or UNDERFLOW if it is empty."""
    depth = state[DEPTH]
    if code[row + _KIND] == _PUSH:
        if depth == STACK_SIZE:
            return OVERFLOW
        stack[depth] = regs[code[row + _B]]
        state[DEPTH] = depth + 1
        assign(regs, code[row + _A], code[row + _IMM])
    else:
        if depth == 0:
            return UNDERFLOW
        state[DEPTH] = depth - 1
        assign(regs, code[row + _A], stack[depth - 1])
    return RUNNING


@compile_function
def pass_queue(queues: Numbers, channel: int, entry_tick: int, due_tick: int) -> int:
    """Put a word into a channel's queue at `entry_tick`, or later when the queue has space. Return the tick of entry.

    The word leaves the queue two ticks after it entered, or three ticks after the previous word took effect. It takes
    effect when it is due, or at once if that tick has passed. That tick becomes the channel's `LAST`.
    """
    base = channel * QUEUE_STRIDE
    slot = base + queues[base + COUNT] % QUEUE_SIZE
    entry_tick = max(entry_tick, queues[slot])
    leave_tick = max(entry_tick + 2, queues[base + LAST] + 3)
    queues[slot] = leave_tick
    queues[base + COUNT] += 1
    queues[base + LAST] = max(leave_tick, due_tick)
    return entry_tick


@compile_function
def send(
    code: Sequence[int], row: int, regs: Numbers, queues: Numbers, state: Numbers, sent_words: Numbers
) -> None:
    """Send a word of 160 or 32 bits to a channel. If the queue is full, the instruction takes longer."""
    channel = code[row + _CHANNEL]
    due_tick = (state[OFFSET] + get_operand(code, row, regs, _C)) & CLOCK
    earliest = state[TICK] - 2
    state[TICK] += pass_queue(queues, channel, earliest, due_tick) - earliest
    position = state[SENT] * SENT_STRIDE
    sent_words[position], sent_words[position + 1] = channel, queues[channel * QUEUE_STRIDE + LAST]
    sent_words[position + 2] = regs[code[row + _B]]
    has_160_bits = not code[row + _IMMEDIATE]
    sent_words[position + 3] = regs[code[row + _D]] if has_160_bits else 0
    sent_words[position + 4] = regs[code[row + _E]] if has_160_bits else 0
    sent_words[position + 5] = regs[code[row + _F]] if has_160_bits else 0
    sent_words[position + 6] = regs[code[row + _G]] if has_160_bits else 0
    state[SENT] += 1


@compile_function
def wait(code: Sequence[int], row: int, regs: Numbers, queues: Numbers, state: Numbers) -> None:
    """Wait until all earlier words of the channel have taken effect, and the time has come."""
    channel = code[row + _CHANNEL]
    due_tick = (state[OFFSET] + get_operand(code, row, regs, _C)) & CLOCK
    pass_queue(queues, channel, state[TICK] - 5, due_tick)
    state[TICK] = queues[channel * QUEUE_STRIDE + LAST] + 3


@compile_function
def jump(code: Sequence[int], row: int, regs: Numbers, state: Numbers) -> None:
    """Execute `loopnz` or `condj`."""
    b = regs[code[row + _B]]
    oper = code[row + _OPER]
    if code[row + _KIND] == _BRANCH:
        if compare(oper, b, regs[code[row + _C]]):
            state[PC] = code[row + _TARGET]
            state[TICK] += 1
    elif b:
        assign(regs, code[row + _A], calculate(oper, b, WORD))
        state[PC] = code[row + _TARGET]
        state[TICK] += 3


@compile_function
def step(
    code: Sequence[int],
    row: int,
    regs: Numbers,
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
        take_word(code, row, regs, memory)
    elif kind == _SEND:
        send(code, row, regs, queues, state, sent_words)
    elif kind == _SYNC:
        state[OFFSET] = (state[OFFSET] + get_operand(code, row, regs, _C)) & CLOCK
    elif kind == _STORE:
        store(code, row, regs, memory, state, stored_words)
    elif kind == _WAIT:
        wait(code, row, regs, queues, state)
    elif kind >= _LOOP:
        jump(code, row, regs, state)
    else:
        return use_stack(code, row, regs, stack, state)
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
    regs: Numbers,
    memory: Numbers,
    stack: Numbers,
    queues: Numbers,
    state: Numbers,
    sent_words: Numbers,
    stored_words: Numbers,
    limit: int,
) -> int:
    """Execute instructions until something stops the machine, and return the reason.

    The state is then the state before the instruction that stopped the machine. For a full or empty stack, the
    instruction has already increased PC, TICK and STEPS.
    """
    status = RUNNING
    while status == RUNNING:
        row = state[PC] * FIELDS
        if row >= len(code):
            return OUTSIDE
        status = find_stop_reason(code[row + _KIND])
        if status != RUNNING:
            return status
        if state[STEPS] >= limit:
            return LIMIT
        if (state[SENT] + 1) * SENT_STRIDE > len(sent_words) or (state[STORED] + 1) * STORED_STRIDE > len(
            stored_words
        ):
            return FULL
        state[STEPS] += 1
        status = step(code, row, regs, memory, stack, queues, state, sent_words, stored_words)
    return status
