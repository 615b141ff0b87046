"""Decoding of an instruction word into a row of integers, which `machine` executes.

The decoder follows the hardware rather than the mnemonics. RET ignores its condition. WMEM_WR with a port takes its
time from `s14`, although the assembler accepts a literal time.

QICK's assembler (`tprocv2_assembler.py`) and the firmware's decoder (`qcore_cpu.sv`) define the layout of a word:

    71..69 header   68 AI   67..66 DF   65..63 condition   62 SO   61 TO   60 UF   59 WR   58 RDI   57..56 operation
    55..45 address (11 bits, or 50..45 a register)   44..39 second address, or port   38..7 data   6..0 destination

The data part depends on DF: two registers and 16 signed bits (1), one register and 24 signed bits (2), or a literal of
32 bits (3).

The firmware stalls an instruction while it depends on an earlier instruction in the pipeline (`qcore_ctrl_hazard.sv`).
Here, a row contains the resources that the instruction needs, and its effects: which resources it uses, and after how
many cycles of the core each of them is ready again. Some effects depend only on the address of the destination. They
occur even if the condition of the instruction does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sim.twins.rfsoc.tproc_v2.cells import (
    AND,
    ARITHMETIC,
    BRANCH,
    CALL,
    CFG,
    COMMUNICATION,
    CONTROL,
    CYCLE,
    DATA_REGISTERS,
    DIVIDE,
    FIRST_UNSIMULATED,
    FLAG,
    FROM_ALU,
    FROM_DMEM,
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
    READY_ADDRESS,
    READY_FLAG,
    READY_INPUT,
    READY_LOADED,
    READY_PORT,
    READY_UNIT,
    READY_WAVE,
    READY_WAVE_READ,
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

WRITABLE_REGISTERS = frozenset({0, 1, 2, 12, 13, 14, 15})
SIMULATED_STATUS = 0x700F
"""Simulated bits of `s_status`: bits of the arithmetic units, and three bits that are always zero."""


@dataclass(frozen=True, slots=True)
class InstructionWord:
    """The fields of an instruction, with the names of the hardware."""

    header: int
    ai: int
    df: int
    cond: int
    so: int
    to: int
    uf: int
    wr: int
    rdi: int
    low: int
    address: int
    second: int
    left: int
    right: int
    literal: int
    rd: int

    @property
    def loads_wave(self) -> bool:
        """True if this is REG_WR r_wave, which loads six registers from the wave memory."""
        return self.header == REGISTER and bool(self.so) and not self.to

    @property
    def is_conditional(self) -> bool:
        """True if `cond` is a condition. In instructions for waves and ports, its bits are switches."""
        if self.header in {CFG, BRANCH, CONTROL, PERIPHERAL_HEADER}:
            return True
        return (self.header == REGISTER and not self.loads_wave) or (self.header == MEMORY and not self.so)


def extract_bits(word: int, high: int, low: int) -> int:
    """Return bits `high` down to `low` of a word.

    >>> extract_bits(0b1011_0000, 7, 4)
    11
    """
    return (word >> low) & ((1 << (high - low + 1)) - 1)


def _extract_literal(word: int, df: int) -> int:
    """Return the literal as an unsigned 32-bit number. DF determines its width and sign extension."""
    if df == 0:
        return extract_bits(word, 55, 45)
    if df == 3:
        return extract_bits(word, 38, 7)
    width = 16 if df == 1 else 24
    value = extract_bits(word, 6 + width, 7)
    return (value - ((value >> (width - 1)) << width)) & 0xFFFF_FFFF


def split_word(word: int) -> InstructionWord:
    """Split a 72-bit word into its fields."""
    df = extract_bits(word, 67, 66)
    return InstructionWord(
        header=extract_bits(word, 71, 69),
        ai=extract_bits(word, 68, 68),
        df=df,
        cond=extract_bits(word, 65, 63),
        so=extract_bits(word, 62, 62),
        to=extract_bits(word, 61, 61),
        uf=extract_bits(word, 60, 60),
        wr=extract_bits(word, 59, 59),
        rdi=extract_bits(word, 58, 58),
        low=extract_bits(word, 59, 56),
        address=extract_bits(word, 55, 45),
        second=extract_bits(word, 44, 39),
        left=extract_bits(word, 37, 31) if df != 3 else 0,
        right=extract_bits(word, 29, 23) if df == 1 else 0,
        literal=_extract_literal(word, df),
        rd=extract_bits(word, 6, 0),
    )


EFFECTS = {
    "flags": ((READY_FLAG, 3),),
    "unit": ((READY_FLAG, 4), (READY_UNIT, 3)),
    "port": ((READY_PORT, 3),),
    "r_wave": ((READY_WAVE, 4), (READY_WAVE_READ, 3)),
    "input": ((READY_INPUT, 3),),
    "load": ((READY_LOADED, 2),),
    "random read": ((CYCLE, 2),),
    # These depend only on the address of the destination:
    "s_rand": ((CYCLE, 4),),
    "s_cfg": ((READY_FLAG, 5), (READY_UNIT, 4)),
    "s_addr": ((READY_ADDRESS, 4),),
    "w": ((READY_WAVE, 4),),
}
"""For each effect: the cells of the state that it sets, and their values in cycles after the instruction."""

EFFECT_BY_ADDRESS = {1: "s_rand", 2: "s_cfg", 15: "s_addr"}
_EFFECT_ROWS = [(effect, cell, delay) for effect, cells in EFFECTS.items() for cell, delay in cells]
EFFECT_CELL = tuple(cell for _, cell, _ in _EFFECT_ROWS)
EFFECT_DELAY = tuple(delay for _, _, delay in _EFFECT_ROWS)
_EFFECT_BITS = {
    effect: sum(1 << n for n, row in enumerate(_EFFECT_ROWS) if row[0] == effect) for effect in EFFECTS
}


def find_needed_cells(word: InstructionWord, *, to_memory: bool) -> int:
    """Return a bit mask of the cells, from READY_FLAG, that an instruction waits for before it starts."""
    sources = {word.left, word.right}
    is_needed_by_cell = {
        READY_FLAG: word.is_conditional and word.cond,
        READY_PORT: word.header == PORT_HEADER,
        READY_WAVE: to_memory,
        READY_WAVE_READ: any(source >> 5 == WAVE_REGISTERS >> 5 for source in sources),
        READY_UNIT: sources & {6, 7, 10, 11},
        READY_INPUT: sources & {8, 9},
    }
    return sum(1 << (cell - READY_FLAG) for cell, is_needed in is_needed_by_cell.items() if is_needed)


def find_address_effects(word: InstructionWord) -> int:
    """Return a bit mask of the effects (EFFECT_CELL) that an instruction has even if its condition does not hold."""
    effect = "w" if word.rd >> 5 == WAVE_REGISTERS >> 5 else EFFECT_BY_ADDRESS.get(word.rd)
    effect_mask = _EFFECT_BITS[effect] if effect else 0
    return effect_mask | (_EFFECT_BITS["random read"] if 1 in {word.left, word.right} else 0)


def find_effects(word: InstructionWord, *, to_port: bool, source: int) -> int:
    """Return a bit mask of the effects (EFFECT_CELL) of an executed instruction."""
    has_effect_by_name = {
        "flags": word.uf and word.header in {CFG, BRANCH, REGISTER, MEMORY, PORT_HEADER},
        "unit": word.header in {CONTROL, PERIPHERAL_HEADER},
        "port": to_port,
        "r_wave": word.loads_wave,
        "input": word.header == PORT_HEADER and not word.so and not word.cond & 1,
        "load": source == FROM_DMEM,
    }
    return find_address_effects(word) | sum(
        _EFFECT_BITS[effect] for effect, has_effect in has_effect_by_name.items() if has_effect
    )


def _find_source_register(address: int, register_count: int) -> int:
    """Return the register of a 7-bit source: 0..15 special, 32.. data, 64.. wave. The fourth bank is always zero."""
    bank, number = address >> 5, address & 31
    if bank == 1:
        return DATA_REGISTERS + (number & (register_count - 1))
    if bank == 2:
        return WAVE_REGISTERS + (number & 7)
    return number & 15 if bank == 0 else 0


def _find_destination_register(address: int, register_count: int) -> int:
    """Return the register of a 7-bit destination, or -1 for read-only registers (results of units and ports)."""
    bank, number = address >> 5, address & 31
    if bank == 1:
        return DATA_REGISTERS + (number & (register_count - 1))
    if bank == 2 and (number & 7) < 6:
        return WAVE_REGISTERS + (number & 7)
    return number if bank == 0 and number in WRITABLE_REGISTERS else -1


def _find_address_register(address: int, register_count: int) -> int:
    """Return the register of a 6-bit address, which is a special register or a data register."""
    return _find_source_register(address & 63, register_count)


def _find_control_action(word: InstructionWord) -> tuple[int, int]:
    """Return the action and operation of a command for an internal unit: time, flag, multiplier or divider."""
    unit_code, operation = extract_bits(word.low | word.uf << 4 | word.to << 5 | word.so << 6, 6, 4), word.low
    if unit_code == 0:
        return (TIME_CHANGE if operation & 3 else REFERENCE), operation
    if unit_code == 1:
        return FLAG, operation
    if unit_code == 2:
        return (ARITHMETIC if operation <= 8 else UNKNOWN), operation
    return (DIVIDE if unit_code == 3 else UNKNOWN), operation


def _find_action(word: InstructionWord) -> tuple[int, int]:
    """Return the action of a word (in addition to its calculation), and its operation number."""
    if word.header == CONTROL:
        return _find_control_action(word)
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


def _find_alu_operation(word: InstructionWord) -> int:
    """Return the operation of the arithmetic unit: one of 16 for REG_WR op, one of 4 for other instructions."""
    if word.header == REGISTER and not word.so and not word.to:
        return word.low
    return (word.low & 3) << 1


def _reads_status(word: InstructionWord) -> bool:
    """Return True if an instruction reads bits of `s_status` that belong to ports or peripherals."""
    if S_STATUS not in {word.left, word.right}:
        return False
    is_masked = word.right != S_STATUS and word.df == 2 and _find_alu_operation(word) == AND
    return not (is_masked and word.literal | SIMULATED_STATUS == SIMULATED_STATUS)


def _find_register_write(word: InstructionWord, register_count: int) -> tuple[int, int]:
    """Return the register that an instruction writes (-1 for none) and the source of the value."""
    if word.header == REGISTER and not word.loads_wave:
        return _find_destination_register(word.rd, register_count), word.so << 1 | word.to
    writes_register = word.header in {CFG, BRANCH, REGISTER, MEMORY, PORT_HEADER} and word.wr
    return (
        _find_destination_register(word.rd, register_count) if writes_register else -1
    ), FROM_LITERAL if word.rdi else FROM_ALU


def _find_wave_targets(word: InstructionWord) -> tuple[int, int, int]:
    """Return whether a wave is written to a port, to the wave memory, and to the wave registers."""
    loads = int(word.loads_wave)
    stores = int(word.header == MEMORY and word.so == 1)
    sends = int(word.header == PORT_HEADER and word.so == 1)
    to_port = sends or ((loads or stores) and word.cond & 1)
    to_memory = stores or ((loads or sends) and word.cond >> 2)
    return to_port, to_memory, loads


@lru_cache(maxsize=65536)
def decode_instruction(word: int, register_count: int = 32) -> tuple[int, ...]:
    """Return the row of a 72-bit word. `register_count` is the number of data registers of the firmware.

    Every word can be decoded. An instruction that is not simulated is refused when it is executed, not when it is
    loaded.
    """
    word_fields = split_word(word)
    action, operation = _find_action(word_fields)
    if action < FIRST_UNSIMULATED and _reads_status(word_fields):
        action = STATUS
    target, source = _find_register_write(word_fields, register_count)
    to_port, to_memory, to_registers = _find_wave_targets(word_fields)
    updates_flags = int(word_fields.uf and word_fields.header in {CFG, BRANCH, REGISTER, MEMORY, PORT_HEADER})
    stores_literal = word_fields.header == MEMORY and word_fields.to
    return (
        action,
        operation,
        word_fields.cond if word_fields.is_conditional else 0,
        _find_alu_operation(word_fields),
        _find_source_register(word_fields.left, register_count),
        _find_source_register(word_fields.right, register_count),
        int(word_fields.df == 2),
        int(word_fields.df == 3 or stores_literal),
        word_fields.literal,
        updates_flags,
        target,
        source,
        word_fields.address
        if word_fields.ai
        else _find_address_register(word_fields.address & 63, register_count),
        word_fields.ai,
        _find_address_register(word_fields.second, register_count),
        word_fields.second,
        int(word_fields.header == PORT_HEADER and word_fields.to == 1),
        (word_fields.cond >> 1) & 1,
        to_port,
        to_memory,
        to_registers,
        _find_address_register(word_fields.address & 63, register_count),
        find_needed_cells(word_fields, to_memory=bool(to_memory)),
        find_effects(
            word_fields, to_port=bool(to_port) or action == PIN, source=source if target >= 0 else FROM_ALU
        ),
        find_address_effects(word_fields),
    )


def describe_refused_instruction(word: int) -> str:
    """Return the assembler's name of an instruction that is not simulated."""
    action, operation = _find_action(split_word(word))
    if action == TIME_CHANGE:
        return "TIME rst" if operation & 1 else "TIME updt"
    peripherals = {NETWORK: "NET", COMMUNICATION: "COM", PERIPHERAL_A: "PA", PERIPHERAL_B: "PB"}
    if action in peripherals:
        return f"{peripherals[action]} {operation}"
    return "a read of s_status (ports and peripherals)"
