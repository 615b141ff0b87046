"""Cross-connects as SONiC writes them, and its tables; the twin's own reading of the public design document.

A list of pairs is parted by commas; a pair is `1A-2B` or a range of pairs, `1A..10A-11B..20B`. Letters may be small.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Pair = tuple[int, int]

_ITEM = re.compile(r"(\d+)A(?:\.\.(\d+)A)?-(\d+)B(?:\.\.(\d+)B)?", re.IGNORECASE)


class Invalid(Exception):
    """Raised for text that is not a list of cross-connects, or names ports that do not exist."""


def parse_pairs(text: str, inputs: int, outputs: int) -> list[Pair]:
    """Return pairs of ports (inputs 1..N, outputs N+1..N+M) of a list; raise the device's `Invalid`.

    >>> parse_pairs("10A-11B,12A..13A-1B..2B", 16, 16)
    [(10, 27), (12, 17), (13, 18)]
    """
    pairs: list[Pair] = []
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise Invalid(f"Invalid cross-connect {item}")
        first_a, last_a, first_b, last_b = (int(group) if group else None for group in match.groups())
        assert first_a is not None  # or the pattern would not match
        assert first_b is not None
        sources = _range(first_a, last_a, inputs, "A")
        sinks = _range(first_b, last_b, outputs, "B")
        if len(sources) != len(sinks):
            raise Invalid(f"Invalid range {item}: {len(sources)} A ports and {len(sinks)} B ports")
        pairs += [(source, inputs + sink) for source, sink in zip(sources, sinks, strict=True)]
    if len({port for pair in pairs for port in pair}) != 2 * len(pairs):
        raise Invalid("Invalid list: a port is in two cross-connects")
    return pairs


def _range(first: int, last: int | None, ports: int, side: str) -> range:
    last = first if last is None else last
    if not 1 <= first <= last <= ports:
        raise Invalid(f"Error: port out of range 1{side}..{ports}{side}")
    return range(first, last + 1)


def port_name(port: int, inputs: int) -> str:
    """Return the device's name of a port.

    >>> port_name(3, 8), port_name(9, 8)
    ('3A', '1B')
    """
    return f"{port}A" if port <= inputs else f"{port - inputs}B"


def pair_name(pair: Pair, inputs: int) -> str:
    """Return the device's name of a cross-connect."""
    return f"{port_name(pair[0], inputs)}-{port_name(pair[1], inputs)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as SONiC prints it: a column is as wide as its longest cell, or its head and two more.

    >>> print(table(["id", "label"], [["1A", "left"]]))
    id    label
    ----  -------
    1A    left
    """
    widths = [max([len(name) + 2, *(len(row[column]) for row in rows)]) for column, name in enumerate(head)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
