"""The robot's queue as `connection show pending` prints it, other people's requests included. Pure.

Connection execution status: enabled
Command in process:
connect, ports: E3-W4, status: in process with payload
======= ========= ========= ================== ======= ===================
Request Port1     Port2     Command            Source  User
======= ========= ========= ================== ======= ===================
772     A1        A2        connect            CLI     admin
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import PendingMove
from ocs_drivers.vendors.rome.ports import Layout, Pair

_STATUS = re.compile(r"Connection execution status:\s*(?P<status>.*)", re.IGNORECASE)
_HOMING = re.compile(r'Perform\s+"?homing run"?', re.IGNORECASE)
_RUNNING = re.compile(
    r"\s*(?P<command>(?:dis)?connect), ports: (?P<one>[A-Z]?\d+)-(?P<other>[A-Z]?\d+)\b.*", re.IGNORECASE
)
_RULE = re.compile(r"\s*=+(?:\s+=+)+\s*")
_REQUEST = re.compile(
    r"\s*(?P<number>\d+)\s+(?P<one>[A-Z]?\d+)\s+(?P<other>[A-Z]?\d+)\s+(?P<command>(?:dis)?connect)"
    r"(?:\s+(?P<source>\S+)(?:\s+(?P<user>\S.*))?)?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\s*\d+(?:\s|$)")


@dataclass(frozen=True, slots=True)
class Request:
    """A move that was asked for; the one in process has no user and no source."""

    command: str
    one: str
    other: str
    number: str = ""
    source: str = ""
    user: str = ""

    def moves(self, layout: Layout) -> tuple[PendingMove, ...]:
        """Return the moves of the robot that this makes; a request for two logical ports makes two."""
        kind: Literal["connect", "disconnect"] = "disconnect" if self.command == "disconnect" else "connect"
        pairs: tuple[Pair | None, ...] = layout.pairs(self.one, self.other) or (None,)
        return tuple(PendingMove(kind, pair, self.user, self.source, self.number) for pair in pairs)


@dataclass(frozen=True, slots=True)
class Queue:
    """The request in process and those that wait. `needs_homing` is that the device asks for a homing run."""

    status: str = "enabled"
    needs_homing: bool = False
    running: Request | None = None
    waiting: tuple[Request, ...] = ()

    @property
    def is_disabled(self) -> bool:
        """True if nothing is executed until somebody enables it."""
        return "disabled" in self.status

    def moves(self, layout: Layout) -> tuple[PendingMove, ...]:
        """Return all moves in the order in which they are made, the one in process first."""
        requests = (self.running, *self.waiting) if self.running else self.waiting
        return tuple(move for request in requests for move in request.moves(layout))


def decode_queue(lines: Sequence[str]) -> Queue:
    """Decode the queue. Raises `ProtocolDesync` when its status, the heading or a part of a row is missing."""
    status = next((match["status"] for line in lines if (match := _STATUS.match(line))), None)
    rules = [number for number, line in enumerate(lines) if _RULE.fullmatch(line)]
    if status is None or len(rules) != 2:
        raise ProtocolDesync("the queue of the robot is incomplete", received=" ".join(lines))
    above, below = lines[: rules[0]], lines[rules[1] + 1 :]
    running = next((_request(match) for line in above if (match := _RUNNING.fullmatch(line))), None)
    if running is None and any(line.strip().lower() == "command in process:" for line in above):
        raise ProtocolDesync("the command in process is missing", received=" ".join(lines))
    return Queue(
        status.strip().lower(),
        any(_HOMING.search(line) for line in above),
        running,
        tuple(_row(line) for line in below if _NUMBERED.match(line)),
    )


def _row(line: str) -> Request:
    match = _REQUEST.fullmatch(line)
    if match is None:
        raise ProtocolDesync("a row of the robot's queue cannot be read", received=line)
    return _request(match)


def _request(match: re.Match[str]) -> Request:
    fields = match.groupdict(default="")
    return Request(
        fields["command"].lower(),
        fields["one"].upper(),
        fields["other"].upper(),
        fields.get("number", ""),
        fields.get("source", ""),
        fields.get("user", "").strip(),
    )
