"""What a Calient prints in TL1: answers in one or several blocks, denials, reports. Sans I/O.

       ocs1 26-01-31 12:00:00
    M  4 COMPLD
       "1.1.1>1.1.2:SRCPORT=1.1.1,DSTPORT=1.1.2,GRPNAME=SYSTEM,..."
    ;

A block that ends with `>` instead of `;` is continued in another. Commands are cut and parsed as in every TL1
(`sim.twins.families.polatis.tl1_syntax`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sim.twins.families.polatis.tl1_syntax import Denied

PROMPT = b"agent> "
NOTICE = "   /* NOTICE: this is a simulated switch;\r\n      no light is hurt. */"


def answer(
    name: str, tag: str, lines: Sequence[str], now: datetime, *, page_rows: int = 0, note: str = ""
) -> bytes:
    """A completed command with its data lines, at most `page_rows` a block (0 for all in one), and a comment."""
    size = page_rows or max(len(lines), 1)
    pages = [lines[start : start + size] for start in range(0, len(lines), size)] or [()]
    bodies = [_rows(page) for page in pages]
    bodies[-1] += [note] if note else []
    ends = [">"] * (len(bodies) - 1) + [";"]
    return b"".join(
        _block(name, f"M  {tag} COMPLD", body, now, end) for body, end in zip(bodies, ends, strict=True)
    )


def denial(name: str, tag: str, denied: Denied, now: datetime) -> bytes:
    """A refused command with code and comment."""
    return _block(name, f"M  {tag} DENY", [f"   {denied.code}", f"   /* {denied} */"], now, ";")


def report(name: str, tag: int, event: str, lines: Iterable[str], now: datetime) -> bytes:
    """Something nobody asked for, such as `REPT DBCHG`."""
    return _block(name, f"A  {tag} {event}", _rows(lines), now, ";")


def _rows(lines: Iterable[str]) -> list[str]:
    return [f'   "{line}"' for line in lines]


def _block(name: str, head: str, body: Iterable[str], now: datetime, end: str) -> bytes:
    lines = ["", f"   {name} {now:%y-%m-%d %H:%M:%S}", head, *body, end, ""]
    return "\r\n".join(lines).encode("latin-1", "replace")
