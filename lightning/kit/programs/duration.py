"""Duration of a compiled program of version 1, read from its words.

Time passes in such a program by `synci` (0x14), which moves the reference time on; `loopnz` (0x30) jumps back and
counts a register down, which `regwi` (0x19) has set before. Fields as in QICK's table of instructions: page in bits
55..53, register in bits 45..41, immediate in bits 30..0, target of a jump in bits 15..0. A program that moves time by
a register (`sync`, 0x52), waits for one (`wait`, 0x54) or branches on data (`condj`, 0x31) has no length that its
words tell.
"""

from __future__ import annotations

from collections.abc import Sequence

SYNCI, REGWI, LOOPNZ = 0x14, 0x19, 0x30
UNTOLD = frozenset((0x31, 0x52, 0x54))
_IMMEDIATE = (1 << 31) - 1


def ticks(words: Sequence[int], *, per_instruction: int = 0) -> int | None:
    """Return the ticks of the processor's clock from the start to the end; None where the words do not tell.

    `per_instruction` ticks are added for each instruction that is carried out. A loop of three rounds, of ten ticks
    each:

    >>> regwi = (0x19 << 56) | (14 << 41) | 2
    >>> loopnz = (0x30 << 56) | (14 << 41) | (8 << 46) | (14 << 36) | 1
    >>> ticks([regwi, (0x14 << 56) | 10, loopnz, 0x3F << 56])
    30
    """
    elapsed = [0]
    """At each address the ticks until it is first reached with all loops before it done."""
    for address, word in enumerate(words):
        opcode = int(word) >> 56
        if opcode in UNTOLD:
            return None
        after = elapsed[address] + per_instruction
        if opcode == SYNCI:
            after += int(word) & _IMMEDIATE
        elif opcode == LOOPNZ:
            start = int(word) & 0xFFFF
            count = _count(words, address, start)
            if count is None:
                return None
            after += (after - elapsed[start]) * count
        elapsed.append(after)
    return elapsed[-1]


def _count(words: Sequence[int], loop: int, start: int) -> int | None:
    """Return how often the loop jumps back: what was last written into its register, if it is known."""
    register = _register(words[loop])
    if start > loop:
        return None
    for word in reversed(words[:start]):
        if int(word) >> 56 == REGWI and _register(word) == register:
            return int(word) & _IMMEDIATE
    return None


def _register(word: int) -> tuple[int, int]:
    return (int(word) >> 53) & 7, (int(word) >> 41) & 31
