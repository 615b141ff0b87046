"""Shell completion for words with colons: bash splits `1:9` and addresses at `:` and `=`; this module joins them.

Imported only when a shell asks for completions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_WORD_BREAKS = re.compile("[:=]+")
"""Characters at which bash splits words (its variable COMP_WORDBREAKS)."""


def join_words(words: Sequence[str], current: int) -> tuple[list[str], str]:
    """Return the words before the current word, and the current word, as the user typed them.

    >>> join_words(["testbed", "switch", "polatis+tl1", ":", "//h", "connect", "1", ":", "9"], 8)
    (['testbed', 'switch', 'polatis+tl1://h', 'connect'], '1:9')
    >>> join_words(["testbed", "switch"], 2)
    (['testbed', 'switch'], '')
    """
    joined_words: list[str] = []
    is_joined = False
    for word in words[: current + 1]:
        is_break = bool(_WORD_BREAKS.fullmatch(word))
        if joined_words and (is_joined or is_break):
            joined_words[-1] += word
        else:
            joined_words.append(word)
        is_joined = is_break
    return (joined_words, "") if current >= len(words) else (joined_words[:-1], joined_words[-1])


def register_bash_completion() -> None:
    """Join words that bash splits, and cut completions to match. Do nothing for an unsupported version of typer."""
    try:
        from typer._click.shell_completion import add_completion_class, split_arg_string
        from typer._completion_classes import BashComplete
    except ImportError:
        return

    class Bash(BashComplete):
        """Completion for bash."""

        def get_completion_args(self) -> tuple[list[str], str]:
            """Return the words between the program's name and the current word, and the current word."""
            words = split_arg_string(os.environ["COMP_WORDS"])
            earlier_words, self._word = join_words(words, int(os.environ["COMP_CWORD"]))
            return earlier_words[1:], self._word

        def format_completion(self, item: object) -> str:
            """Return the text with which bash replaces the part after the last break."""
            value: str = item.value  # type: ignore[attr-defined]
            prefix_length = max((match.end() for match in _WORD_BREAKS.finditer(self._word)), default=0)
            return value[prefix_length:] if value.startswith(self._word[:prefix_length]) else value

    add_completion_class(Bash, "bash")
