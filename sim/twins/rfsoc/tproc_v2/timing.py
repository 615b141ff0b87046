"""Time of the core: the core's place on the time line, stalls of its pipeline, and the queues of its ports.

After `qcore_ctrl_hazard.sv` (stalls) and `qproc_dispatcher.sv` (queues) of the firmware.
"""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.arithmetic import signed
from sim.twins.rfsoc.tproc_v2.decoding.cells import (
    CYCLE,
    CYCLES,
    DEPTH,
    LOADED,
    LONG,
    READY_FLAG,
    READY_LOADED,
    RECORD,
    RECORDS,
    SPACING,
    START,
    TICKS,
    Cells,
)
from sim.twins.rfsoc.tproc_v2.decoding.columns import FIELD, LEFT, LITERAL, OFFSET, RIGHT, TIMED
from sim.twins.rfsoc.tproc_v2.decoding.hazards import EFFECT_CELL, EFFECT_DELAY


def tick(state: Cells) -> int:
    """Return the core's place on the time line."""
    return state[CYCLE] * state[TICKS] // state[CYCLES]


def wait_until(time: int, state: Cells) -> None:
    """Stall the core until a tick; nothing happens when that has passed."""
    state[CYCLE] = max(state[CYCLE], -(-time * state[CYCLES] // state[TICKS]))


def stall(needs: int, state: Cells) -> None:
    """Insert bubbles of the pipeline before an instruction whose inputs are still on their way."""
    cell = READY_FLAG
    while needs:
        if needs & 1:
            state[CYCLE] = max(state[CYCLE], state[cell])
        needs >>= 1
        cell += 1


def stall_for_load(code: Cells, row: int, state: Cells) -> None:
    """Insert one bubble for an instruction that uses what the one before it reads from data memory."""
    if state[READY_LOADED] > state[CYCLE]:
        for column in (LEFT, RIGHT, FIELD, OFFSET):
            if code[row + column] == state[LOADED]:
                state[CYCLE] = max(state[CYCLE], state[READY_LOADED])


def settle(sets: int, cycle: int, state: Cells) -> None:
    """Note when what an instruction of this cycle leaves behind will be there."""
    effect = 0
    while sets:
        if sets & 1:
            cell = EFFECT_CELL[effect]
            state[cell] = max(state[cell], cycle + EFFECT_DELAY[effect])
        sets >>= 1
        effect += 1


def record(kind: int, port: int, time: int, value: int, state: Cells, records: Cells) -> None:
    """Note one thing that the world outside can see."""
    base = state[RECORDS] * RECORD
    records[base] = kind
    records[base + 1] = port
    records[base + 2] = time
    records[base + 3] = value
    state[RECORDS] += 1


def send(queue: int, scheduled: int, state: Cells, ring: Cells, pushed: Cells) -> int:
    """Put a word into the queue of its port; returns the tick at which it leaves.

    That is the scheduled one, unless the core comes later than that, or the word before has not left for long
    enough. A full queue holds the core until its oldest word has left.
    """
    count, depth = pushed[queue], state[DEPTH]
    base = queue * depth
    time = max(scheduled, tick(state))
    if count:
        time = max(time, ring[base + (count - 1) % depth] + SPACING)
    ring[base + count % depth] = time
    pushed[queue] = count + 1
    if count + 1 >= depth:
        wait_until(ring[base + (count + 1) % depth], state)
    return time


def schedule(code: Cells, row: int, reg: Cells, state: Cells) -> int:
    """Return the tick that an instruction for a port asks for: reference plus a literal, or plus `s_out_time`."""
    offset = code[row + LITERAL] if code[row + TIMED] else reg[14]
    return (state[START] + signed(offset)) & LONG
