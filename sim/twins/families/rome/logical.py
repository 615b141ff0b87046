"""Logical ports of a ROME: the E and W ports that go by one name, and the circuits that two names ask for. Pure.

The schemes are those of public captures, here with matrices of 128 ports:

    AB  A1 is E1 and W1; B129 is E129 and W129, the first ports of matrix B
    Q   Q1 is E1, E2, W1 and W2 of each matrix: a cable of several fibres
    P   P1 is E1 and W1 of each matrix: half of such a cable, the other half of which is in a second cabinet
    numbers  3 is E3 and W3: an AFM
    XY  Y1 is E1 and W129, X1 is E129 and W1: one end of a duplex circuit in each matrix

Two names ask for circuits both ways in every matrix, and of several fibres the first goes to the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Scheme = Literal["AB", "Q", "P", "XY", "numbers"]


@dataclass(frozen=True, slots=True)
class Place:
    """One E or W port: its number in the device, the letter of its matrix, its number within that."""

    port: int
    side: str
    number: int
    matrix: str
    within: int


def logical_name(scheme: Scheme, place: Place) -> str:
    """Return the logical name of a port.

    >>> logical_name("XY", Place(129, "E", 129, "B", 1)), logical_name("Q", Place(5, "E", 5, "A", 5))
    ('X1', 'Q3')
    """
    if scheme == "numbers":
        return str(place.number)
    if scheme == "AB":
        return f"{place.matrix}{place.number}"
    if scheme == "Q":
        return f"Q{(place.within + 1) // 2}"
    if scheme == "P":
        return f"P{place.within}"
    return f"{'Y' if (place.side == 'E') == (place.matrix == 'A') else 'X'}{place.within}"


def circuits_between(one: Iterable[Place], other: Iterable[Place]) -> list[tuple[int, int]]:
    """Return the circuits of two logical ports, those from `one` first; empty where they have no matrix in common."""
    here, there = list(one), list(other)
    return [*_one_way(here, there), *_one_way(there, here)]


def _one_way(here: list[Place], there: list[Place]) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for matrix in sorted({place.matrix for place in here}):
        east = [place.port for place in here if (place.side, place.matrix) == ("E", matrix)]
        west = [place.port for place in there if (place.side, place.matrix) == ("W", matrix)]
        pairs += zip(east, reversed(west), strict=False)
    return pairs
