"""The instruction set of the processor, and the decoding of 64-bit words into fields.

Bits of an instruction (firmware `axis_tproc64x32_x8_v1`, `ctrl.sv` and `tproc64x32_x8.v`):

    63..56  opcode         45..41  A, the register written      30..26  D     15..11  G
    55..53  page           40..36  B, read first                25..21  E     30..0   immediate
    52..50  channel        35..31  C, read second               20..16  F     15..0   address of a jump
    49..46  operation

The immediate has 31 bits and is sign-extended to 32. All registers of an instruction are on its page.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt


class InstructionKind(IntEnum):
    """Kind of an instruction. Opcodes of the same kind differ only in their second operand."""

    UNKNOWN = 0
    CALCULATE = 1  # A = B oper (C or immediate)
    ASSIGN = 2  # A = immediate
    FETCH = 3  # A = memory[B or immediate]
    STORE = 4  # memory[B or immediate] = C
    PUSH = 5  # stack <- B, then A = immediate
    POP = 6  # A <- stack
    SYNC = 7  # t_off += C or immediate
    SEND = 8  # word to the channel at t_off + (C or immediate)
    WAIT = 9  # until the channel has reached t_off + (C or immediate)
    LOOP = 10  # unless B is zero: A = B oper -1, and jump
    BRANCH = 11  # if B oper C: jump
    READ = 12  # A = half of an input port
    END = 13


@dataclass(frozen=True, slots=True)
class Instruction:
    """An entry of the instruction table."""

    name: str
    opcode: int
    kind: InstructionKind
    uses_immediate: bool
    """True if the operand is the immediate. A word to a channel then has 32 bits instead of 160."""
    ticks: int
    """Minimum ticks from the decoding of the instruction to the decoding of the next instruction (number of states of
    `ctrl.sv`)."""


_INSTRUCTION_TABLE = (
    Instruction("pushi", 0x10, InstructionKind.PUSH, uses_immediate=True, ticks=2),
    Instruction("popi", 0x11, InstructionKind.POP, uses_immediate=True, ticks=4),
    Instruction("mathi", 0x12, InstructionKind.CALCULATE, uses_immediate=True, ticks=5),
    Instruction("seti", 0x13, InstructionKind.SEND, uses_immediate=True, ticks=4),
    Instruction("synci", 0x14, InstructionKind.SYNC, uses_immediate=True, ticks=3),
    Instruction("waiti", 0x15, InstructionKind.WAIT, uses_immediate=True, ticks=7),
    Instruction("bitwi", 0x16, InstructionKind.CALCULATE, uses_immediate=True, ticks=5),
    Instruction("memri", 0x17, InstructionKind.FETCH, uses_immediate=True, ticks=4),
    Instruction("memwi", 0x18, InstructionKind.STORE, uses_immediate=True, ticks=2),
    Instruction("regwi", 0x19, InstructionKind.ASSIGN, uses_immediate=True, ticks=2),
    Instruction("setbi", 0x1A, InstructionKind.SEND, uses_immediate=True, ticks=4),
    Instruction("loopnz", 0x30, InstructionKind.LOOP, uses_immediate=False, ticks=3),
    Instruction("condj", 0x31, InstructionKind.BRANCH, uses_immediate=False, ticks=4),
    Instruction("end", 0x3F, InstructionKind.END, uses_immediate=False, ticks=1),
    Instruction("math", 0x50, InstructionKind.CALCULATE, uses_immediate=False, ticks=5),
    Instruction("set", 0x51, InstructionKind.SEND, uses_immediate=False, ticks=4),
    Instruction("sync", 0x52, InstructionKind.SYNC, uses_immediate=False, ticks=3),
    Instruction("read", 0x53, InstructionKind.READ, uses_immediate=False, ticks=2),
    Instruction("wait", 0x54, InstructionKind.WAIT, uses_immediate=False, ticks=7),
    Instruction("bitw", 0x55, InstructionKind.CALCULATE, uses_immediate=False, ticks=5),
    Instruction("memr", 0x56, InstructionKind.FETCH, uses_immediate=False, ticks=4),
    Instruction("memw", 0x57, InstructionKind.STORE, uses_immediate=False, ticks=2),
    Instruction("setb", 0x58, InstructionKind.SEND, uses_immediate=False, ticks=4),
)

INSTRUCTIONS = {instruction.opcode: instruction for instruction in _INSTRUCTION_TABLE}
"""Instructions by opcode."""

FIELD_COUNT = 16
"""Number of fields of a decoded instruction, in the order below. Compiled code on disk depends on this constant and on
`InstructionKind`, but is rebuilt only when `machine.py` changes."""
KIND, TICKS, USES_IMMEDIATE, OPERATION, CHANNEL, A, B, C, D, E, F, G, IMMEDIATE_VALUE, TARGET = range(14)


def decode(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the fields of words, (words, `FIELD_COUNT`).

    The number of a register is page x 32 + register. The immediate is an unsigned 32-bit word. An unknown opcode
    becomes `InstructionKind.UNKNOWN`, which is an error only when it is executed.

    >>> regwi_page_1_register_3_minus_2 = 0x19 << 56 | 1 << 53 | 3 << 41 | 0x7FFFFFFE
    >>> fields = decode(np.array([regwi_page_1_register_3_minus_2], np.uint64))[0]
    >>> int(fields[A]), int(fields[IMMEDIATE_VALUE]) - 2**32
    (35, -2)
    """
    fields = np.zeros((len(words), FIELD_COUNT), np.int64)
    opcode_table = _make_opcode_table()
    opcode = _extract_bits(words, 63, 56)
    fields[:, KIND], fields[:, TICKS], fields[:, USES_IMMEDIATE] = opcode_table[opcode].T
    fields[:, OPERATION] = _extract_bits(words, 49, 46)
    fields[:, CHANNEL] = _extract_bits(words, 52, 50)
    for field, lowest in ((A, 41), (B, 36), (C, 31), (D, 26), (E, 21), (F, 16), (G, 11)):
        fields[:, field] = _extract_bits(words, 55, 53) * 32 + _extract_bits(words, lowest + 4, lowest)
    fields[:, IMMEDIATE_VALUE] = _extract_bits(words, 30, 0) | _extract_bits(words, 30, 30) << 31
    fields[:, TARGET] = _extract_bits(words, 15, 0)
    return fields


def _extract_bits(words: npt.NDArray[np.uint64], high: int, low: int) -> npt.NDArray[np.int64]:
    return (words >> np.uint64(low) & np.uint64((1 << (high - low + 1)) - 1)).astype(np.int64)


def _make_opcode_table() -> npt.NDArray[Any]:
    table = np.zeros((256, 3), np.int64)
    for opcode, instruction in INSTRUCTIONS.items():
        table[opcode] = instruction.kind, instruction.ticks, instruction.uses_immediate
    return table
