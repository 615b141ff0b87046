"""Registers and conditions: what an instruction reads, and what writing a special register brings about."""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.arithmetic import shifted
from sim.twins.rfsoc.tproc_v2.decoding.cells import (
    ARITHMETIC_HIGH,
    ARITHMETIC_LOW,
    COUNTER,
    CYCLE,
    DATA_SOURCE,
    FLAG_SOURCE,
    FLIPFLOP,
    GO,
    HOST,
    LFSR_MODE,
    MASK,
    SIGN,
    START,
    ZERO,
    Cells,
)
from sim.twins.rfsoc.tproc_v2.decoding.columns import S_ADDRESS, S_STATUS, S_TIME
from sim.twins.rfsoc.tproc_v2.timing import record, tick
from sim.twins.rfsoc.tproc_v2.units import deliver


def operand(index: int, reg: Cells, state: Cells) -> int:
    """Return a register's value; `s_usr_time` is not one but the time since the reference."""
    if index == S_TIME:
        return (tick(state) - state[START]) & MASK
    if 3 <= index <= S_STATUS:
        deliver(state[CYCLE], reg, state)
    return reg[index]


def holds(condition: int, reg: Cells, state: Cells) -> bool:
    """Return the truth of a condition: always, Z, S, NZ, NS, F, NF, never."""
    if condition == 0:
        return True
    if condition == 7:
        return False
    if condition in (1, 3):
        value = state[ZERO]
    elif condition in (2, 4):
        value = state[SIGN]
    elif reg[2] >> 4 == 3:
        deliver(state[CYCLE], reg, state)
        value = int(reg[S_STATUS] & 0b1010 != 0)
    else:
        value = state[FLIPFLOP]
    wanted = 1 if condition in (1, 2, 5) else 0
    return value == wanted


def configure(value: int, reg: Cells, state: Cells) -> int:
    """Write `s_cfg`: where flag and core data come from; its upper half clears what the units have ready."""
    deliver(state[CYCLE], reg, state)
    reg[2] = value & 0xFF
    cleared = (value >> 16 & 1) << 1 | (value >> 17 & 1) << 3
    reg[S_STATUS] &= MASK - cleared
    data, flag = value & 15, value >> 4 & 15
    if flag not in (0, 3):
        return FLAG_SOURCE
    if data > 1:
        return DATA_SOURCE
    reg[6] = state[ARITHMETIC_LOW] if data else state[HOST]
    reg[7] = state[ARITHMETIC_HIGH] if data else state[HOST + 1]
    return GO


def put(target: int, value: int, reg: Cells, state: Cells, records: Cells) -> int:
    """Write a register. Two of the special ones are read from outside: their changes are recorded."""
    if target > S_ADDRESS or target == 14:
        reg[target] = value
    elif target == S_ADDRESS:
        reg[target] = value & 0xFFFF
    elif target >= 12:
        reg[target] = value
        record(COUNTER, target - 11, tick(state), value, state, records)
    elif target == 2:
        return configure(value, reg, state)
    elif target == 1:
        reg[1] = value
    elif state[LFSR_MODE] == 3:
        reg[1] = shifted(reg[1])
    return GO
