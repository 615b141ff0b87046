"""Operations of a lab that were left unfinished, as every command names them: a key for programs, lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.lab.model import Lab


def with_unfinished(
    document: Mapping[str, Any], lines: Sequence[str], runs_dir: Path, lab: Lab
) -> tuple[dict[str, Any], list[str]]:
    """Return the document with the key `unfinished`, and the lines with one for each such operation.

    A journal that cannot be read is named in the same way.
    """
    from testbed.operate.unfinished import unfinished_or_why_not

    left = unfinished_or_why_not(runs_dir, lab)
    return {**document, "unfinished": [one.json() for one in left]}, [*lines, *(one.line() for one in left)]
