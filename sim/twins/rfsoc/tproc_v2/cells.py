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
FIRST_UNSIMULATED = UNKNOWN

# Columns of a row. LEFT and RIGHT are inputs of the arithmetic unit. An address is the sum of ADDRESS and
# ADDRESS_OFFSET. ADDRESS_REGISTER is ADDRESS as a register number, even if ADDRESS is a literal, because the pipeline
# interprets it so.
(
    ACTION,
    OPERATION,
    CONDITION,
    ALU,
    LEFT,
    RIGHT,
    RIGHT_IS_LITERAL,
    DATA_IS_LITERAL,
    LITERAL,
    UPDATES_FLAGS,
    TARGET,
    SOURCE,
    ADDRESS,
    ADDRESS_IS_LITERAL,
    ADDRESS_OFFSET,
    PORT,
    TIME_IS_LITERAL,
    FROM_REGISTERS,
    TO_PORT,
    TO_MEMORY,
    TO_REGISTERS,
    ADDRESS_REGISTER,
    NEEDED_RESOURCES,
    EXECUTED_EFFECTS,
    ADDRESS_EFFECTS,
) = range(25)
ROW_LENGTH = 25

FROM_ALU, FROM_DMEM, FROM_LITERAL = 0, 1, 3
ADD, SUBTRACT, AND = 0, 2, 4

S_STATUS, S_TIME, S_ADDRESS = 10, 11, 15
DATA_REGISTERS, WAVE_REGISTERS = 32, 64


Cells = MutableSequence[int]
"""A list of integers, or an array if compiled."""

WORD_MASK = 0xFFFF_FFFF
TIME_MASK = (1 << 48) - 1
WAVE_WORDS = 6
RECORD_LENGTH = 9
"""Length of a record: kind, port, time, and six words."""
MAX_RECORDS = 4096
"""Capacity for records. When it is exhausted, `execute` stops, and its caller collects the records. An instruction
makes at most two records."""
DATA_PIN, TRIGGER_PIN, WAVE_OUT, COUNTER = range(4)

# Cells of the state that are not registers.
(
    PC,
    CYCLE,
    REFERENCE_TICK,
    ZERO_FLAG,
    SIGN_FLAG,
    INTERNAL_FLAG,
    CALL_DEPTH,
    LFSR_MODE,
    HOST_WORDS,
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
    LOADED_REGISTER,
    DIVIDER_READY_CYCLE,
    QUOTIENT,
    REMAINDER,
    MULTIPLIER_READY_CYCLE,
    PRODUCT_LOW,
    PRODUCT_HIGH,
    RATIO_TICKS,
    RATIO_CYCLES,
    QUEUE_DEPTH,
    PROGRAM_LENGTH,
    STEP_COUNT,
    PAUSE_AT,
    RECORD_COUNT,
    INPUT_PORT,
) = (*range(9), *range(10, 35))
# HOST_WORDS has two cells, for the two registers that the host writes. READY_... are cycles of the core.
STACK = 35
MAX_CALL_DEPTH = 7
"""The hardware has eight words, but after the eighth call its 3-bit pointer makes the stack look empty."""
STATE_SIZE = STACK + MAX_CALL_DEPTH
REGISTER_COUNT = WAVE_REGISTERS + 8
QUEUE_COUNT = 128
"""Number of queues: 64 for waves, 32 for data ports, 32 for triggers."""
MIN_SPACING_TICKS = 3
"""Minimum ticks between two words of a queue: the dispatcher evaluates its comparator every third tick."""

# Reasons why `execute` stopped. Codes after READ_INPUT are errors. Codes from FIRST_UNSIMULATED (12) are actions that
# are not simulated.
(
    CONTINUE,
    END,
    PAUSE,
    RECORDS_FULL,
    READ_INPUT,
    OUTSIDE_PROGRAM,
    ENDLESS_WAIT,
    TOO_DEEP,
    TOO_SHALLOW,
    TOO_EARLY,
    UNSIMULATED_FLAG_SOURCE,
    UNSIMULATED_DATA_SOURCE,
) = range(12)
