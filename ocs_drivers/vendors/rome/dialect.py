"""Differences between ROME and AFM: the heading of `show board`, its sizes, and the columns of `port show`.

Everything else of the command line is the same. The columns are those of published captures:

    E249[1BE121]     Unlocked     Enabled     Connected     13      W253[1BW125]   B249       ROME
    1AE12            Unlocked     Enabled     Connected     17      W60[1AW60]     E12,A12    ROME, other releases
    1AE129           Unlocked     Enabled     Disconnected  0                                 ROME, a spare place
    E5      1      2      1      w5      W6               1      765                          AFM
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One device family on this command line.

    `kind` is what the lines of `show board` begin with. `size` matches one entry of its MATRIX SIZE, with groups
    `side` and `last`. `row` matches one port of `port show` in text whose lines may have run together, with
    groups as `port_table` reads them. With `logical_requests`, there is a table of logical ports, and two circuits
    between the same two of them are asked for at once.
    """

    kind: str
    vendor: str
    size: re.Pattern[str]
    row: re.Pattern[str]
    logical_requests: bool = False


ROME = Dialect(
    kind="ROME",
    vendor="Wave2Wave",
    size=re.compile(r"(?:Male|Female)/(?P<side>West|East)\s+\d+\.\.(?P<last>\d{1,9})(?!\d)"),
    row=re.compile(
        r"(?<!\S)(?:(?P<port>[EW]\d{1,9})\[(?P<place>\w+)\]|(?P<bare>\d+[A-Z][EW]\d+))"
        r"\s+(?P<lock>Locked|Unlocked)\s+(?P<admin>Enabled|Disabled)"
        r"\s+(?P<state>Connected|Disconnected|In process)\s+(?P<counter>\d{1,9})(?!\S)"
        r"(?:\s+(?P<peer>[EW]\d+)\[\w+\](?!\s+(?:Un)?locked))?"
        r"(?:\s+(?:(?P<alias>[EW]\d{1,9})\s*,\s*)?(?P<logical>[A-Z]\d+)(?!\S))?",
        re.IGNORECASE,
    ),
)

AFM = Dialect(
    kind="AFM",
    vendor="FiberZone",
    size=re.compile(r"MAX_PORT_(?P<side>EAST|WEST)\s+(?P<last>\d{1,9})(?!\d)"),
    row=re.compile(
        r"(?<!\S)(?P<port>[EW]\d{1,9})\s+(?P<lock>[12])\s+(?P<state>\d)\s+(?P<admin>[12])"
        r"(?:\s+(?P<paired>[ew]\d+))?(?:\s+(?P<peer>[EW]\d+)(?:\s+[^\s\d]\S*)?)?"
        r"\s+(?P<role>[1-5])\s+(?P<counter>\d{1,9})(?!\S)"
    ),
    logical_requests=True,
)
