"""The verbs of a simulated switch's control socket: truth, a second operator, power, time, faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sim.models.clock import VirtualClock
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import FaultBoard
from sim.twins.switch.matrix import Refused
from sim.twins.wire.control import Reply, Request, Verb, VerbError
from sim.twins.wire.transcript import Transcript


class PowerSwitch(Protocol):
    """Actions of the panel on the device as a whole."""

    async def power_cycle(self, off_s: float) -> None:
        """Off, and on again."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Verbs of the control socket, carried out on one switch."""

    power: PowerSwitch
    device: SwitchDevice
    transcript: Transcript
    fault_board: FaultBoard
    own: Mapping[str, Verb] = field(default_factory=dict)

    def verbs(self) -> Mapping[str, Verb]:
        """Return all verbs, for `sim.twins.wire.control.ControlServer`: those of every switch and the family's own."""
        return {
            "truth": lambda _: self._truth(),
            "advance": self._advance,
            "transcript": self._transcript,
            "operator": self._operator,
            "power_cycle": self._power_cycle,
            "set_fault": self.fault_board.set_fault,
            "clear_fault": self.fault_board.clear_fault,
            **self.own,
        }

    def _truth(self) -> Reply:
        device = self.device
        return {
            "simulated": True,
            "connections": _as_lists(device.matrix.connections),
            "lit": _as_lists(device.lit),
            "really": _as_lists(device.really),
            "ports": {str(port): device.matrix.state(port) for port in device.matrix.ports},
            "locked": sorted(device.matrix.locked),
            "boot_mode": device.boot_mode,
            "changes": device.changes,
            "busy_s": device.busy_s,
            "last_busy_s": device.last_busy_s,
            "wear": {str(port): moves for port, moves in sorted(device.wear.items())},
            "fired": dict(device.fired),
            "now_s": device.clock.now(),
        }

    async def _advance(self, request: Request) -> Reply:
        clock = self.device.clock
        if not isinstance(clock, VirtualClock):
            raise VerbError("this device lives in real time; start it with a virtual clock to advance it")
        seconds = request.number("seconds")
        if seconds < 0:
            raise VerbError("time goes forward only")
        await clock.advance(seconds)
        return {"now_s": clock.now()}

    def _transcript(self, request: Request) -> Reply:
        entries = [entry.as_json() for entry in self.transcript.entries()]
        if request.flag("clear", default=False):
            self.transcript.clear()
        return {"entries": entries}

    def _operator(self, request: Request) -> Reply:
        """Another operator edits: whatever stands in the way of `connect` goes."""
        pairs = request.pairs("connect")
        try:
            self.device.change(self.device.matrix.without_ports(request.numbers("disconnect")))
            inputs, outputs = [source for source, _ in pairs], [output for _, output in pairs]
            self.device.change(self.device.matrix.added(inputs, outputs, "replace"))
        except Refused as refusal:
            raise VerbError(str(refusal)) from None
        return {"connections": _as_lists(self.device.matrix.connections)}

    async def _power_cycle(self, request: Request) -> Reply:
        await self.power.power_cycle(request.number("off_s", 0.0))
        return {"connections": _as_lists(self.device.matrix.connections)}


def _as_lists(connections: Mapping[int, int]) -> list[list[int]]:
    return [[source, output] for source, output in connections.items()]
