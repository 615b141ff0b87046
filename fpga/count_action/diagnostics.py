"""Diagnostics of a text or a datapath that is not right: where, what, why, and what to do.

Reading goes on after a mistake where it can, so that one run reports several: each step of the reading collects
its errors in a `Report` and the next step begins only when there are none.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from fpga.count_action.model import Location
from fpga.errors import FpgaError

_MAX_ERRORS = 50
"""More than these are not reported at once."""
_SHOWN = 60
"""Characters of a user's word that a message repeats."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One note: `message` says what is wrong and why, `hint` what to do. Lines and columns begin at 1.

    What was built in Python has no place in a file: its line and column are 0.
    """

    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}." + (
            f" {self.hint}" if self.hint else ""
        )

    def as_dict(self) -> dict[str, str | int]:
        """Return it as programs get it."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "hint": self.hint,
        }


Diagnostics: TypeAlias = Iterator[Diagnostic]


class CountActionError(FpgaError, ValueError, code="fpga.text"):
    """A text or a datapath is not a count-action datapath; `errors` say where, what, why, and what to do."""

    def __init__(self, errors: Iterable[Diagnostic]) -> None:
        self.errors = tuple(errors)[:_MAX_ERRORS]
        super().__init__("\n".join(map(str, self.errors)))

    def __reduce__(self) -> tuple[type[CountActionError], tuple[tuple[Diagnostic, ...]]]:
        return CountActionError, (self.errors,)


class Refused(Exception):
    """One part of a text cannot be read; the parts next to it may be fine. Never leaves this package."""

    def __init__(self, at: Location, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.diagnostic = note(at, message, hint)


def note(at: Location | None, message: str, hint: str = "") -> Diagnostic:
    """Return a diagnostic at a place, or about something that was built in Python."""
    if at is None:
        return Diagnostic("<python>", 0, 0, message, hint)
    return Diagnostic(at.file, at.line, at.column, message, hint)


def in_range(what: str, value: int, low: int, high: int, at: Location | None) -> Diagnostics:
    """Return a diagnostic of a number that is outside its range."""
    if not low <= value <= high:
        yield note(at, f"the {what} is {value}, outside {low} to {high}", f"Choose {low} to {high}.")


@dataclass
class Report:
    """Errors, warnings and inferences of one reading, one of each for a place."""

    errors: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    inferences: list[Diagnostic] = field(default_factory=list)

    @contextmanager
    def part(self) -> Iterator[None]:
        """Read a part that may be refused without ending the reading."""
        try:
            yield
        except Refused as refused:
            self.error(refused.diagnostic)

    def error(self, diagnostic: Diagnostic) -> None:
        """Note an error, unless one is known at this very place (ranges repeat them)."""
        place = (diagnostic.file, diagnostic.line, diagnostic.column)
        if diagnostic.line == 0 or all((e.file, e.line, e.column) != place for e in self.errors):
            self.errors.append(diagnostic)
        if len(self.errors) >= _MAX_ERRORS:
            self.settle()

    def settle(self) -> None:
        """End a step of the reading. Raises `CountActionError` when it found errors, in the order of the text."""
        if self.errors:
            raise CountActionError(sorted(self.errors, key=lambda each: (each.file, each.line, each.column)))


def quote(word: str) -> str:
    """Return a user's word in a message, cut when it is long and with what cannot be printed spelt out."""
    shown = word if len(word) <= _SHOWN else word[: _SHOWN - 3] + "..."
    return "`" + "".join(char if char.isprintable() else repr(char)[1:-1] for char in shown) + "`"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean ...?`, or what there is, or nothing when there is nothing."""
    names = list(dict.fromkeys(known))[:1000]
    close = near(word, names)
    if close:
        return f"Did you mean {quote(close)}?"
    return f"There are: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}." if names else ""


def near(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most like this one; empty when none is."""
    names = [name for name in dict.fromkeys(known) if name != word]
    folded = {name.casefold(): name for name in reversed(names)}
    close = difflib.get_close_matches(word[:100].casefold(), folded, n=1, cutoff=0.66)
    return folded[close[0]] if close else ""
