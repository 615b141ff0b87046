"""Frames of TL1: answers in one or several blocks, denials, reports. Sans I/O.

       ocs1 26-01-31 12:00:00
    M  4 COMPLD
       "1.1.1>1.1.2:SRCPORT=1.1.1,DSTPORT=1.1.2,GRPNAME=SYSTEM,..."
    ;

A block that ends with `>` instead of `;` is continued in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sim.twins.frontends.tl1_syntax import Denied


@dataclass(frozen=True, slots=True)
class Framing:
    """Bytes around the blocks of one family: before the name of the device and after the terminator."""

    before: str = "\r\n   "
    after: str = ""
    before_report: str = "\r\n   "
    after_report: str = ""

    def answer(
        self, name: str, tag: str, pages: Sequence[Sequence[str]], now: datetime, *, note: str = ""
    ) -> bytes:
        """Return a completed command: a block for the data lines of each page, and a comment in the last."""
        bodies = [_rows(page) for page in pages]
        bodies[-1] += [note] if note else []
        ends = [">"] * (len(bodies) - 1) + [";"]
        return b"".join(
            self._block(name, f"M  {tag} COMPLD", body, now, end)
            for body, end in zip(bodies, ends, strict=True)
        )

    def denial(self, name: str, tag: str, denied: Denied, now: datetime) -> bytes:
        """Return a refused command with code and comment."""
        return self._block(name, f"M  {tag} DENY", [f"   {denied.code}", f"   /* {denied} */"], now)

    def report(self, name: str, tag: int, event: str, lines: Iterable[str], now: datetime) -> bytes:
        """Return an autonomous message, such as `REPT DBCHG`."""
        text = self.before_report + _block(name, f"A  {tag} {event}", _rows(lines), now, ";")
        return (text + self.after_report).encode("latin-1", "replace")

    def _block(self, name: str, head: str, body: Iterable[str], now: datetime, end: str = ";") -> bytes:
        text = self.before + _block(name, head, body, now, end) + self.after
        return text.encode("latin-1", "replace")


def _rows(lines: Iterable[str]) -> list[str]:
    return [f'   "{line}"' for line in lines]


def _block(name: str, head: str, body: Iterable[str], now: datetime, end: str) -> str:
    return "\r\n".join([f"{name or '( nil )'} {now:%y-%m-%d %H:%M:%S}", head, *body, end])
