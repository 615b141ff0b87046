"""Expressions in generated Python: bit fields of 64-bit words, and their concatenation.

Every value is a 64-bit signed integer, including the words of the rows. Right shifts therefore replicate the top bit,
and a mask follows wherever that matters. Unsigned integers are avoided, because numba turns an operation on an
unsigned and a signed integer into floating point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fpga.count_action.ports import WORD_BITS

_MAX_SINGLE_BITS = 2
"""Largest number of bits of a word that are added one by one; more are counted by one instruction."""


@dataclass(frozen=True, slots=True)
class BitField:
    """`width` bits, from bit `low` on, of a concatenation of words (expressions). A field without words is 0."""

    words: tuple[str, ...]
    low: int
    width: int
    is_word: bool = False
    """True if the field is one complete word."""

    def slice_bits(self, begin: int, width: int) -> BitField:
        """Return `width` bits of this field, from bit `begin` on."""
        return self if (begin, width) == (0, self.width) else BitField(self.words, self.low + begin, width)


def make_field(expression: str, width: int) -> BitField:
    """Return the field of an expression whose value is known to fit in `width` bits."""
    return BitField((expression,), 0, width, is_word=True)


def make_zeros(width: int) -> BitField:
    """Return a field of constant zeros."""
    return BitField((), 0, width)


def write_literal(value: int) -> str:
    """Return a 64-bit pattern as the literal of a signed number.

    >>> write_literal(2**64 - 1), write_literal(5)
    ('-1', '5')
    """
    value &= (1 << WORD_BITS) - 1
    return str(value - (value >> (WORD_BITS - 1) << WORD_BITS))


def mask_field(field: BitField) -> str:
    """Return the expression of a field (at most 64 bits) as an unsigned number.

    >>> mask_field(BitField(("a", "b"), 3, 5)), mask_field(BitField(("a", "b"), 60, 8))
    ('(a >> 3 & 31)', '((a >> 60 & 15 | b << 4) & 255)')
    """
    if field.is_word:
        return field.words[0]
    word_index, shift = divmod(field.low, WORD_BITS)
    first_word = field.words[word_index]
    if field.width == WORD_BITS and not shift:
        return first_word
    mask = write_literal((1 << field.width) - 1)
    if shift + field.width <= WORD_BITS:
        return f"({first_word} >> {shift} & {mask})" if shift else f"({first_word} & {mask})"
    low_width = WORD_BITS - shift
    low_mask = write_literal((1 << low_width) - 1)
    two_words = f"{first_word} >> {shift} & {low_mask} | {field.words[word_index + 1]} << {low_width}"
    return f"(({two_words}) & {mask})" if field.width < WORD_BITS else f"({two_words})"


def write_number(field: BitField, *, signed: bool) -> str:
    """Return the expression of the number in a field, two's complement if `signed`.

    >>> write_number(BitField(("a",), 16, 16), signed=True)
    '(a << 32 >> 48)'
    """
    if not signed:
        return mask_field(field)
    word_index, shift = divmod(field.low, WORD_BITS)
    unused_bits = WORD_BITS - shift - field.width
    if unused_bits >= 0:
        shifted_word = (
            f"{field.words[word_index]} << {unused_bits}" if unused_bits else field.words[word_index]
        )
        return f"({shifted_word} >> {WORD_BITS - field.width})"
    sign_bit = write_literal(1 << (field.width - 1))
    return f"(({mask_field(field)} ^ {sign_bit}) - {sign_bit})"


def join_or(bits: Iterable[str]) -> str:
    """Return the expression that is 1 if any of the bits is 1; 0 if there are no bits."""
    return " | ".join(dict.fromkeys(bits)) or "0"


def join_and(bits: Iterable[str]) -> str:
    """Return the expression that is 1 if all of the bits are 1; 1 if there are no bits."""
    return " & ".join(dict.fromkeys(bit for bit in bits if bit != "1")) or "1"


def pack(fields: Iterable[BitField]) -> list[str]:
    """Return the concatenation of fields, the first lowest, as one expression for each 64-bit word.

    >>> pack([make_field("x", 4), make_zeros(2), BitField(("a", "b"), 60, 8)])
    ['x | ((a >> 60 & 15 | b << 4) & 255) << 6']
    """
    words: list[list[str]] = []
    position = 0
    for field in merge_fields(fields):
        begin = 0
        while begin < field.width:
            word_index, shift = divmod(position, WORD_BITS)
            width = min(field.width - begin, WORD_BITS - shift)
            if word_index == len(words):
                words.append([])
            if field.words:
                bits = mask_field(field.slice_bits(begin, width))
                words[word_index].append(f"{bits} << {shift}" if shift else bits)
            begin, position = begin + width, position + width
    return [" | ".join(word_terms) or "0" for word_terms in words]


def merge_fields(fields: Iterable[BitField]) -> list[BitField]:
    """Return the fields; consecutive fields that are neighbours in the same words are joined."""
    merged_fields: list[BitField] = []
    for field in fields:
        previous_field = merged_fields[-1] if merged_fields else None
        if (
            previous_field
            and previous_field.words == field.words
            and previous_field.low + previous_field.width == field.low
            and not field.is_word
        ):
            merged_fields[-1] = BitField(
                previous_field.words, previous_field.low, previous_field.width + field.width
            )
        else:
            merged_fields.append(field)
    return merged_fields


def write_bit_mask(bit: str) -> str:
    """Return the mask expression of a bit: all ones if the bit is 1, otherwise 0."""
    return f"-{bit}" if bit.isidentifier() else f"-({bit})"


def count_ones(word: str, mask: int) -> str:
    """Return the expression for the number of ones among the masked bits of a word."""
    if mask.bit_count() > _MAX_SINGLE_BITS:
        return f"ones({word} & {write_literal(mask)})"
    return " + ".join(mask_field(BitField((word,), bit, 1)) for bit in range(WORD_BITS) if mask >> bit & 1)


def pack_bits(bits: Iterable[str]) -> str:
    """Return the expression of a word of bits, the first lowest; equal bits share one mask.

    >>> pack_bits(["f0", "f0", "1"])
    '-f0 & 3 | 4'
    """
    masks: dict[str, int] = {}
    for index, bit in enumerate(bits):
        masks[bit] = masks.get(bit, 0) | 1 << index
    return join_or(
        write_literal(mask) if bit == "1" else f"{write_bit_mask(bit)} & {write_literal(mask)}"
        for bit, mask in masks.items()
    )
