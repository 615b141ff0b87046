"""Lists of ports in Polatis' TL1."""

from __future__ import annotations

import re

from sim.twins.frontends.tl1_syntax import Denied

_PARTS = re.compile(r"\d+(?:&&\d+)?(?:&\d+(?:&&\d+)?)*")
_ITEM = re.compile(r"\d+(?:&&\d+)?")
_MAX_LIST = 4096


def aid_ports(aid: str) -> list[int]:
    """Return the ports of an access identifier: `&` lists, `&&` ranges.

    >>> aid_ports("1&4&10"), aid_ports("1&&4")
    ([1, 4, 10], [1, 2, 3, 4])

    Raises `Denied` (IIAC).
    """
    if not _PARTS.fullmatch(aid):
        raise Denied("IIAC", f"{aid[:40]!r} is not a list of ports")
    ports: list[int] = []
    for item in _ITEM.findall(aid):
        first, _, last = item.partition("&&")
        ports += range(int(first), int(last or first) + 1)[:_MAX_LIST]
    return ports[:_MAX_LIST]
