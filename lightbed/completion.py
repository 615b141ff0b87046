"""Shell completion where words hold colons: bash takes `1:9` and addresses apart at `:` and `=`, and so must we not.

Imported only when a shell asks for completions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_BREAKS = re.compile("[:=]+")
"""Words of their own to bash, wherever they stand (its variable COMP_WORDBREAKS)."""


def join_words(words: Sequence[str], current: int) -> tuple[list[str], str]:
    """Return the words before the current one, and that one, as they were typed.

    >>> join_words(["testbed", "switch", "polatis+tl1", ":", "//h", "connect", "1", ":", "9"], 8)
    (['testbed', 'switch', 'polatis+tl1://h', 'connect'], '1:9')
    >>> join_words(["testbed", "switch"], 2)
    (['testbed', 'switch'], '')
    """
    typed: list[str] = []
    glued = False
    for word in words[: current + 1]:
        is_break = bool(_BREAKS.fullmatch(word))
        if typed and (glued or is_break):
            typed[-1] += word
        else:
            typed.append(word)
        glued = is_break
    return (typed, "") if current >= len(words) else (typed[:-1], typed[-1])


def use_for_bash() -> None:
    """Have bash's words joined, and answers cut where bash goes on; nothing, for a version of typer that differs."""
    try:
        from typer._click.shell_completion import add_completion_class, split_arg_string
        from typer._completion_classes import BashComplete
    except ImportError:
        return

    class Bash(BashComplete):
        """Completion for bash."""

        def get_completion_args(self) -> tuple[list[str], str]:
            """Return the words before the current one, without the program's, and that one."""
            words = split_arg_string(os.environ["COMP_WORDS"])
            before, self._word = join_words(words, int(os.environ["COMP_CWORD"]))
            return before[1:], self._word

        def format_completion(self, item: object) -> str:
            """Return what bash puts in place of what stands behind the last break."""
            value: str = item.value  # type: ignore[attr-defined]
            kept = max((match.end() for match in _BREAKS.finditer(self._word)), default=0)
            return value[kept:] if value.startswith(self._word[:kept]) else value

    add_completion_class(Bash, "bash")
