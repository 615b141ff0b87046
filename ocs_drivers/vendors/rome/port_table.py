"""Decoder of the table of `port show`: every port, its state, its circuit and its number of moves. Pure.

A table may have log lines between rows, two rows on one line, or a row on two lines. So rows are matched in the joined
text, and their number shows whether the table is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import CrossConnects, PortState
from ocs_drivers.vendors.rome.codec import Board, Dialect
from ocs_drivers.vendors.rome.ports import Layout, Pair

CONNECTION_USE = "1"
"""The role of ports for circuits; the other roles are loopbacks, test buses and links."""


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
    """One port; `name` is empty for a spare port, which no command can name."""

    name: str
    side: str
    matrix: str
    state: PortState
    motion: Motion
    move_count: int
    peer: str = ""
    logical_name: str = ""


@dataclass(frozen=True, slots=True)
class PortTable:
    """All ports of one read that a command can name, in the order of our numbers."""

    ports: tuple[PortRow, ...]
    layout: Layout

    def find_unfit_ports(self) -> dict[int, PortState]:
        """Return the states of the ports that cannot be used, by our numbers."""
        states = {port: row.state for port, row in enumerate(self.ports, 1)}
        return {port: state for port, state in states.items() if state is not PortState.ENABLED}

    def find_connections(self, pending_pairs: Collection[Pair]) -> CrossConnects:
        """Return the circuits, without circuits in process that are in `pending_pairs`.

        `pending_pairs` contains the circuits that the robot has not connected yet. Other circuits in process still
        exist. Raises `ProtocolDesync` if the rows of the two ends of a circuit disagree.
        """
        pairs: set[Pair] = set()
        for row in self.ports:
            pair = self._find_pair(row)
            if pair and (row.motion is Motion.CONNECTED or pair not in pending_pairs):
                pairs.add(pair)
        self._check_both_ends(pairs)
        try:
            return CrossConnects(pairs)
        except ValueError as error:
            raise ProtocolDesync(f"the table of ports is inconsistent: {error}") from error

    def _find_pair(self, row: PortRow) -> Pair | None:
        """Return the circuit in the row of a port, or None."""
        if row.motion not in {Motion.CONNECTED, Motion.IN_PROCESS} or not row.peer:
            return None
        pairs = self.layout.get_pairs(row.name, row.peer)
        if not pairs:
            raise ProtocolDesync(
                f"the device reports that port {row.name} is connected to {row.peer}, which is impossible"
            )
        return pairs[0]

    def _check_both_ends(self, pairs: Collection[Pair]) -> None:
        row_by_name = {row.name: row for row in self.ports}
        for source, output in (self.layout.get_names(pair) for pair in pairs):
            source_row, output_row = row_by_name[source], row_by_name[output]
            if Motion.IN_PROCESS in {source_row.motion, output_row.motion}:
                continue
            if (source_row.peer, output_row.peer) != (
                output,
                source,
            ) or source_row.motion is not output_row.motion:
                raise ProtocolDesync(f"ports {source} and {output} report different circuits")


def decode_ports(lines: Sequence[str], dialect: Dialect, board: Board) -> PortTable:
    """Decode the table of all ports. Raise `ProtocolDesync` unless it has as many rows as the board reports."""
    text = " ".join(lines)
    rows = tuple(_decode_row(match.groupdict(default="")) for match in dialect.row_pattern.finditer(text))
    row_counts = sum(row.side == "E" for row in rows), sum(row.side == "W" for row in rows)
    if row_counts != (board.east_count, board.west_count):
        raise ProtocolDesync(
            f"the table of ports has {row_counts[0]} east and {row_counts[1]} west rows, "
            f"but the board has {board.east_count} and {board.west_count} ports",
            received=text,
        )
    usable_rows = sorted((row for row in rows if row.name), key=lambda row: _sort_key(row.name))
    if len({row.name for row in usable_rows}) != len(usable_rows):
        raise ProtocolDesync("the table of ports names a port twice", received=text)
    return PortTable(tuple(usable_rows), _make_layout(usable_rows))


def _make_layout(rows: Sequence[PortRow]) -> Layout:
    """Return the layout of these ports."""
    ports_by_logical_name: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if row.logical_name:
            ports_by_logical_name[row.logical_name] = (
                *ports_by_logical_name.get(row.logical_name, ()),
                row.name,
            )
    return Layout(
        tuple(row.name for row in rows if row.side == "E"),
        tuple(row.name for row in rows if row.side == "W"),
        {row.name: row.matrix for row in rows if row.matrix},
        ports_by_logical_name,
    )


def _decode_row(fields: dict[str, str]) -> PortRow:
    location = (fields.get("place") or fields.get("bare", "")).upper()
    name = (fields["port"] or fields.get("alias", "")).upper()
    motion = _MOTIONS.get(fields["state"].lower(), Motion.OTHER)
    if motion is Motion.CONNECTED and not fields["peer"]:
        raise ProtocolDesync(
            f"the device reports that port {name or location} is connected, but not to which port"
        )
    side = name[:1] or location.lstrip("0123456789")[1:2]
    return PortRow(
        name,
        side,
        location.lstrip("0123456789")[:1],
        _decode_state(fields, motion),
        motion,
        int(fields["counter"]),
        fields["peer"].upper(),
        fields.get("logical", "").upper(),
    )


def _decode_state(fields: dict[str, str], motion: Motion) -> PortState:
    if fields["lock"].lower() in {"locked", "2"}:
        return PortState.LOCKED
    if fields["admin"].lower() in {"disabled", "2"} or fields.get("role", CONNECTION_USE) != CONNECTION_USE:
        return PortState.DISABLED
    return PortState.FAILED if motion is Motion.OTHER else PortState.ENABLED


def _sort_key(name: str) -> tuple[bool, int]:
    return name[0] != "E", int(name[1:])
