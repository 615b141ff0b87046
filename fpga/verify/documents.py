"""Files of a built folder that are no hardware, compared by what they say: comments and layout may be other ones."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import PurePath

_COMMENTS = {
    ".rdl": r"//[^\n]*|/\*.*?\*/",
    ".h": r"//[^\n]*|/\*.*?\*/",
    ".tcl": r"^\s*#[^\n]*",
    ".f": r"//[^\n]*",
    ".md": r"<!--.*?-->",
    ".xml": r"<!--.*?-->",
}


def same(name: str, delivered: str, made: str) -> bool:
    """Return whether two texts of a file say the same."""
    suffix = PurePath(name).suffix
    meaning = _MEANINGS.get(suffix, _words(_COMMENTS.get(suffix, r"(?!)")))
    try:
        return meaning(delivered) == meaning(made)
    except (ValueError, SyntaxError):
        return False


def _words(comment: str) -> Callable[[str], object]:
    """Return a function to the words of a text; strings are one word."""

    def words(text: str) -> list[str]:
        kept = re.sub(
            rf'("(?:[^"\\]|\\.)*")|(?:{comment})', lambda found: found[1] or " ", text, flags=_FLAGS
        )
        return re.findall(r'"(?:[^"\\]|\\.)*"|[\w.]+|[^\w\s]', kept)

    return words


_FLAGS = re.MULTILINE | re.DOTALL


_MEANINGS: dict[str, Callable[[str], object]] = {
    ".json": json.loads,
    ".py": lambda text: ast.dump(ast.parse(text)),
}
