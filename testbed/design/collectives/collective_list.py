"""The table of collectives. A new one is a file here and a line in `COLLECTIVES`."""

from __future__ import annotations

from testbed.design.collectives.all_reduce import ALL_REDUCE
from testbed.design.collectives.exchange import ALL_TO_ALL, SEND_RECEIVE
from testbed.design.collectives.kind import Collective, Ways

COLLECTIVES = (ALL_REDUCE, ALL_TO_ALL, SEND_RECEIVE)
"""All collectives; the first whose ways are given counts: of those between pairs, the more particular stand first."""


def collective_of(ways: Ways) -> Collective:
    """Return the first collective of the table whose ways these are."""
    return next(each for each in COLLECTIVES if each.is_one_of(ways))
