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
"""Numbers of each channel: ticks at which the latest words left the queue (a ring buffer), count of all words, and tick
at which the last word took effect."""
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
def get_operand(code: Sequence[int], at: int, regs: Numbers, register: int) -> int:
    """Return the immediate or the value of a register, whichever the instruction selects."""
    return code[at + _IMM] if code[at + _IMMEDIATE] else regs[code[at + register]]


@compile_function
def assign(regs: Numbers, register: int, word: int) -> None:
    """Write a register. Register 0 of each page stays zero."""
    if register & 31:
        regs[register] = word


@compile_function
def take_word(code: Sequence[int], at: int, regs: Numbers, memory: Numbers) -> None:
    """Execute an instruction that writes a register: an immediate, a calculation, or a word of memory."""
    kind = code[at + _KIND]
    if kind == _ASSIGN:
        word = code[at + _IMM]
    elif kind == _CALCULATE:
        word = calculate(code[at + _OPER], regs[code[at + _B]], get_operand(code, at, regs, _C))
    else:
        word = memory[get_operand(code, at, regs, _B) & (len(memory) - 1)]
    assign(regs, code[at + _A], word)


@compile_function
def store(
    code: Sequence[int], at: int, regs: Numbers, memory: Numbers, state: Numbers, stored: Numbers
) -> None:
    """Store a word in memory. It is readable from the tick at which the next instruction is decoded."""
    address = get_operand(code, at, regs, _B) & (len(memory) - 1)
    word = regs[code[at + _C]]
    memory[address] = word
    to = state[STORED] * STORED_STRIDE
    stored[to], stored[to + 1], stored[to + 2] = address, state[TICK], word
    state[STORED] += 1


@compile_function
def use_stack(code: Sequence[int], at: int, regs: Numbers, stack: Numbers, state: Numbers) -> int:
    """Execute `pushi` or `popi`. Return RUNNING, OVERFLOW if the stack is full, or UNDERFLOW if it is empty."""
    depth = state[DEPTH]
    if code[at + _KIND] == _PUSH:
        if depth == STACK_SIZE:
            return OVERFLOW
        stack[depth] = regs[code[at + _B]]
        state[DEPTH] = depth + 1
        assign(regs, code[at + _A], code[at + _IMM])
    else:
        if depth == 0:
            return UNDERFLOW
        state[DEPTH] = depth - 1
        assign(regs, code[at + _A], stack[depth - 1])
    return RUNNING


@compile_function
def pass_queue(queues: Numbers, channel: int, entered: int, due: int) -> int:
    """Put a word into a channel's queue at tick `entered`, or later when the queue has space. Return the tick of entry.

    The word leaves the queue two ticks after it entered, or three ticks after the previous word took effect. It takes
    effect when it is due, or at once if that tick has passed. That tick becomes the channel's `LAST`.
    """
    base = channel * QUEUE_STRIDE
    slot = base + queues[base + COUNT] % QUEUE_SIZE
    entered = max(entered, queues[slot])
    out = max(entered + 2, queues[base + LAST] + 3)
    queues[slot] = out
    queues[base + COUNT] += 1
    queues[base + LAST] = max(out, due)
    return entered


@compile_function
def send(code: Sequence[int], at: int, regs: Numbers, queues: Numbers, state: Numbers, sent: Numbers) -> None:
    """Send a word of 160 or 32 bits to a channel. If the queue is full, the instruction takes longer."""
    channel = code[at + _CHANNEL]
    due = (state[OFFSET] + get_operand(code, at, regs, _C)) & CLOCK
    earliest = state[TICK] - 2
    state[TICK] += pass_queue(queues, channel, earliest, due) - earliest
    to = state[SENT] * SENT_STRIDE
    sent[to], sent[to + 1] = channel, queues[channel * QUEUE_STRIDE + LAST]
    sent[to + 2] = regs[code[at + _B]]
    has_160_bits = not code[at + _IMMEDIATE]
    sent[to + 3] = regs[code[at + _D]] if has_160_bits else 0
    sent[to + 4] = regs[code[at + _E]] if has_160_bits else 0
    sent[to + 5] = regs[code[at + _F]] if has_160_bits else 0
    sent[to + 6] = regs[code[at + _G]] if has_160_bits else 0
    state[SENT] += 1


@compile_function
def wait(code: Sequence[int], at: int, regs: Numbers, queues: Numbers, state: Numbers) -> None:
    """Wait until all earlier words of the channel have taken effect, and the time has come."""
    channel = code[at + _CHANNEL]
    due = (state[OFFSET] + get_operand(code, at, regs, _C)) & CLOCK
    pass_queue(queues, channel, state[TICK] - 5, due)
    state[TICK] = queues[channel * QUEUE_STRIDE + LAST] + 3


@compile_function
def jump(code: Sequence[int], at: int, regs: Numbers, state: Numbers) -> None:
    """Execute `loopnz` or `condj`."""
    b = regs[code[at + _B]]
    oper = code[at + _OPER]
    if code[at + _KIND] == _BRANCH:
        if compare(oper, b, regs[code[at + _C]]):
            state[PC] = code[at + _TARGET]
            state[TICK] += 1
    elif b:
        assign(regs, code[at + _A], calculate(oper, b, WORD))
        state[PC] = code[at + _TARGET]
        state[TICK] += 3


@compile_function
def step(
    code: Sequence[int],
    at: int,
    regs: Numbers,
    memory: Numbers,
    stack: Numbers,
    queues: Numbers,
    state: Numbers,
    sent: Numbers,
    stored: Numbers,
) -> int:
    """Execute one instruction of any kind except `READ`, `END` and `UNKNOWN`. Return the status."""
    kind = code[at + _KIND]
    state[PC] += 1
    state[TICK] += code[at + _TICKS]
    if kind <= _FETCH:
        take_word(code, at, regs, memory)
    elif kind == _SEND:
        send(code, at, regs, queues, state, sent)
    elif kind == _SYNC:
        state[OFFSET] = (state[OFFSET] + get_operand(code, at, regs, _C)) & CLOCK
    elif kind == _STORE:
        store(code, at, regs, memory, state, stored)
    elif kind == _WAIT:
        wait(code, at, regs, queues, state)
    elif kind >= _LOOP:
        jump(code, at, regs, state)
    else:
        return use_stack(code, at, regs, stack, state)
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
    sent: Numbers,
    stored: Numbers,
    limit: int,
) -> int:
    """Execute instructions until something stops the machine, and return the reason.

    The state is then the state before the instruction that stopped the machine. For a full or empty stack, PC, TICK and
    STEPS are already those after it.
    """
    status = RUNNING
    while status == RUNNING:
        at = state[PC] * FIELDS
        if at >= len(code):
            return OUTSIDE
        status = find_stop_reason(code[at + _KIND])
        if status != RUNNING:
            return status
        if state[STEPS] >= limit:
            return LIMIT
        if (state[SENT] + 1) * SENT_STRIDE > len(sent) or (state[STORED] + 1) * STORED_STRIDE > len(stored):
            return FULL
        state[STEPS] += 1
        status = step(code, at, regs, memory, stack, queues, state, sent, stored)
    return status
