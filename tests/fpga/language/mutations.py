"""Texts for fuzzing: valid files, files with a few changes, and noise. Deterministic from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

_PIECE = re.compile(r"\s+|[A-Za-z_]\w*|\d+|\S")
_WORDS = """module counts targets actions inputs stream flag number of bits lanes signed sum over cycles while width to
for on emit shift pulse set clear advance modulo as with use import never not and valid data i k x y DAC 0 1 2 16 33
65536 4294967296 99999999999999999999 { } ( ) [ ] ; : , . = + - * / // " - 1 / 0 \x00 \x7f é \n""".split(" ")  # noqa: SIM905


def fuzzed(
    valid: Sequence[str], number: int, seed: int, *, mutated: float = 0.75
) -> Iterator[tuple[bool, str]]:
    """Return texts, and whether each is a mutation of a valid one (the others are noise)."""
    dice = random.Random(seed)
    for _ in range(number):
        if dice.random() < mutated:
            yield True, _mutation(dice, valid)
        else:
            yield False, _noise(dice)


def _mutation(dice: random.Random, valid: Sequence[str]) -> str:
    pieces = _PIECE.findall(dice.choice(valid))
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        place = dice.randrange(len(pieces))
        change = dice.choice((0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 6, 7, 7, 7))
        if change == 0:
            del pieces[place]
        elif change == 1:
            pieces.insert(place, dice.choice(_WORDS) + " ")
        elif change == 2:
            pieces[place] = dice.choice(_WORDS)
        elif change == 3:
            other = dice.randrange(len(pieces))
            pieces[place], pieces[other] = pieces[other], pieces[place]
        elif change == 4:
            end = place + dice.randrange(1, 12)
            pieces[place:place] = pieces[place:end]
        elif change == 5:
            pieces[place] = _near(dice, pieces[place])
        elif change == 7:
            _rename(dice, pieces)
        else:
            donor = _PIECE.findall(dice.choice(valid))
            start = dice.randrange(len(donor))
            pieces[place:place] = donor[start : start + dice.randrange(1, 20)]
        pieces = pieces or ["x"]
    return "".join(pieces)


def _rename(dice: random.Random, pieces: list[str]) -> None:
    """Put one name or number in the place of another: the text stays a text, and may mean something else."""
    for kind in (str.isidentifier, str.isdigit):
        places = [place for place, piece in enumerate(pieces) if kind(piece) and piece not in _WORDS[:39]]
        if places and dice.random() < 0.6:
            pieces[dice.choice(places)] = pieces[dice.choice(places)]


def _near(dice: random.Random, piece: str) -> str:
    """Return a number or a name that is almost this one; sometimes one that stands elsewhere."""
    if piece.isdigit():
        return str(
            dice.choice((0, 1, int(piece) + 1, abs(int(piece) - 1), 31, 32, 33, 1024, 1025, 2**32, 10**13))
        )
    if len(piece) > 1 and piece.isidentifier():
        place = dice.randrange(len(piece) - 1)
        return piece[:place] + piece[place + 1] + piece[place] + piece[place + 2 :]
    return piece * dice.choice((0, 2, 300))


def _noise(dice: random.Random) -> str:
    length = dice.choice((0, 1, 10, 200))
    if dice.random() < 0.6:
        return " ".join(dice.choice(_WORDS) for _ in range(length))
    return "".join(chr(dice.choice((dice.randrange(128), dice.randrange(0xD800)))) for _ in range(length))
