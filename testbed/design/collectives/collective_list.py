"""Table of collectives. To add a collective, write its module in this package and list it in `COLLECTIVES`."""

from __future__ import annotations

from testbed.design.collectives.all_reduce import ALL_REDUCE
from testbed.design.collectives.exchange import ALL_TO_ALL, SEND_RECEIVE
from testbed.design.collectives.kind import Collective, CollectiveLayout

COLLECTIVES = (ALL_REDUCE, ALL_TO_ALL, SEND_RECEIVE)
"""All collectives, in the order in which `find_collective` tries them: specific collectives first."""


def find_collective(layout: CollectiveLayout) -> Collective:
    """Return the first collective of the table to which the layout belongs."""
    return next(candidate for candidate in COLLECTIVES if candidate.matches_layout(layout))
