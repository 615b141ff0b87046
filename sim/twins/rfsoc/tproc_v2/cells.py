"""Integer constants of the machine: columns of a decoded instruction, cells of the state, records, and stop codes."""

from __future__ import annotations

from collections.abc import MutableSequence

# The seven valid headers of words.
CFG, BRANCH, CONTROL, PERIPHERAL_HEADER, REGISTER, MEMORY, PORT_HEADER = range(7)

# Actions of an instruction besides computing, writing a register and setting flags.
(
    NOTHING,
    JUMP,
    CALL,
    RETURN,
    STORE,
    WAVE,
    PIN,
    INPUT,
    REFERENCE,
    FLAG,
    ARITHMETIC,
    DIVIDE,
    UNKNOWN,
    TIME_CHANGE,
    STATUS,
    NETWORK,
    COMMUNICATION,
    PERIPHERAL_A,
    PERIPHERAL_B,
) = range(19)
FIRST_REFUSED = UNKNOWN

# Columns of a row. LEFT and RIGHT are inputs of the arithmetic unit. PLACE and OFFSET are inputs of addresses. FIELD is
# PLACE as a register number even if PLACE is a literal, because the pipeline interprets it so.
(
    ACTION,
    OPERATION,
    CONDITION,
    ALU,
    LEFT,
    RIGHT,
    RIGHT_LITERAL,
    DATA_LITERAL,
    LITERAL,
    UPDATES,
    TARGET,
    SOURCE,
    PLACE,
    PLACE_LITERAL,
    OFFSET,
    PORT,
    TIMED,
    FROM_REGISTERS,
    TO_PORT,
    TO_MEMORY,
    TO_REGISTERS,
    FIELD,
    NEEDS,
    SETS,
    LEAVES,
) = range(25)
WIDTH = 25

FROM_ALU, FROM_DMEM, FROM_LITERAL = 0, 1, 3
ADD, SUBTRACT, AND = 0, 2, 4

S_STATUS, S_TIME, S_ADDRESS = 10, 11, 15
DATA_REGISTERS, WAVE_REGISTERS = 32, 64


Cells = MutableSequence[int]
"""A list of integers, or an array if compiled."""

MASK = 0xFFFF_FFFF
LONG = (1 << 48) - 1
WAVE_WORDS = 6
RECORD = 9
"""Length of a record: kind, port, time, and six words."""
MAX_RECORDS = 4096
"""Capacity for records. When it is exhausted, `execute` stops, and its caller collects the records. An instruction
makes at most two records."""
DATA_PIN, TRIGGER_PIN, WAVE_OUT, COUNTER = range(4)

# Cells of the state that are not registers.
(
    PC,
    CYCLE,
    START,
    ZERO,
    SIGN,
    FLIPFLOP,
    LIFO,
    LFSR_MODE,
    HOST,
    ARITHMETIC_LOW,
    ARITHMETIC_HIGH,
    READY_FLAG,
    READY_ADDRESS,
    READY_PORT,
    READY_WAVE,
    READY_WAVE_READ,
    READY_UNIT,
    READY_INPUT,
    READY_LOADED,
    LOADED,
    DIVIDED_AT,
    QUOTIENT,
    REMAINDER,
    MULTIPLIED_AT,
    PRODUCT_LOW,
    PRODUCT_HIGH,
    TICKS,
    CYCLES,
    DEPTH,
    LENGTH,
    STEPS,
    PAUSE_AT,
    RECORDS,
    INPUT_PORT,
) = (*range(9), *range(10, 35))
# HOST has two cells, for the two registers that the host writes. READY_... are cycles of the core.
STACK = 35
STACK_DEPTH = 7
"""The hardware has eight words, but after the eighth call its 3-bit pointer makes the stack look empty."""
STATE = STACK + STACK_DEPTH
REGISTERS = WAVE_REGISTERS + 8
QUEUES = 128
"""Number of queues: 64 for waves, 32 for data ports, 32 for triggers."""
SPACING = 3
"""Minimum ticks between two words of a queue: the dispatcher evaluates its comparator every third tick."""

# Reasons why `execute` stopped. Codes after READ are errors. Codes from FIRST_REFUSED (12) are actions that are not
# simulated.
GO, END, PAUSE, FULL, READ, OUTSIDE, STUCK, TOO_DEEP, TOO_SHALLOW, TOO_EARLY, FLAG_SOURCE, DATA_SOURCE = (
    range(12)
)
