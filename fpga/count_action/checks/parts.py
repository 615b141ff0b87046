"""Checks that parts of every kind share: names and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fpga.count_action.diagnostics import Diagnostic, note, quoted
from fpga.count_action.language.syntax import MAX_NAME, RESERVED
from fpga.count_action.model import Location

Diagnostics = Iterator[Diagnostic]


def bad_name(what: str, name: str, at: Location | None) -> Diagnostics:
    """Report a name that cannot be one."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or len(name) > MAX_NAME:
        hint = f"Use letters, digits and underscores, at most {MAX_NAME}."
        yield note(at, f"{quoted(name)} cannot be the name of a {what}", hint)
    elif name in RESERVED:
        yield note(at, f"{quoted(name)} is a word of the language and cannot be a name", "Choose another.")


def twice(named: Iterable[tuple[str, str, Location | None]]) -> Diagnostics:
    """Report names that two things have."""
    seen: dict[str, tuple[str, Location | None]] = {}
    for what, name, at in named:
        if name in seen:
            other, place = seen[name]
            where = f" ({place})" if place else ""
            yield note(
                at, f"{quoted(name)} is a {what} here and a {other} elsewhere{where}", "Rename one of them."
            )
        seen.setdefault(name, (what, at))
