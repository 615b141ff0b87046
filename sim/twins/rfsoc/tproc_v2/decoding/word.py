"""The 72-bit instruction word of the second timed processor, cut into the fields of the hardware.

The layout is that of QICK's assembler (`tprocv2_assembler.py`) and of the firmware's decoder (`qcore_cpu.sv`):

    71..69 header   68 AI   67..66 DF   65..63 condition   62 SO   61 TO   60 UF   59 WR   58 RDI   57..56 operation
    55..45 address (11 bits, or 50..45 a register)   44..39 second address, or port   38..7 data   6..0 destination

The data part depends on DF: 1 two registers and 16 signed bits, 2 one register and 24 signed bits, 3 a literal of 32
bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.twins.rfsoc.tproc_v2.decoding.columns import (
    BRANCH,
    CFG,
    CONTROL,
    MEMORY,
    PERIPHERAL_HEADER,
    REGISTER,
)


@dataclass(frozen=True, slots=True)
class Word:
    """An instruction cut at the borders of its fields; the names are the hardware's."""

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
        """REG_WR r_wave: six registers at once from the wave memory."""
        return self.header == REGISTER and bool(self.so) and not self.to

    @property
    def conditional(self) -> bool:
        """True if the three bits are a condition; for waves and ports they are switches."""
        if self.header in {CFG, BRANCH, CONTROL, PERIPHERAL_HEADER}:
            return True
        return (self.header == REGISTER and not self.loads_wave) or (self.header == MEMORY and not self.so)


def bits(word: int, high: int, low: int) -> int:
    """Return bits `high` down to `low` of a word.

    >>> bits(0b1011_0000, 7, 4)
    11
    """
    return (word >> low) & ((1 << (high - low + 1)) - 1)


def _literal(word: int, df: int) -> int:
    """Return the literal as 32 bits without sign, extended as DF says."""
    if df == 0:
        return bits(word, 55, 45)
    if df == 3:
        return bits(word, 38, 7)
    width = 16 if df == 1 else 24
    value = bits(word, 6 + width, 7)
    return (value - ((value >> (width - 1)) << width)) & 0xFFFF_FFFF


def cut(word: int) -> Word:
    """Cut a 72-bit word into its fields."""
    df = bits(word, 67, 66)
    return Word(
        header=bits(word, 71, 69),
        ai=bits(word, 68, 68),
        df=df,
        cond=bits(word, 65, 63),
        so=bits(word, 62, 62),
        to=bits(word, 61, 61),
        uf=bits(word, 60, 60),
        wr=bits(word, 59, 59),
        rdi=bits(word, 58, 58),
        low=bits(word, 59, 56),
        address=bits(word, 55, 45),
        second=bits(word, 44, 39),
        left=bits(word, 37, 31) if df != 3 else 0,
        right=bits(word, 29, 23) if df == 1 else 0,
        literal=_literal(word, df),
        rd=bits(word, 6, 0),
    )
