"""The machine itself: plain functions over flat arrays of integers, so that numba may compile them as they stand.

Called with Python lists they run as they are; `compiled` makes machine code of the very same functions for arrays of
64-bit integers. Hence no objects, no exceptions and no unbounded integers in here and in the modules of which it is
made (`arithmetic`, `timing`, `registers`, `branches`, `transfers`): registers hold 0..2**32-1, times fit 48 bits, and
what the machine cannot settle by itself ends `execute` with a stop code for `processor` to handle.
"""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.arithmetic import alu, shifted
from sim.twins.rfsoc.tproc_v2.branches import back, branch
from sim.twins.rfsoc.tproc_v2.decoding.cells import (
    CYCLE,
    FULL,
    GO,
    INPUT_PORT,
    LENGTH,
    LFSR_MODE,
    LOADED,
    OUTSIDE,
    PAUSE,
    PAUSE_AT,
    PC,
    READ,
    READY_ADDRESS,
    RECORDS,
    ROOM,
    SIGN,
    STEPS,
    ZERO,
    Cells,
)
from sim.twins.rfsoc.tproc_v2.decoding.columns import (
    ACTION,
    ALU,
    CALL,
    CONDITION,
    DATA_LITERAL,
    DIVIDE,
    FIRST_REFUSED,
    INPUT,
    JUMP,
    LEAVES,
    LEFT,
    LITERAL,
    NEEDS,
    PIN,
    PLACE_LITERAL,
    PORT,
    REFERENCE,
    RETURN,
    RIGHT,
    RIGHT_LITERAL,
    SETS,
    STORE,
    TARGET,
    UPDATES,
    WAVE,
    WIDTH,
)
from sim.twins.rfsoc.tproc_v2.registers import holds, operand, put
from sim.twins.rfsoc.tproc_v2.timing import settle, stall, stall_for_load
from sim.twins.rfsoc.tproc_v2.transfers import control, data_address, move_pin, move_wave, read_data


def act(
    code: Cells,
    row: int,
    result: int,
    reg: Cells,
    state: Cells,
    dmem: Cells,
    wmem: Cells,
    ring: Cells,
    pushed: Cells,
    records: Cells,
) -> int:
    """Execute everything but branches."""
    action = code[row + ACTION]
    if action == WAVE:
        return move_wave(code, row, reg, state, wmem, ring, pushed, records)
    if action == PIN:
        return move_pin(code, row, reg, state, ring, pushed, records)
    if action == STORE:
        data = code[row + LITERAL] if code[row + DATA_LITERAL] else result
        dmem[data_address(code, row, reg) % len(dmem)] = data
    elif action == INPUT:
        state[INPUT_PORT] = code[row + PORT] & 15
        return READ
    elif REFERENCE <= action <= DIVIDE:
        control(code, row, reg, state)
    return GO


def leave_out(code: Cells, row: int, state: Cells) -> int:
    """Pass an instruction whose condition does not hold; a return goes back all the same."""
    cycle = state[CYCLE]
    if code[row + ACTION] == RETURN:
        stop = back(state)
    else:
        state[PC] += 1
        state[CYCLE] += 1
        stop = GO
    settle(code[row + LEAVES], cycle, state)
    return stop


def conclude(
    code: Cells,
    row: int,
    result: int,
    value: int,
    cycle: int,
    stop: int,
    reg: Cells,
    state: Cells,
    records: Cells,
) -> int:
    """Write register and flags; a refused instruction keeps the program counter, for the message."""
    if code[row + TARGET] >= 0 and stop in (GO, READ):
        state[LOADED] = code[row + TARGET]
        stop = put(code[row + TARGET], value, reg, state, records) or stop
    if code[row + UPDATES]:
        state[ZERO] = int(result == 0)
        state[SIGN] = result >> 31
    settle(code[row + SETS], cycle, state)
    if stop > READ:
        state[PC] = row // WIDTH
    return stop


def step(
    code: Cells,
    reg: Cells,
    state: Cells,
    dmem: Cells,
    wmem: Cells,
    ring: Cells,
    pushed: Cells,
    records: Cells,
) -> int:
    """Carry one instruction out; returns GO or why not to go on."""
    row = state[PC] * WIDTH
    stall(code[row + NEEDS], state)
    stall_for_load(code, row, state)
    action = code[row + ACTION]
    left = operand(code[row + LEFT], reg, state)
    if code[row + LEFT] == 1 and state[LFSR_MODE] == 2:
        reg[1] = shifted(reg[1])
    if not holds(code[row + CONDITION], reg, state):
        return leave_out(code, row, state)
    if action >= FIRST_REFUSED:
        return action
    right = code[row + LITERAL] if code[row + RIGHT_LITERAL] else operand(code[row + RIGHT], reg, state)
    result = alu(code[row + ALU], left, right)
    value = read_data(code, row, result, reg, dmem)
    if JUMP <= action <= CALL and not code[row + PLACE_LITERAL]:
        state[CYCLE] = max(state[CYCLE], state[READY_ADDRESS])
    cycle = state[CYCLE]
    if JUMP <= action <= RETURN:
        stop = branch(code, row, result, reg, state)
    else:
        stop = act(code, row, result, reg, state, dmem, wmem, ring, pushed, records)
        state[PC] += 1
        state[CYCLE] += 1
    return conclude(code, row, result, value, cycle, stop, reg, state, records)


def execute(
    code: Cells,
    reg: Cells,
    state: Cells,
    dmem: Cells,
    wmem: Cells,
    ring: Cells,
    pushed: Cells,
    records: Cells,
) -> int:
    """Go on from where the state says until something is for the processor to handle; returns what."""
    stop = GO
    while stop == GO:
        if state[PC] >= state[LENGTH]:
            return OUTSIDE
        if state[STEPS] >= state[PAUSE_AT]:
            return PAUSE
        if state[RECORDS] + 2 > ROOM:
            return FULL
        state[STEPS] += 1
        stop = step(code, reg, state, dmem, wmem, ring, pushed, records)
    return stop
