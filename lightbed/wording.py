"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "link"), counted(4, "link"), counted(0, "lost fibre"), counted(2, "patch")
    ('1 link', '4 links', '0 lost fibres', '2 patches')
    """
    ending = "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{number} {noun}{'' if number == 1 else ending}"
