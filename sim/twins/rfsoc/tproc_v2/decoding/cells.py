"""The cells of the machine: what its state holds, what it records, and why it stops."""

from __future__ import annotations

from collections.abc import MutableSequence

from sim.twins.rfsoc.tproc_v2.decoding.columns import WAVE_REGISTERS

Cells = MutableSequence[int]
"""A list of integers, or an array of them when compiled."""

MASK = 0xFFFF_FFFF
LONG = (1 << 48) - 1
WAVE_WORDS = 6
RECORD = 9
"""Numbers of a record: kind, port, time, and six words."""
ROOM = 4096
"""Records kept before `execute` stops to have them taken away; an instruction makes two at most."""
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
# HOST takes two cells: the two registers that the host writes. READY_... are cycles of the core.
STACK = 35
STACK_DEPTH = 7
"""The hardware has eight words and a pointer of three bits: with the eighth call it believes itself empty."""
STATE = STACK + STACK_DEPTH
REGISTERS = WAVE_REGISTERS + 8
QUEUES = 128
"""64 of waves, 32 of data ports, 32 of triggers."""
SPACING = 3
"""Ticks between two words out of one queue: the dispatcher looks at its comparator every third tick."""

# Why `execute` stopped; beyond READ lie the refusals. From FIRST_REFUSED (12) on the codes are actions of `columns`
# that nobody carries out.
GO, END, PAUSE, FULL, READ, OUTSIDE, STUCK, TOO_DEEP, TOO_SHALLOW, TOO_EARLY, FLAG_SOURCE, DATA_SOURCE = (
    range(12)
)
