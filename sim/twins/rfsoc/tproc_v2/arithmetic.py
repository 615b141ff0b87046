"""Arithmetic of the processor: arithmetic unit, multiplier, divider and random register, on 32 bits without sign.

Widths and signs are the firmware's (AB_alu, arith, div_r and LFSR in `_qproc_ips.sv`).
"""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.decoding.cells import MASK


def signed(value: int) -> int:
    """Return 32 bits as a number with sign.

    >>> signed(0xFFFF_FFFE)
    -2
    """
    return value - ((value & 0x8000_0000) << 1)


def wrapped(value: int, width: int) -> int:
    """Return the low bits of a number as a number with sign.

    >>> wrapped(5, 3)
    -3
    """
    value &= (1 << width) - 1
    return value - ((value >> (width - 1)) << width)


def alu(operation: int, a: int, b: int) -> int:
    """Return the arithmetic unit: even operations count, odd ones are logic. Shifts look at four bits of `b`.

    >>> hex(alu(2, 3, 5))
    '0xfffffffe'
    """
    if operation & 1:
        return logic(operation >> 1, a, b) & MASK
    which = operation >> 1
    if which == 0:
        result = a + b
    elif which == 1:
        result = a - b
    elif which == 2:
        result = a & b
    elif which == 3:
        result = signed(a) >> (b & 15)
    elif which == 4:
        result = -b if b >> 31 else b
    elif which == 5:
        result = a >> 16
    elif which == 6:
        result = a & 0xFFFF
    else:
        result = (a & 0xFFFF) << 16 | a >> 16
    return result & MASK


def logic(which: int, a: int, b: int) -> int:
    """NOT, OR, XOR, CAT, a reserved one (zero), parity, shift left, shift right."""
    if which == 0:
        result = ~a
    elif which == 1:
        result = a | b
    elif which == 2:
        result = a ^ b
    elif which == 3:
        result = (a & 0xFFFF) << 16 | b & 0xFFFF
    elif which == 4:
        result = 0
    elif which == 5:
        result = parity(a)
    elif which == 6:
        result = a << (b & 15)
    else:
        result = a >> (b & 15)
    return result


def parity(a: int) -> int:
    """Return 1 for an odd number of ones among 32 bits."""
    for shift in (16, 8, 4, 2, 1):
        a ^= a >> shift
    return a & 1


def multiply(operation: int, a: int, b: int, c: int, d: int) -> int:
    """Return the multiplier: (A, D+A or D-A) x B, then nothing, +C or -C.

    27 x 18 bits with sign, sum of 46; the inner sum wraps at 27 bits, as the block's adder does.

    >>> multiply(4, 2, 10, 7, 3)  # PTP: (3 + 2) * 10 + 7
    57
    """
    left = wrapped(a, 27)
    if operation >= 6:
        left = wrapped(d, 27) - left
    elif operation >= 3:
        left = wrapped(d, 27) + left
    product = wrapped(left, 27) * wrapped(b, 18)
    if operation % 3 == 1:
        product += signed(c)
    elif operation % 3 == 2:
        product -= signed(c)
    return wrapped(product, 46)


def quotient(a: int, b: int) -> int:
    """Return the divider's result: 31 bits without sign, at most 2**31 - 1, which a division by zero gives.

    >>> quotient(17, 5), quotient(17, 0) == 2**31 - 1
    (3, True)
    """
    largest = 0x7FFF_FFFF
    return min(a // b, largest) if b else largest


def shifted(lfsr: int) -> int:
    """Return the next word of the random register: shift left, in comes the inverted parity of bits 31, 21, 1 and 0.

    >>> shifted(0), shifted(1)
    (1, 2)
    """
    new = 1 ^ (lfsr >> 31 ^ lfsr >> 21 ^ lfsr >> 1 ^ lfsr) & 1
    return (lfsr << 1 | new) & MASK
