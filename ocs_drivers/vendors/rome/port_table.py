"""The table that `port show` prints: every port, its state, its circuit and how often it was moved. Pure.

Tables arrive with log lines between the rows, with two rows on one line, and with a row broken over two lines. So
rows are found in the text as a whole, and what proves that the table is whole is their number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import CrossConnects, PortState
from ocs_drivers.vendors.rome.codec import Board, Dialect
from ocs_drivers.vendors.rome.ports import Layout, Pair

FOR_CONNECTIONS = "1"
"""The role of a port that may have circuits; others are loopbacks, test buses and links."""


class Motion(Enum):
    """State of motion of a port."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    IN_PROCESS = "in process"
    OTHER = "other"


_MOTIONS = {
    "connected": Motion.CONNECTED,
    "2": Motion.CONNECTED,
    "disconnected": Motion.DISCONNECTED,
    "1": Motion.DISCONNECTED,
    "in process": Motion.IN_PROCESS,
    "6": Motion.IN_PROCESS,  # "attached"; an assumption: the robot has its plug
}


@dataclass(frozen=True, slots=True)
class PortRow:
    """One port; `name` is empty for a spare place, which no command can name."""

    name: str
    side: str
    matrix: str
    state: PortState
    motion: Motion
    counter: int
    peer: str = ""
    logical: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """All ports that a command can name, in the order of our numbers, as they were read at one moment."""

    ports: tuple[PortRow, ...]
    layout: Layout

    def unfit(self) -> dict[int, PortState]:
        """Return the ports that cannot be used, by our numbers."""
        states = {port: row.state for port, row in enumerate(self.ports, 1)}
        return {port: state for port, state in states.items() if state is not PortState.ENABLED}

    def connections(self, making: Collection[Pair]) -> CrossConnects:
        """Return the circuits. A port in process still has the one that is named with it, unless that is in `making`.

        Raises `ProtocolDesync` when the two ends of a circuit do not say the same.
        """
        held: set[Pair] = set()
        for row in self.ports:
            pair = self._pair(row)
            if pair and (row.motion is Motion.CONNECTED or pair not in making):
                held.add(pair)
        self._check_both_ends(held)
        try:
            return CrossConnects(held)
        except ValueError as error:
            raise ProtocolDesync(f"the table of ports is inconsistent: {error}") from error

    def _pair(self, row: PortRow) -> Pair | None:
        """Return the circuit that is reported with a port."""
        if row.motion not in {Motion.CONNECTED, Motion.IN_PROCESS} or not row.peer:
            return None
        pairs = self.layout.pairs(row.name, row.peer)
        if not pairs:
            raise ProtocolDesync(f"port {row.name} is connected to {row.peer}, which is impossible")
        return pairs[0]

    def _check_both_ends(self, held: Collection[Pair]) -> None:
        rows = {row.name: row for row in self.ports}
        for source, output in (self.layout.names(pair) for pair in held):
            one, other = rows[source], rows[output]
            if Motion.IN_PROCESS in {one.motion, other.motion}:
                continue
            if (one.peer, other.peer) != (output, source) or one.motion is not other.motion:
                raise ProtocolDesync(f"ports {source} and {output} report different circuits")


def decode_ports(lines: Sequence[str], dialect: Dialect, board: Board) -> Table:
    """Decode the table of all ports. Raises `ProtocolDesync` unless it has as many rows as the board says."""
    text = " ".join(lines)
    rows = tuple(_row(match.groupdict(default="")) for match in dialect.row.finditer(text))
    found = sum(row.side == "E" for row in rows), sum(row.side == "W" for row in rows)
    if found != (board.east, board.west):
        raise ProtocolDesync(
            f"the table of ports has {found[0]} east and {found[1]} west rows of {board.east} and {board.west}",
            received=text,
        )
    named = sorted((row for row in rows if row.name), key=lambda row: _order(row.name))
    if len({row.name for row in named}) != len(named):
        raise ProtocolDesync("the table of ports names a port twice", received=text)
    return Table(tuple(named), _layout(named))


def _layout(named: Sequence[PortRow]) -> Layout:
    """Return the names of these ports."""
    logical: dict[str, tuple[str, ...]] = {}
    for row in named:
        if row.logical:
            logical[row.logical] = (*logical.get(row.logical, ()), row.name)
    return Layout(
        tuple(row.name for row in named if row.side == "E"),
        tuple(row.name for row in named if row.side == "W"),
        {row.name: row.matrix for row in named if row.matrix},
        logical,
    )


def _row(fields: dict[str, str]) -> PortRow:
    place = (fields.get("place") or fields.get("bare", "")).upper()
    name = (fields["port"] or fields.get("alias", "")).upper()
    motion = _MOTIONS.get(fields["state"].lower(), Motion.OTHER)
    if motion is Motion.CONNECTED and not fields["peer"]:
        raise ProtocolDesync(f"port {name or place} is connected to nothing")
    side = name[:1] or place.lstrip("0123456789")[1:2]
    return PortRow(
        name,
        side,
        place.lstrip("0123456789")[:1],
        _state(fields, motion),
        motion,
        int(fields["counter"]),
        fields["peer"].upper(),
        fields.get("logical", "").upper(),
    )


def _state(fields: dict[str, str], motion: Motion) -> PortState:
    if fields["lock"].lower() in {"locked", "2"}:
        return PortState.LOCKED
    if fields["admin"].lower() in {"disabled", "2"} or fields.get("role", FOR_CONNECTIONS) != FOR_CONNECTIONS:
        return PortState.DISABLED
    return PortState.FAILED if motion is Motion.OTHER else PortState.ENABLED


def _order(name: str) -> tuple[bool, int]:
    return name[0] != "E", int(name[1:])
