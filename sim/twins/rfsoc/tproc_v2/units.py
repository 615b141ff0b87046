"""Multiplier and divider: they take their time, and their results stand next to the registers until they are ready."""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.arithmetic import multiply, quotient
from sim.twins.rfsoc.tproc_v2.decoding.cells import (
    ARITHMETIC_HIGH,
    ARITHMETIC_LOW,
    CYCLE,
    DIVIDED_AT,
    MASK,
    MULTIPLIED_AT,
    PRODUCT_HIGH,
    PRODUCT_LOW,
    QUOTIENT,
    REMAINDER,
    Cells,
)
from sim.twins.rfsoc.tproc_v2.decoding.columns import S_STATUS

DIVIDE_CYCLES = 34
MULTIPLY_CYCLES = 6
"""From the instruction that starts a unit to the first that finds the result: states of div_r and arith."""
READY_MULTIPLIER, NEW_PRODUCT, READY_DIVIDER, NEW_QUOTIENT = 1, 2, 4, 8
"""Bits of `s_status`."""
EVER = 1 << 60


def start_divider(over: int, under: int, reg: Cells, state: Cells) -> None:
    """Take numerator and denominator; a division under way is lost, but in its last cycle it is the new one."""
    deliver(state[CYCLE] + 1, reg, state)
    if state[DIVIDED_AT] - state[CYCLE] == 2:
        return
    state[QUOTIENT] = quotient(over, under)
    state[REMAINDER] = over - state[QUOTIENT] * under
    state[DIVIDED_AT] = state[CYCLE] + DIVIDE_CYCLES
    reg[S_STATUS] &= READY_MULTIPLIER | NEW_PRODUCT


def start_multiplier(operation: int, a: int, b: int, c: int, d: int, reg: Cells, state: Cells) -> None:
    """Take the four inputs."""
    product = multiply(operation, a, b, c, d)
    state[PRODUCT_LOW] = product & MASK
    state[PRODUCT_HIGH] = product >> 32 & MASK
    state[MULTIPLIED_AT] = state[CYCLE] + MULTIPLY_CYCLES
    reg[S_STATUS] &= READY_DIVIDER | NEW_QUOTIENT


def deliver(now: int, reg: Cells, state: Cells) -> None:
    """Put into the registers what is ready by a cycle of the core."""
    if 0 < state[DIVIDED_AT] <= now:
        reg[4] = state[QUOTIENT]
        reg[5] = state[REMAINDER]
        reg[S_STATUS] |= READY_DIVIDER | NEW_QUOTIENT
        state[DIVIDED_AT] = 0
    if 0 < state[MULTIPLIED_AT] <= now:
        state[ARITHMETIC_LOW] = state[PRODUCT_LOW]
        state[ARITHMETIC_HIGH] = state[PRODUCT_HIGH]
        reg[3] = state[PRODUCT_LOW]
        if reg[2] & 15 == 1:
            reg[6] = state[PRODUCT_LOW]
            reg[7] = state[PRODUCT_HIGH]
        reg[S_STATUS] |= READY_MULTIPLIER | NEW_PRODUCT
        state[MULTIPLIED_AT] = 0
