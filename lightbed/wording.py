"""Numbers, lists and hints in sentences."""

from __future__ import annotations

from collections.abc import Iterable

MAX_SHOWN = 5
"""Largest number of items that a message lists; JSON documents list all."""


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural if needed.

    >>> (
    ...     format_count(1, "link"),
    ...     format_count(4, "link"),
    ...     format_count(0, "lost fibre"),
    ...     format_count(2, "patch"),
    ... )
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
    text = separator.join(texts[:MAX_SHOWN])
    if len(texts) <= MAX_SHOWN:
        return text
    return f"{text}{' ' if separator == ', ' else separator}and {len(texts) - MAX_SHOWN} more"


def describe_extra(extra: str) -> str:
    """Return the hint to install one of our extras.

    The hint names no command, because lightbed is on no package index: the command depends on the wheel or checkout.

    >>> describe_extra("sim")
    'install the extra [sim] of lightbed'
    """
    return f"install the extra [{extra}] of lightbed"
