"""Errors and warnings of a text or a datapath: location, message and hint.

One run reports several errors: each step of reading a text collects its errors in a `Report`, and the next step
begins only if there are none.
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
"""Largest number of errors that are reported at once."""
_MAX_WORD_LENGTH = 60
"""Largest number of characters of a user's word that a message repeats."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error or a warning: `message` says what is wrong and why, `hint` what to do. Lines and columns begin at 1.

    A datapath that was built in Python has no source location: line and column are 0.
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
        """Return the fields as a dictionary, for JSON."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "hint": self.hint,
        }


Diagnostics: TypeAlias = Iterator[Diagnostic]


class CountActionError(FpgaError, ValueError, code="fpga.text"):
    """Errors of a text or a datapath; `errors` holds at most the first 50."""

    def __init__(self, errors: Iterable[Diagnostic]) -> None:
        self.errors = tuple(errors)[:_MAX_ERRORS]
        super().__init__("\n".join(map(str, self.errors)))

    def __reduce__(self) -> tuple[type[CountActionError], tuple[tuple[Diagnostic, ...]]]:
        return CountActionError, (self.errors,)


class SourceError(Exception):
    """An error in one part of a text. Reading continues with the other parts. Internal to this package."""

    def __init__(self, location: Location, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.diagnostic = make_diagnostic(location, message, hint)


def make_diagnostic(location: Location | None, message: str, hint: str = "") -> Diagnostic:
    """Return a diagnostic at a location; `location` is None for a part that was built in Python."""
    if location is None:
        return Diagnostic("<python>", 0, 0, message, hint)
    return Diagnostic(location.file, location.line, location.column, message, hint)


def find_range_error(
    description: str, value: int, low: int, high: int, location: Location | None
) -> Diagnostics:
    """Yield a diagnostic if `value` is outside `low` to `high`, both included."""
    if not low <= value <= high:
        yield make_diagnostic(
            location, f"the {description} is {value}, outside {low} to {high}", f"Choose {low} to {high}."
        )


@dataclass
class Report:
    """Errors and warnings of one text, and the assumptions about its undeclared names."""

    errors: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    inferences: list[Diagnostic] = field(default_factory=list)

    @contextmanager
    def catch_errors(self) -> Iterator[None]:
        """Record a `SourceError` raised in the body as an error, instead of passing it on."""
        try:
            yield
        except SourceError as error:
            self.add_error(error.diagnostic)

    def add_error(self, diagnostic: Diagnostic) -> None:
        """Record an error, unless there is one at the same location. Raise `CountActionError` at the 50th."""
        location = (diagnostic.file, diagnostic.line, diagnostic.column)
        if diagnostic.line == 0 or all(
            (error.file, error.line, error.column) != location for error in self.errors
        ):
            self.errors.append(diagnostic)
        if len(self.errors) >= _MAX_ERRORS:
            self.raise_errors()

    def raise_errors(self) -> None:
        """Raise `CountActionError` if there are errors, sorted by location."""
        if self.errors:
            raise CountActionError(
                sorted(
                    self.errors,
                    key=lambda error: (
                        error.file,
                        error.line,
                        error.column,
                    ),
                )
            )


def quote(token: str) -> str:
    """Return a user's word in backquotes, shortened to 60 characters, with unprintable characters escaped."""
    text = token if len(token) <= _MAX_WORD_LENGTH else token[: _MAX_WORD_LENGTH - 3] + "..."
    return "`" + "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) + "`"


def suggest_name(word: str, words: Iterable[str]) -> str:
    """Return `Did you mean ...?`, or the first 12 known words if none is similar; empty if there are no words."""
    names = list(dict.fromkeys(words))[:1000]
    similar_name = find_similar(word, names)
    if similar_name:
        return f"Did you mean {quote(similar_name)}?"
    return f"There are: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}." if names else ""


def find_similar(word: str, words: Iterable[str]) -> str:
    """Return the known word that is most similar to `word`, apart from `word` itself; empty if none is similar."""
    names = [name for name in dict.fromkeys(words) if name != word]
    folded_names = {name.casefold(): name for name in reversed(names)}
    close_names = difflib.get_close_matches(word[:100].casefold(), folded_names, n=1, cutoff=0.66)
    return folded_names[close_names[0]] if close_names else ""


def explain_memory_in_formula(name: str) -> tuple[str, str]:
    """Return the message and the hint for a formula that reads a memory (R25)."""
    hint = f"Read the word one cycle before, `read {name}[ADDRESS] as NAME`, and write NAME."
    return f"{quote(name)} is a memory, and a formula cannot read it", hint
