"""Transfers between registers, memories and ports, and commands to the internal units."""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.decoding.cells import (
    DATA_PIN,
    FLIPFLOP,
    GO,
    LONG,
    MASK,
    RECORD,
    RECORDS,
    START,
    TOO_EARLY,
    TRIGGER_PIN,
    WAVE_OUT,
    WAVE_WORDS,
    Cells,
)
from sim.twins.rfsoc.tproc_v2.decoding.columns import (
    ACTION,
    DATA_LITERAL,
    DIVIDE,
    FLAG,
    FROM_DMEM,
    FROM_LITERAL,
    FROM_REGISTERS,
    LEFT,
    LITERAL,
    OFFSET,
    OPERATION,
    PLACE,
    PLACE_LITERAL,
    PORT,
    REFERENCE,
    RIGHT,
    SOURCE,
    TO_MEMORY,
    TO_PORT,
    TO_REGISTERS,
    WAVE_REGISTERS,
)
from sim.twins.rfsoc.tproc_v2.registers import operand
from sim.twins.rfsoc.tproc_v2.timing import record, schedule, send
from sim.twins.rfsoc.tproc_v2.units import start_divider, start_multiplier


def move_wave(
    code: Cells, row: int, reg: Cells, state: Cells, wmem: Cells, ring: Cells, pushed: Cells, records: Cells
) -> int:
    """Execute all that moves six words at once (port, wave memory, wave registers); memory is read first."""
    size = len(wmem) // WAVE_WORDS
    place = (code[row + PLACE] if code[row + PLACE_LITERAL] else reg[code[row + PLACE]]) % size * WAVE_WORDS
    base = state[RECORDS] * RECORD + 3
    own = code[row + FROM_REGISTERS]
    for word in range(WAVE_WORDS):
        kept = reg[WAVE_REGISTERS + word] & narrow(word)
        moved = kept if own else wmem[place + word]
        records[base + word] = moved
        if code[row + TO_MEMORY]:
            wmem[place + word] = kept
        if code[row + TO_REGISTERS]:
            reg[WAVE_REGISTERS + word] = moved
    if not code[row + TO_PORT]:
        return GO
    scheduled = schedule(code, row, reg, state)
    if scheduled >> 47:
        return TOO_EARLY
    port = code[row + PORT]
    time = send(port, scheduled, state, ring, pushed)
    record(WAVE_OUT, port, time, records[base], state, records)
    return GO


def narrow(word: int) -> int:
    """Return a register as a wave keeps it: 24 bits of the envelope's address, 16 of the configuration."""
    if word == 2:
        return 0xFF_FFFF
    return 0xFFFF if word == 5 else MASK


def move_pin(
    code: Cells, row: int, reg: Cells, state: Cells, ring: Cells, pushed: Cells, records: Cells
) -> int:
    """Send a word to a data port, or a level to a trigger port (port numbers from 32 on)."""
    scheduled = schedule(code, row, reg, state)
    if scheduled >> 47:
        return TOO_EARLY
    port = code[row + PORT]
    value = code[row + PLACE] if code[row + PLACE_LITERAL] else reg[code[row + PLACE]]
    time = send(64 + port, scheduled, state, ring, pushed)
    if port >= 32:
        record(TRIGGER_PIN, port - 32, time, value & 1, state, records)
    else:
        record(DATA_PIN, port, time, value, state, records)
    return GO


def calculate(code: Cells, row: int, data: int, reg: Cells, state: Cells) -> None:
    """Start the multiplier or the divider."""
    d = operand(code[row + OFFSET], reg, state)
    if code[row + ACTION] == DIVIDE:
        start_divider(d, data, reg, state)
        return
    a, c = operand(code[row + LEFT], reg, state), operand(code[row + PLACE], reg, state)
    start_multiplier(code[row + OPERATION], a, data, c, d, reg, state)


def control(code: Cells, row: int, reg: Cells, state: Cells) -> None:
    """Execute a command to time reference (unsigned numbers), flag, multiplier or divider."""
    action, operation = code[row + ACTION], code[row + OPERATION]
    data = code[row + LITERAL] if code[row + DATA_LITERAL] else operand(code[row + RIGHT], reg, state)
    if action == REFERENCE:
        if operation & 4:
            state[START] = data
        elif operation & 8:
            state[START] = (state[START] + data) & LONG
    elif action == FLAG:
        if operation & 3:
            state[FLIPFLOP] = operation & 1
        elif operation & 4:
            state[FLIPFLOP] ^= 1
    else:
        calculate(code, row, data, reg, state)


def read_data(code: Cells, row: int, result: int, reg: Cells, dmem: Cells) -> int:
    """Return the value for a register: result, word of the data memory, or literal."""
    source = code[row + SOURCE]
    if source == FROM_DMEM:
        return dmem[data_address(code, row, reg) % len(dmem)]
    return code[row + LITERAL] if source == FROM_LITERAL else result


def data_address(code: Cells, row: int, reg: Cells) -> int:
    """Return an address of data memory: literal or register, plus another register."""
    place = code[row + PLACE] if code[row + PLACE_LITERAL] else reg[code[row + PLACE]]
    return place + reg[code[row + OFFSET]]
