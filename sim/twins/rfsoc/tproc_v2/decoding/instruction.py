"""Decoding of an instruction word into a row of plain integers, which `machine` carries out.

The decoder keeps what the hardware does rather than what a mnemonic promises: RET pays no heed to its condition, and
WMEM_WR with a port takes its time from `s14` though the assembler accepts a literal one.
"""

from __future__ import annotations

from functools import lru_cache

from sim.twins.rfsoc.tproc_v2.decoding import hazards
from sim.twins.rfsoc.tproc_v2.decoding.columns import (
    AND,
    ARITHMETIC,
    BRANCH,
    CALL,
    CFG,
    COMMUNICATION,
    CONTROL,
    DATA_REGISTERS,
    DIVIDE,
    FIRST_REFUSED,
    FLAG,
    FROM_ALU,
    FROM_LITERAL,
    INPUT,
    JUMP,
    MEMORY,
    NETWORK,
    NOTHING,
    PERIPHERAL_A,
    PERIPHERAL_B,
    PERIPHERAL_HEADER,
    PIN,
    PORT_HEADER,
    REFERENCE,
    REGISTER,
    RETURN,
    S_STATUS,
    STATUS,
    STORE,
    TIME_CHANGE,
    UNKNOWN,
    WAVE,
    WAVE_REGISTERS,
)
from sim.twins.rfsoc.tproc_v2.decoding.word import Word, bits, cut

WRITABLE = frozenset({0, 1, 2, 12, 13, 14, 15})
SIMULATED_STATUS = 0x700F
"""Bits of `s_status` that mean something here: the arithmetic units, and three that are always zero."""


def _read_index(address: int, registers: int) -> int:
    """Return the register of a 7-bit source: 0..15 special, 32.. data, 64.. wave; the fourth bank reads zero."""
    bank, number = address >> 5, address & 31
    if bank == 1:
        return DATA_REGISTERS + (number & (registers - 1))
    if bank == 2:
        return WAVE_REGISTERS + (number & 7)
    return number & 15 if bank == 0 else 0


def _write_index(address: int, registers: int) -> int:
    """Return the register of a 7-bit destination, or -1: the results of units and ports cannot be written."""
    bank, number = address >> 5, address & 31
    if bank == 1:
        return DATA_REGISTERS + (number & (registers - 1))
    if bank == 2 and (number & 7) < 6:
        return WAVE_REGISTERS + (number & 7)
    return number if bank == 0 and number in WRITABLE else -1


def _place_index(address: int, registers: int) -> int:
    """Return the same as `_read_index` for the 6-bit addresses, which know special and data registers only."""
    return _read_index(address & 63, registers)


def _control(word: Word) -> tuple[int, int]:
    """Return action and operation of the internal units: time, flag, multiplier, divider."""
    unit, operation = bits(word.low | word.uf << 4 | word.to << 5 | word.so << 6, 6, 4), word.low
    if unit == 0:
        return (TIME_CHANGE if operation & 3 else REFERENCE), operation
    if unit == 1:
        return FLAG, operation
    if unit == 2:
        return (ARITHMETIC if operation <= 8 else UNKNOWN), operation
    return (DIVIDE if unit == 3 else UNKNOWN), operation


def _action(word: Word) -> tuple[int, int]:
    """Return the effect of the word besides computing, and its number among its kind."""
    if word.header == CONTROL:
        return _control(word)
    if word.header == PERIPHERAL_HEADER:
        return NETWORK + (word.so << 1 | word.to), word.low | word.uf << 4
    actions = {
        CFG: NOTHING,
        BRANCH: (RETURN if word.to else CALL) if word.so else JUMP,
        REGISTER: WAVE if word.loads_wave else NOTHING,
        MEMORY: WAVE if word.so else STORE,
        PORT_HEADER: WAVE if word.so else (PIN if word.cond & 1 else INPUT),
    }
    return actions.get(word.header, UNKNOWN), 0


def _alu(word: Word) -> int:
    """Sixteen operations for REG_WR op, the four even ones of every other instruction."""
    if word.header == REGISTER and not word.so and not word.to:
        return word.low
    return (word.low & 3) << 1


def _reads_status(word: Word) -> bool:
    """Return True if it looks at bits of `s_status` that belong to ports and peripherals."""
    if S_STATUS not in {word.left, word.right}:
        return False
    masked = word.right != S_STATUS and word.df == 2 and _alu(word) == AND
    return not (masked and word.literal | SIMULATED_STATUS == SIMULATED_STATUS)


def _register_write(word: Word, registers: int) -> tuple[int, int]:
    """Return the register that is written (-1: none) and its source."""
    if word.header == REGISTER and not word.loads_wave:
        return _write_index(word.rd, registers), word.so << 1 | word.to
    also = word.header in {CFG, BRANCH, REGISTER, MEMORY, PORT_HEADER} and word.wr
    return (_write_index(word.rd, registers) if also else -1), FROM_LITERAL if word.rdi else FROM_ALU


def _wave_switches(word: Word) -> tuple[int, int, int]:
    """Return (to a port, to the wave memory, to the wave registers)."""
    loads = int(word.loads_wave)
    stores = int(word.header == MEMORY and word.so == 1)
    sends = int(word.header == PORT_HEADER and word.so == 1)
    to_port = sends or ((loads or stores) and word.cond & 1)
    to_memory = stores or ((loads or sends) and word.cond >> 2)
    return to_port, to_memory, loads


@lru_cache(maxsize=65536)
def decode(word: int, registers: int = 32) -> tuple[int, ...]:
    """Return one row for one 72-bit word; `registers` is how many data registers the firmware was built with.

    Every word decodes: what the machine cannot do is refused when it is carried out, not when it is loaded.
    """
    w = cut(word)
    action, operation = _action(w)
    if action < FIRST_REFUSED and _reads_status(w):
        action = STATUS
    target, source = _register_write(w, registers)
    to_port, to_memory, to_registers = _wave_switches(w)
    updates = int(w.uf and w.header in {CFG, BRANCH, REGISTER, MEMORY, PORT_HEADER})
    stores_literal = w.header == MEMORY and w.to
    return (
        action,
        operation,
        w.cond if w.conditional else 0,
        _alu(w),
        _read_index(w.left, registers),
        _read_index(w.right, registers),
        int(w.df == 2),
        int(w.df == 3 or stores_literal),
        w.literal,
        updates,
        target,
        source,
        w.address if w.ai else _place_index(w.address & 63, registers),
        w.ai,
        _place_index(w.second, registers),
        w.second,
        int(w.header == PORT_HEADER and w.to == 1),
        (w.cond >> 1) & 1,
        to_port,
        to_memory,
        to_registers,
        _place_index(w.address & 63, registers),
        hazards.needs(w, to_memory=bool(to_memory)),
        hazards.sets(w, to_port=bool(to_port) or action == PIN, source=source if target >= 0 else FROM_ALU),
        hazards.leaves(w),
    )


def name(word: int) -> str:
    """Return the assembler's name of a refused instruction, for messages."""
    action, operation = _action(cut(word))
    if action == TIME_CHANGE:
        return "TIME rst" if operation & 1 else "TIME updt"
    peripherals = {NETWORK: "NET", COMMUNICATION: "COM", PERIPHERAL_A: "PA", PERIPHERAL_B: "PB"}
    if action in peripherals:
        return f"{peripherals[action]} {operation}"
    return "a read of s_status (ports and peripherals)"
