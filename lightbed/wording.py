"""Numbers, lists and hints in sentences."""

from __future__ import annotations

from collections.abc import Iterable

SHOWN = 5
"""Largest number of items that a message lists; JSON documents list all."""


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural if needed.

    >>> count_noun(1, "link"), count_noun(4, "link"), count_noun(0, "lost fibre"), count_noun(2, "patch")
    ('1 link', '4 links', '0 lost fibres', '2 patches')
    """
    ending = "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{number} {noun}{'' if number == 1 else ending}"


def list_some(items: Iterable[object], separator: str = ", ") -> str:
    """Return the first five items, and the number of further ones.

    >>> list_some([1, 2]), list_some(range(8)), list_some(range(8), "; ")
    ('1, 2', '0, 1, 2, 3, 4 and 3 more', '0; 1; 2; 3; 4; and 3 more')
    """
    texts = [str(item) for item in items]
    text = separator.join(texts[:SHOWN])
    if len(texts) <= SHOWN:
        return text
    return f"{text}{' ' if separator == ', ' else separator}and {len(texts) - SHOWN} more"


def install_extra(extra: str) -> str:
    """Return the hint for a library that one of our extras installs.

    The hint names no command, because lightbed is on no package index: the command depends on the wheel or checkout.

    >>> install_extra("sim")
    'install the extra [sim] of lightbed'
    """
    return f"install the extra [{extra}] of lightbed"
