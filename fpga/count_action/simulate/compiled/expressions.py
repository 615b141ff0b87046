"""Pieces of generated Python: reading bits out of 64-bit words, putting fields side by side.

Everything is a 64-bit signed integer there, also the words of the rows: shifts to the right therefore repeat the top
bit, and a mask follows wherever that could be seen. No unsigned integer occurs, because numba makes a floating-point
number of an unsigned and a signed one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fpga.count_action.ports import WORD_BITS

_SINGLE_BITS = 2
"""More bits of a word than these are counted by one instruction."""


@dataclass(frozen=True, slots=True)
class Field:
    """`width` bits: from bit `low` of words that stand side by side, each an expression. Without words: zeros."""

    words: tuple[str, ...]
    low: int
    width: int
    whole: bool = False
    """True if the only word has no other bits than these."""

    def part(self, begin: int, width: int) -> Field:
        """Return `width` of its bits, from bit `begin` on."""
        return self if (begin, width) == (0, self.width) else Field(self.words, self.low + begin, width)


def whole(expression: str, width: int) -> Field:
    """Return a value that is known to fit in `width` bits."""
    return Field((expression,), 0, width, whole=True)


def zeros(width: int) -> Field:
    """Return bits that are never 1."""
    return Field((), 0, width)


def literal(value: int) -> str:
    """Return a 64-bit pattern as a signed number.

    >>> literal(2**64 - 1), literal(5)
    ('-1', '5')
    """
    value &= (1 << WORD_BITS) - 1
    return str(value - (value >> (WORD_BITS - 1) << WORD_BITS))


def mask_field(field: Field) -> str:
    """Return the bits of a field (at most 64) as a number, 0 above them.

    >>> mask_field(Field(("a", "b"), 3, 5)), mask_field(Field(("a", "b"), 60, 8))
    ('(a >> 3 & 31)', '((a >> 60 & 15 | b << 4) & 255)')
    """
    if field.whole:
        return field.words[0]
    word, shift = divmod(field.low, WORD_BITS)
    first = field.words[word]
    if field.width == WORD_BITS and not shift:
        return first
    mask = literal((1 << field.width) - 1)
    if shift + field.width <= WORD_BITS:
        return f"({first} >> {shift} & {mask})" if shift else f"({first} & {mask})"
    over = WORD_BITS - shift
    joined = f"{first} >> {shift} & {literal((1 << over) - 1)} | {field.words[word + 1]} << {over}"
    return f"(({joined}) & {mask})" if field.width < WORD_BITS else f"({joined})"


def number(field: Field, *, signed: bool) -> str:
    """Return what a sample stands for.

    >>> number(Field(("a",), 16, 16), signed=True)
    '(a << 32 >> 48)'
    """
    if not signed:
        return mask_field(field)
    word, shift = divmod(field.low, WORD_BITS)
    above = WORD_BITS - shift - field.width
    if above >= 0:
        shifted = f"{field.words[word]} << {above}" if above else field.words[word]
        return f"({shifted} >> {WORD_BITS - field.width})"
    top = literal(1 << (field.width - 1))
    return f"(({mask_field(field)} ^ {top}) - {top})"


def any_of(bits: Iterable[str]) -> str:
    """Return 1 when one of the bits is; 0 when there are none."""
    return " | ".join(dict.fromkeys(bits)) or "0"


def all_of(bits: Iterable[str]) -> str:
    """Return 1 when all of the bits are; 1 when there are none."""
    return " & ".join(dict.fromkeys(bit for bit in bits if bit != "1")) or "1"


def pack(fields: Iterable[Field]) -> list[str]:
    """Return fields side by side, the first lowest: an expression for each 64-bit word.

    >>> pack([whole("x", 4), zeros(2), Field(("a", "b"), 60, 8)])
    ['x | ((a >> 60 & 15 | b << 4) & 255) << 6']
    """
    words: list[list[str]] = []
    position = 0
    for field in merge(fields):
        begin = 0
        while begin < field.width:
            word, shift = divmod(position, WORD_BITS)
            width = min(field.width - begin, WORD_BITS - shift)
            if word == len(words):
                words.append([])
            if field.words:
                bits = mask_field(field.part(begin, width))
                words[word].append(f"{bits} << {shift}" if shift else bits)
            begin, position = begin + width, position + width
    return [" | ".join(parts) or "0" for parts in words]


def merge(fields: Iterable[Field]) -> list[Field]:
    """Join fields that are neighbours where they come from, too."""
    runs: list[Field] = []
    for field in fields:
        last = runs[-1] if runs else None
        if last and last.words == field.words and last.low + last.width == field.low and not field.whole:
            runs[-1] = Field(last.words, last.low, last.width + field.width)
        else:
            runs.append(field)
    return runs


def negative(bit: str) -> str:
    """Return all ones when a bit is 1: a mask."""
    return f"-{bit}" if bit.isidentifier() else f"-({bit})"


def ones(word: str, mask: int) -> str:
    """Return how many of some bits of a word are 1."""
    if mask.bit_count() > _SINGLE_BITS:
        return f"ones({word} & {literal(mask)})"
    return " + ".join(mask_field(Field((word,), place, 1)) for place in range(WORD_BITS) if mask >> place & 1)


def spread(bits: Iterable[str]) -> str:
    """Return bits side by side in one word; equal ones at once.

    >>> spread(["f0", "f0", "1"])
    '-f0 & 3 | 4'
    """
    masks: dict[str, int] = {}
    for place, bit in enumerate(bits):
        masks[bit] = masks.get(bit, 0) | 1 << place
    return any_of(
        literal(mask) if bit == "1" else f"{negative(bit)} & {literal(mask)}" for bit, mask in masks.items()
    )
