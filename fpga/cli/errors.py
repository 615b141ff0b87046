"""Output of errors: one line per error, or one JSON document."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fpga.count_action.diagnostics import Diagnostic

ERROR_CODE = 1
_REASONS: dict[type[OSError], tuple[str, str]] = {
    FileExistsError: ("it exists already and is not replaced", "Give another name, or move it away."),
    FileNotFoundError: (
        "it does not exist and cannot be created",
        "Check the path, or give another folder.",
    ),
    PermissionError: (
        "permission denied",
        "Give another path, or change its permissions.",
    ),
    IsADirectoryError: ("it is a folder", "Give the name of a file."),
    NotADirectoryError: ("a part of the path is a file, not a folder", "Give a path through folders."),
}
"""Reason and hint for each kind of error of the operating system."""


def print_errors(errors: Iterable[Diagnostic], *, as_json: bool) -> int:
    """Print errors, and return the exit code. JSON goes to standard output, text to standard error."""
    diagnostics = tuple(errors)
    if as_json:
        print(json.dumps({"ok": False, "errors": [diagnostic.as_dict() for diagnostic in diagnostics]}))
    else:
        for diagnostic in diagnostics:
            print(f"error: {_format_line(diagnostic)}", file=sys.stderr)
    return ERROR_CODE


def print_message(message: str, *, as_json: bool) -> int:
    """Print an error without a source location, and return the exit code."""
    return print_errors([_make_unlocated_error(message)], as_json=as_json)


def _make_unlocated_error(message: str, hint: str = "") -> Diagnostic:
    """Return an error without a source location."""
    from fpga.count_action.diagnostics import Diagnostic

    return Diagnostic("", 0, 0, message, hint)


def diagnose_os_error(error: OSError) -> Diagnostic:
    """Return the diagnostic of an error of the operating system, with reason and hint."""
    if error.filename is None:
        return _make_unlocated_error(error.strerror or str(error))
    path = Path(os.fsdecode(error.filename))
    reason, hint = _explain_os_error(error, path)
    return _make_unlocated_error(f"cannot use {str(path)!r}: {reason}", hint)


def _explain_os_error(error: OSError, path: Path) -> tuple[str, str]:
    if isinstance(error, FileNotFoundError) and not path.parent.exists():
        return f"there is no folder {str(path.parent)!r}", "Create it, or give another path."
    explanations = (_REASONS[kind] for kind in _REASONS if isinstance(error, kind))
    return next(explanations, (error.strerror or str(error), "Give another path."))


def _format_line(error: Diagnostic) -> str:
    if error.file:
        return str(error)
    return f"{error.message}. {error.hint}" if error.hint else error.message
