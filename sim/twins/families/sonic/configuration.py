"""The circuits of a SONiC switch: those configured, and those that the hardware holds.

The hardware is the `SwitchDevice`. The configuration follows it where somebody else changes it; a ghost is in the
hardware only, and what a broken mirror never made is in the configuration only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from sim.twins.families.sonic.syntax import Pair, pair_name, port_name
from sim.twins.frontends.cli import CommandError
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Reason, Refused
from sim.twins.wire.control import Request, VerbError

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
        self._go_to((self.hardware - doomed) | set(pairs), pairs)
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

    def _go_to(self, after: Iterable[Pair], made: Iterable[Pair]) -> None:
        held = frozenset(after)
        self._check_unlocked(self.hardware - held)
        new = [pair for pair in made if pair not in self.hardware]
        self.device.matrix.added([a for a, _ in new], [b for _, b in new], "replace")
        self.device.change(dict(sorted(held)))

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
