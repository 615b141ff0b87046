"""Jumps, calls and returns, and the two jumps that are more than that: the end, and a wait for the clock."""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.arithmetic import signed
from sim.twins.rfsoc.tproc_v2.decoding.cells import (
    CYCLE,
    CYCLES,
    DIVIDED_AT,
    END,
    GO,
    LIFO,
    MULTIPLIED_AT,
    PC,
    STACK,
    STACK_DEPTH,
    STUCK,
    TICKS,
    TOO_DEEP,
    TOO_SHALLOW,
    Cells,
)
from sim.twins.rfsoc.tproc_v2.decoding.columns import (
    ACTION,
    ALU,
    CALL,
    CONDITION,
    LEFT,
    NOTHING,
    PLACE,
    PLACE_LITERAL,
    RETURN,
    S_ADDRESS,
    S_TIME,
    SUBTRACT,
    TARGET,
    UPDATES,
    WIDTH,
)
from sim.twins.rfsoc.tproc_v2.timing import tick
from sim.twins.rfsoc.tproc_v2.units import EVER, deliver


def polls_time(code: Cells, row: int, target: int, state: Cells) -> bool:
    """Return True if a taken jump only waits for the clock: back to itself, or to the TEST of the same before it."""
    if code[row + CONDITION] != 2 or code[row + LEFT] != S_TIME or code[row + ALU] != SUBTRACT:
        return False
    if target == state[PC]:
        return True
    before = row - WIDTH
    bare = before >= 0 and code[before + ACTION] == NOTHING and code[before + TARGET] < 0
    return target == state[PC] - 1 and bare and code[before + LEFT] == S_TIME


def call(target: int, state: Cells) -> int:
    """Push the address of the next instruction and go."""
    if state[LIFO] == STACK_DEPTH:
        return TOO_DEEP
    state[STACK + state[LIFO]] = state[PC] + 1
    state[LIFO] += 1
    return leap(target, state)


def back(state: Cells) -> int:
    """Return from a call."""
    if state[LIFO] == 0:
        return TOO_SHALLOW
    state[LIFO] -= 1
    return leap(state[STACK + state[LIFO]], state)


def leap(target: int, state: Cells) -> int:
    """Go on elsewhere: the two instructions fetched meanwhile are thrown away."""
    state[PC] = target
    state[CYCLE] += 3
    return GO


def branch(code: Cells, row: int, result: int, reg: Cells, state: Cells) -> int:
    """Jump, call, return. A jump to itself is the end, and a wait for the clock is waited at once."""
    action = code[row + ACTION]
    if action == RETURN:
        return back(state)
    target = code[row + PLACE] if code[row + PLACE_LITERAL] else reg[S_ADDRESS]
    if action == CALL:
        return call(target, state)
    updates = code[row + UPDATES]
    if target == state[PC] and not updates:
        return stand(code[row + CONDITION], reg, state)
    if updates and polls_time(code, row, target, state):
        spin(-signed(result), 3 if target == state[PC] else 6, state)
    return leap(target, state)


def stand(condition: int, reg: Cells, state: Cells) -> int:
    """Execute a jump to itself that changes nothing: the end, or a wait that only a unit at work can end."""
    if condition and (state[DIVIDED_AT] or state[MULTIPLIED_AT]):
        return leap(state[PC], state)
    deliver(EVER, reg, state)
    return STUCK if condition else END


def spin(missing: int, period: int, state: Cells) -> None:
    """Skip whole passes of a loop that waits for the clock, except the last, which finds the time reached."""
    if missing > 0:
        wanted = -(-(tick(state) + missing) * state[CYCLES] // state[TICKS])
        state[CYCLE] += max(0, -((state[CYCLE] + 3 - wanted) // period) * period)
