"""The row of integers into which an instruction is decoded: its columns, and the numbers that stand in them."""

from __future__ import annotations

# The seven headers of words; an eighth is none.
CFG, BRANCH, CONTROL, PERIPHERAL_HEADER, REGISTER, MEMORY, PORT_HEADER = range(7)

# What an instruction does besides computing, writing a register and setting flags.
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

# Columns of a row. "LEFT" and "RIGHT" are the inputs of the arithmetic unit, "PLACE" and "OFFSET" those of addresses;
# FIELD is PLACE read as a register even where it is a literal, as the pipeline does.
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
