"""The grammar of small SCPI instruments, seen from the instrument: bytes to commands.

Sans I/O. Keywords in short form (the capitals of `SWITch`) or in full, in any case, some with a number behind them
(`ROUT6`); `;` chains. Source of the rules: SCPI-99 volume 1, chapter 6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

MAX_LINE_BYTES = 1 << 16

_PIECE = re.compile(r"[A-Za-z]+|\W")
_PIECES = {"[": "(?:", "]": ")?", "#": r"(\d{0,4})"}


class LineReader:
    """Cuts a stream of bytes into lines that end with any of the bytes `ends`, however it was split."""

    def __init__(self, ends: bytes) -> None:
        self._end = re.compile(b"[" + re.escape(ends) + b"]")
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes, without ends and white space; what grows beyond reason is dropped."""
        *lines, self._rest = self._end.split(self._rest + data)
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
        return [text for line in lines if (text := line.decode("latin-1").strip())]


@dataclass(frozen=True, slots=True)
class Unit:
    """One command of a line: its header as written, and its parameters as texts."""

    header: str
    parameters: tuple[str, ...]


def units(line: str) -> list[Unit]:
    """Return the commands of one line.

    >>> units("ROUT6:SCAN 2;SCAN?")
    [Unit(header='ROUT6:SCAN', parameters=('2',)), Unit(header='SCAN?', parameters=())]
    """
    return [_unit(text.strip()) for text in line.split(";") if text.strip()]


def _unit(text: str) -> Unit:
    header, *rest = text.split(None, 1)
    return Unit(header, tuple(part.strip() for part in rest[0].split(",")) if rest else ())


@lru_cache(maxsize=256)
def header_pattern(definition: str) -> re.Pattern[str]:
    """Return the pattern that `definition` stands for; `#` is a number that may be left out, and is a group.

    >>> header_pattern("ROUTe#:SCAN?").fullmatch("rout6:scan?")[1]
    '6'
    >>> header_pattern("ROUTe#:SCAN?").fullmatch("ROUT6:SCA?") is None
    True
    >>> bool(header_pattern("OXC:SWITch:SIZE?").fullmatch("oxc:SWIT:size?"))
    True
    """
    pieces = _PIECE.findall(definition)
    pattern = "".join(_PIECES.get(piece) or _either_form(piece) for piece in pieces)
    return re.compile(pattern, re.IGNORECASE)


def _either_form(piece: str) -> str:
    short = piece.rstrip("abcdefghijklmnopqrstuvwxyz")
    rest = piece[len(short) :]
    return f"{re.escape(short)}(?:{rest})?" if rest else re.escape(piece)
