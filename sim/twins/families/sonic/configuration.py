"""The circuits of a SONiC switch as it writes them: those configured, and those that the hardware holds.

The hardware is the `SwitchDevice`. The configuration follows it where somebody else changes it; a ghost is in the
hardware only, and what a broken mirror never made is in the configuration only.

A list of pairs is parted by commas; a pair is `1A-2B` or a range of pairs, `1A..10A-11B..20B`. Letters may be small.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from sim.twins.frontends.cli import CommandError
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Reason, Refused
from sim.twins.wire.control import Request, VerbError

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


Mode = Literal["safe", "update", "overwrite"]


class Configuration:
    """Configuration and hardware of one switch, and the rules between them."""

    def __init__(self, device: SwitchDevice) -> None:
        self.device = device
        self.configured: set[Pair] = set()
        device.listen(self._follow)

    @property
    def hardware(self) -> frozenset[Pair]:
        """Circuits that the hardware holds."""
        return frozenset(self.device.matrix.connections.items())

    @property
    def ghosts(self) -> frozenset[Pair]:
        """Circuits that the hardware holds without configuration."""
        return self.hardware - self.configured

    def state(self, pair: Pair, port: int) -> str:
        """Return the device's status of a port of a cross-connect in its hardware."""
        matrix, faults = self.device.matrix, self.device.faults
        if port in matrix.failed:
            return "failed"
        if port in matrix.disabled or port in matrix.locked:
            return "blocked"
        usable = matrix.passes(pair) and self.device.fibre(pair[0]) not in faults.dark_inputs
        return "tuning" if usable and pair[0] not in self.device.lit else "tuned"

    def add(self, pairs: Collection[Pair], mode: Mode) -> None:
        """Configure cross-connects: all of them or none. Raises `CommandError`, `Refused`."""
        if self.device.faults.take_dropped_command():
            return
        in_the_way = self._in_the_way(pairs)
        if in_the_way and mode == "safe":
            used = pair_name(min(in_the_way), self.device.matrix.inputs)
            raise CommandError(f"Error: a port is used by cross-connect {used}")
        if in_the_way & self.ghosts:
            ghost = pair_name(min(in_the_way & self.ghosts), self.device.matrix.inputs)
            raise CommandError(f"Error: the hardware still holds {ghost}")
        doomed = self.configured - set(pairs) if mode == "overwrite" else in_the_way
        held = frozenset((self.hardware - doomed) | set(pairs))
        self._check_unlocked(self.hardware - held)
        new = [pair for pair in pairs if pair not in self.hardware]
        self.device.matrix.add([a for a, _ in new], [b for _, b in new], "replace")
        self.device.change(dict(sorted(held)))
        self.configured = (self.configured - doomed) | set(pairs)

    def delete(self, pairs: Collection[Pair]) -> None:
        """Take cross-connects out of both: all of them or none. Raises `CommandError`, `Refused`."""
        if self.device.faults.take_dropped_command():
            return
        missing = set(pairs) - self.configured
        if missing:
            name = pair_name(min(missing), self.device.matrix.inputs)
            raise CommandError(f"Error: cross-connect {name} does not exist")
        self._check_unlocked(set(pairs) & self.hardware)
        self.device.change(dict(sorted(self.hardware - set(pairs))))
        self.configured -= set(pairs)

    def force(self, port: int, *, blocked: bool) -> None:
        """Set the override of a port."""
        if not self.device.faults.take_dropped_command():
            self.device.set_disabled({port}, disabled=blocked)

    def forget_ghosts(self) -> None:
        """Lose power: the configuration stays, and the hardware will be made to hold just that."""
        self.device.matrix.connections = dict(sorted(self.configured - self.device.faults.stuck))
        self.device.set_boot_mode("AUTOSAVE")

    def faults(self) -> dict[str, Fault]:
        """Return the fault `ghost_entry`: `port` loses its configuration, or `pair` has none."""
        return {"ghost_entry": Fault(self._haunt, lambda _: self._reconcile(), "port")}

    # -- inside

    def _in_the_way(self, pairs: Iterable[Pair]) -> set[Pair]:
        wanted = set(pairs)
        ports = {port for pair in wanted for port in pair}
        return {pair for pair in (self.configured | self.hardware) - wanted if ports & set(pair)}

    def _check_unlocked(self, removed: Iterable[Pair]) -> None:
        matrix = self.device.matrix
        for port in sorted(matrix.locked & {port for pair in removed for port in pair}):
            matrix.refusals[Reason.LOCKED] += 1
            raise Refused(Reason.LOCKED, port)

    def _follow(self, change: Change) -> None:
        self.configured.difference_update(change.removed)
        self.configured.update(change.made)

    def _haunt(self, request: Request) -> None:
        if "pair" in request:
            pair = self._free_pair(request)
            self.device.change({**self.device.matrix.connections, pair[0]: pair[1]})
            lost = {pair}
        else:
            port = request.whole("port")
            self.device.matrix.check_port(port)
            lost = {pair for pair in self.configured & self.hardware if port in pair}
        self.configured -= lost
        self.device.faults.fired["ghost_entry"] += len(lost)

    def _free_pair(self, request: Request) -> Pair:
        pair = request.pair("pair")
        self.device.matrix.check_input(pair[0])
        if self.device.matrix.is_input(pair[1]) or self._in_the_way([pair]):
            raise VerbError(f"{pair} is not an input and an output that are free")
        return pair

    def _reconcile(self) -> None:
        self.configured |= self.ghosts


def refusal_text(refusal: Refused, inputs: int) -> str:
    """Return the device's message for a refusal of its hardware (assumption: no wording is published)."""
    return f"Error: port {port_name(refusal.port, inputs)}: {refusal.reason.name.lower().replace('_', ' ')}"
