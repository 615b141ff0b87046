"""Message sizes as people write them."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from testbed.errors import CollectiveError

Sizes = Annotated[str, typer.Option("--sizes", metavar="MIN:MAX", help="Message sizes, doubling: 1KiB:8MiB.")]

_SIZE = re.compile(r"(\d+)\s*(|k|ki|kib|m|mi|mib)b?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20}


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return `1KiB:8MiB` as doubling sizes in bytes. Raises `CollectiveError` that shows the form.

    >>> parse_sizes("1KiB:4KiB")
    (1024, 2048, 4096)
    """
    from testbed.measure.collectives.ranks import doubling_sizes

    smallest, _, largest = text.partition(":")
    sizes = [_parse_size(word) for word in (smallest, largest or smallest)]
    if not 4 <= sizes[0] <= sizes[1]:
        raise CollectiveError(
            f"--sizes {text!r}: sizes start at 4 bytes and grow; write for example 1KiB:8MiB"
        )
    return doubling_sizes(sizes[0], sizes[1])


def _parse_size(word: str) -> int:
    found = _SIZE.fullmatch(word.strip())
    if found is None:
        raise CollectiveError(f"--sizes: {word!r} is no size; write for example 1KiB:8MiB")
    return int(found[1]) * _FACTORS[found[2][:1].lower()]
