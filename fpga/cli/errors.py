"""Errors of a command: one line a mistake for people, one document for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fpga.count_action.diagnostics import Diagnostic

ERROR = 1
_REASONS: dict[type[OSError], tuple[str, str]] = {
    FileExistsError: ("it is there already and is not replaced", "Give another name, or move it away."),
    FileNotFoundError: (
        "it is not there and cannot be made there",
        "Check the path, or give another folder.",
    ),
    PermissionError: (
        "it may not be read or written",
        "Give another path, or change the rights of this one.",
    ),
    IsADirectoryError: ("it is a folder", "Give the name of a file."),
    NotADirectoryError: ("a part of the path is a file, no folder", "Give a path through folders."),
}
"""Why the system refuses, and what to do."""


def tell(errors: Iterable[Diagnostic], *, as_json: bool) -> int:
    """Print errors, and the exit code. Programs get them on standard output, where they look for a document."""
    found = tuple(errors)
    if as_json:
        print(json.dumps({"ok": False, "errors": [each.as_dict() for each in found]}))
    else:
        for each in found:
            print(f"error: {_line(each)}", file=sys.stderr)
    return ERROR


def tell_message(message: str, *, as_json: bool) -> int:
    """Print what went wrong when it has no place in a file, and the exit code."""
    return tell([_without_place(message)], as_json=as_json)


def _without_place(message: str, hint: str = "") -> Diagnostic:
    """Return an error that is in no line of a file."""
    from fpga.count_action.diagnostics import Diagnostic

    return Diagnostic("", 0, 0, message, hint)


def of_the_system(error: OSError) -> Diagnostic:
    """Return what the operating system refused, why, and what to do."""
    if error.filename is None:
        return _without_place(error.strerror or str(error))
    path = Path(os.fsdecode(error.filename))
    why, hint = _reason(error, path)
    return _without_place(f"cannot use {str(path)!r}: {why}", hint)


def _reason(error: OSError, path: Path) -> tuple[str, str]:
    if isinstance(error, FileNotFoundError) and not path.parent.exists():
        return f"there is no folder {str(path.parent)!r}", "Make it, or give another path."
    known = (_REASONS[kind] for kind in _REASONS if isinstance(error, kind))
    return next(known, (error.strerror or str(error), "Give another path."))


def _line(error: Diagnostic) -> str:
    if error.file:
        return str(error)
    return f"{error.message}. {error.hint}" if error.hint else error.message
