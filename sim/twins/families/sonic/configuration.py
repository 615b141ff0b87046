"""Circuits of a SONiC switch: configured circuits, and circuits of the hardware.

The hardware is the `SwitchDevice`. The configuration follows changes of the hardware by other operators. A ghost is a
circuit of the hardware that is not configured. If a stuck mirror prevents a circuit, the circuit is only configured.

Commas separate a list of pairs. An item is a pair `1A-2B` or a range of pairs `1A..10A-11B..20B`. Case is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from sim.twins.frontends.cli import CommandError
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import MatrixRefusal, Reason
from sim.twins.wire.control import Request, VerbError

Pair = tuple[int, int]

_PAIR_PATTERN = re.compile(r"(\d+)A(?:\.\.(\d+)A)?-(\d+)B(?:\.\.(\d+)B)?", re.IGNORECASE)


class InvalidPairs(Exception):
    """A text that is not a list of cross-connects, or names a port that does not exist."""


def parse_pairs(text: str, input_count: int, output_count: int) -> list[Pair]:
    """Return the pairs (input 1..N, output N+1..N+M) of a list. Raise `InvalidPairs` with the device's message.

    >>> parse_pairs("10A-11B,12A..13A-1B..2B", 16, 16)
    [(10, 27), (12, 17), (13, 18)]
    """
    pairs: list[Pair] = []
    for item in text.split(","):
        match = _PAIR_PATTERN.fullmatch(item)
        if match is None:
            raise InvalidPairs(f"Invalid cross-connect {item}")
        first_a, last_a, first_b, last_b = (int(group) if group else None for group in match.groups())
        assert first_a is not None  # required groups of the pattern
        assert first_b is not None
        sources = _parse_range(first_a, last_a, input_count, "A")
        sinks = _parse_range(first_b, last_b, output_count, "B")
        if len(sources) != len(sinks):
            raise InvalidPairs(f"Invalid range {item}: {len(sources)} A ports and {len(sinks)} B ports")
        pairs += [(source, input_count + sink) for source, sink in zip(sources, sinks, strict=True)]
    if len({port for pair in pairs for port in pair}) != 2 * len(pairs):
        raise InvalidPairs("Invalid list: a port is in two cross-connects")
    return pairs


def _parse_range(lowest: int, highest: int | None, port_count: int, side: str) -> range:
    highest = lowest if highest is None else highest
    if not 1 <= lowest <= highest <= port_count:
        raise InvalidPairs(f"Error: port out of range 1{side}..{port_count}{side}")
    return range(lowest, highest + 1)


def format_port_name(port: int, input_count: int) -> str:
    """Return the device's name of a port.

    >>> format_port_name(3, 8), format_port_name(9, 8)
    ('3A', '1B')
    """
    return f"{port}A" if port <= input_count else f"{port - input_count}B"


def format_pair_name(pair: Pair, input_count: int) -> str:
    """Return the device's name of a cross-connect."""
    return f"{format_port_name(pair[0], input_count)}-{format_port_name(pair[1], input_count)}"


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as SONiC prints it. A column is as wide as its longest cell, or its heading plus 2 if wider.

    >>> print(format_table(["id", "label"], [["1A", "left"]]))
    id    label
    ----  -------
    1A    left
    """
    widths = [
        max([len(name) + 2, *(len(row[column]) for row in rows)]) for column, name in enumerate(headings)
    ]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


AddMode = Literal["safe", "update", "overwrite"]


class Configuration:
    """Configuration and hardware of one switch, and the rules that relate them."""

    def __init__(self, device: SwitchDevice) -> None:
        self.device = device
        self.configured_pairs: set[Pair] = set()
        device.add_listener(self._note_change)

    @property
    def hardware(self) -> frozenset[Pair]:
        """Circuits of the hardware."""
        return frozenset(self.device.matrix.connections.items())

    @property
    def ghosts(self) -> frozenset[Pair]:
        """Circuits of the hardware that are not configured."""
        return self.hardware - self.configured_pairs

    def state(self, pair: Pair, port: int) -> str:
        """Return the status of a port of a cross-connect: `failed`, `blocked`, `tuning` or `tuned`."""
        matrix, faults = self.device.matrix, self.device.faults
        if port in matrix.failed_ports:
            return "failed"
        if port in matrix.disabled_ports or port in matrix.locked_ports:
            return "blocked"
        is_usable = (
            matrix.passes_light(pair) and self.device.find_plugged_input(pair[0]) not in faults.dark_inputs
        )
        return "tuning" if is_usable and pair[0] not in self.device.lit_connections else "tuned"

    def add(self, pairs: Collection[Pair], mode: AddMode) -> None:
        """Configure all cross-connects, or none if there is an error.

        Mode `safe` raises `CommandError` for a port in use, `update` replaces conflicting circuits, and `overwrite`
        replaces all configured circuits. Raise `CommandError` also for a conflict with a ghost, and `MatrixRefusal`
        for an unusable port.
        """
        if self.device.faults.must_drop_command():
            return
        conflicts = self._find_conflicts(pairs)
        if conflicts and mode == "safe":
            used_pair = format_pair_name(min(conflicts), self.device.matrix.input_count)
            raise CommandError(f"Error: a port is used by cross-connect {used_pair}")
        if conflicts & self.ghosts:
            ghost = format_pair_name(min(conflicts & self.ghosts), self.device.matrix.input_count)
            raise CommandError(f"Error: the hardware still holds {ghost}")
        removed_pairs = self.configured_pairs - set(pairs) if mode == "overwrite" else conflicts
        result = frozenset((self.hardware - removed_pairs) | set(pairs))
        self._check_unlocked(self.hardware - result)
        added_pairs = [pair for pair in pairs if pair not in self.hardware]
        self.device.matrix.plan_connections(
            [a for a, _ in added_pairs], [b for _, b in added_pairs], "replace"
        )
        self.device.change_connections(dict(sorted(result)))
        self.configured_pairs = (self.configured_pairs - removed_pairs) | set(pairs)

    def delete(self, pairs: Collection[Pair]) -> None:
        """Remove all cross-connects from configuration and hardware, or none if there is an error.

        Raise `CommandError` for a cross-connect that is not configured, and `MatrixRefusal` for a locked port.
        """
        if self.device.faults.must_drop_command():
            return
        missing_pairs = set(pairs) - self.configured_pairs
        if missing_pairs:
            name = format_pair_name(min(missing_pairs), self.device.matrix.input_count)
            raise CommandError(f"Error: cross-connect {name} does not exist")
        self._check_unlocked(set(pairs) & self.hardware)
        self.device.change_connections(dict(sorted(self.hardware - set(pairs))))
        self.configured_pairs -= set(pairs)

    def set_blocked(self, port: int, *, blocked: bool) -> None:
        """Block a port, or unblock it."""
        if not self.device.faults.must_drop_command():
            self.device.set_disabled({port}, is_disabled=blocked)

    def restore_configuration(self) -> None:
        """Replace the connections by the configured pairs that are not stuck, and save them for the next boot."""
        self.device.matrix.connections = dict(sorted(self.configured_pairs - self.device.faults.stuck_pairs))
        self.device.set_boot_mode("AUTOSAVE")

    def list_faults(self) -> dict[str, Fault]:
        """Return the fault `ghost_entry` by its name. It makes a ghost: the circuit of `port`, or the new `pair`."""
        return {"ghost_entry": Fault(self._make_ghost, lambda _: self._configure_ghosts(), "port")}

    # -- inside

    def _find_conflicts(self, pairs: Iterable[Pair]) -> set[Pair]:
        new_pairs = set(pairs)
        ports = {port for pair in new_pairs for port in pair}
        return {pair for pair in (self.configured_pairs | self.hardware) - new_pairs if ports & set(pair)}

    def _check_unlocked(self, removed_pairs: Iterable[Pair]) -> None:
        matrix = self.device.matrix
        for port in sorted(matrix.locked_ports & {port for pair in removed_pairs for port in pair}):
            matrix.refusal_counts[Reason.LOCKED] += 1
            raise MatrixRefusal(Reason.LOCKED, port)

    def _note_change(self, change: Change) -> None:
        self.configured_pairs.difference_update(change.removed_pairs)
        self.configured_pairs.update(change.added_pairs)

    def _make_ghost(self, request: Request) -> None:
        if "pair" in request:
            pair = self._parse_free_pair(request)
            self.device.change_connections({**self.device.matrix.connections, pair[0]: pair[1]})
            removed_pairs = {pair}
        else:
            port = request.get_integer("port")
            self.device.matrix.check_port(port)
            removed_pairs = {pair for pair in self.configured_pairs & self.hardware if port in pair}
        self.configured_pairs -= removed_pairs
        self.device.faults.fire_counts["ghost_entry"] += len(removed_pairs)

    def _parse_free_pair(self, request: Request) -> Pair:
        pair = request.get_pair("pair")
        self.device.matrix.check_input(pair[0])
        if self.device.matrix.is_input(pair[1]) or self._find_conflicts([pair]):
            raise VerbError(f"{pair} is not an input and an output that are free")
        return pair

    def _configure_ghosts(self) -> None:
        self.configured_pairs |= self.ghosts


def describe_refusal(refusal: MatrixRefusal, input_count: int) -> str:
    """Return the device's message for a refusal by its hardware. No wording is published (assumption)."""
    return f"Error: port {format_port_name(refusal.port, input_count)}: {refusal.reason.name.lower().replace('_', ' ')}"
