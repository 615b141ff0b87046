"""The TL1 of a Glimmerglass: logins, sessions, reports, and the table of commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.models.light import DARK_FLOOR_DBM
from sim.twins.families.glimmerglass import tl1_syntax as syntax
from sim.twins.frontends.tl1 import Handler, Lines, Tl1Frontend, Tl1Session
from sim.twins.frontends.tl1_frames import Framing
from sim.twins.frontends.tl1_syntax import Command, Denied
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Connections
from sim.twins.wire.control import Request


@dataclass(frozen=True, slots=True)
class Quirks:
    """Behaviour that the published material leaves open.

    With `waits`, a connection without OPMODE is answered when the mirrors have arrived (Sync), else at once;
    `moving` is the CONNSTATE of a row until then. With `port_power`, rows of ports contain the power; with `reports`,
    changes are reported.
    """

    waits: bool = True
    moving: str = "moving"
    port_power: bool = True
    reports: bool = True


class GlimmerglassTl1(Tl1Frontend):
    """TL1 of one switch, behind a prompt that is part of every answer."""

    framing = Framing(before=" ", after=syntax.PROMPT, before_report="\r\n\n   ")
    noise = ("REPT ALM FIBER", "10001:CL,PWRLOW,NSA,,,:threshold; crossed")

    def __init__(
        self,
        device: SwitchDevice,
        *,
        account: tuple[str, str],
        system: Mapping[str, str],
        quirks: Quirks,
    ) -> None:
        super().__init__(device, account=account)
        self.numbering = syntax.Numbering(device.matrix.inputs, device.matrix.outputs)
        self._system = system
        self._quirks = quirks
        self._wrong_tags = 0
        self._monitoring = "10"
        if quirks.reports:
            device.listen(lambda change: self.report_changes(change, ("DLT-CRS-FIBER", "ENT-CRS-FIBER")))

    def table(self, session: Tl1Session) -> Mapping[str, Handler]:
        """Return the commands of a session that is logged in."""
        del session
        return {
            "RTRV-HDR": lambda _: (),
            "RTRV-SYSTEM-INFO": lambda _: [f"{name}={value}" for name, value in self._system.items()],
            "RTRV-CFG-FIBER": lambda command: [self._port_row(port) for port in self._ports(command.aid)],
            "RTRV-CRS-FIBER": self._circuits,
            "ENT-CRS-FIBER": self._connect,
            "DLT-CRS-FIBER": self._disconnect,
            "ED-PARAM": self._edit_parameter,
        }

    def pair_name(self, pair: tuple[int, int]) -> str:
        """Return a circuit as reports name it."""
        return f"{self.numbering.number(pair[0])},{self.numbering.number(pair[1])}"

    # -- faults of its own

    def faults(self) -> Mapping[str, Fault]:
        """Return the faults for the fault board: answers under a foreign tag, reports before an answer."""
        return {
            "wrong_tag": Fault(self._set_wrong_tags, lambda _: self._set_wrong_tags(None)),
            "report_noise": self.noise_fault(),
        }

    def _set_wrong_tags(self, request: Request | None) -> None:
        self._wrong_tags = request.whole("count", 1) if request else 0

    def tag(self, command: Command) -> str:
        """Return the tag that the answer to a command carries."""
        if not self._wrong_tags:
            return command.ctag
        self._wrong_tags -= 1
        self.device.faults.fired["wrong_tag"] += 1
        return f"{command.ctag}9"

    # -- reads

    def _ports(self, aid: str) -> Sequence[int]:
        return self.device.matrix.ports if aid.lower() == "all" else self.numbering.ports(aid)

    def _port_row(self, port: int) -> str:
        matrix = self.device.matrix
        side = "IN" if matrix.is_input(port) else "OUT"
        number = self.numbering.number(port)
        label = self.device.labels.get(port, f"{side}{number % syntax.INPUT_BASE}")
        health = "good" if matrix.state(port) == "E" else "bad"
        power = f"PORTPWR={syntax.power_text(self._power(port))}," if self._quirks.port_power else ""
        return f"PORTID={number},{power}PORTNAME={label},PORTHEALTH={health}"

    def _power(self, port: int) -> float | None:
        dbm = self.device.power_dbm(port)
        return None if dbm <= DARK_FLOOR_DBM else dbm

    def _circuits(self, command: Command) -> Lines:
        ports = set(self._ports(command.aid or "all"))
        pairs = sorted(self.device.matrix.connections.items())
        return [self._circuit_row(*pair) for pair in pairs if ports & set(pair)]

    def _circuit_row(self, source: int, output: int) -> str:
        powers = (self._power(source), self._power(output))
        labels = (self.device.labels.get(source, ""), self.device.labels.get(output, ""))
        if self.device.is_moving(source):
            state = (self._quirks.moving, "none")
        else:
            state = ("steady", "none") if None not in powers else ("fault", "nolight")
        numbers = self.numbering.number(source), self.numbering.number(output)
        return syntax.circuit_row(*numbers, labels, state, powers)

    # -- changes

    async def _connect(self, command: Command) -> Lines:
        inputs, outputs = self._two_lists(command.aid)
        after = self.device.matrix.added(inputs, outputs)
        waits = self._waits(command.keywords.get("OPMODE", "").upper())
        return await self._change(after, waits=waits)

    async def _disconnect(self, command: Command) -> Lines:
        matrix = self.device.matrix
        if command.aid.lower() == "all":
            after = matrix.emptied()
        elif "," in command.aid:
            after = matrix.without(*self._two_lists(command.aid))
        else:
            after = matrix.without(self.numbering.ports(command.aid))
        return await self._change(after, waits=self._quirks.waits)

    async def _change(self, after: Connections, *, waits: bool) -> Lines:
        """Execute a set command, unless a fault swallows the command."""
        if not self.device.faults.take_dropped_command():
            motion = self.device.change(after)
            if motion is not None and waits:
                await self.device.wait_idle()
        return ()

    def _waits(self, mode: str) -> bool:
        if mode not in {"", "SYNC", "ASYNC"}:
            raise Denied("IDNV", f"no OPMODE {mode[:40]}")
        return self._quirks.waits if not mode else mode == "SYNC"

    def _two_lists(self, aid: str) -> tuple[list[int], list[int]]:
        inputs, comma, outputs = aid.partition(",")
        if not comma:
            raise Denied("IIAC", "inputs and outputs are needed")
        return self.numbering.ports(inputs), self.numbering.ports(outputs)

    def _edit_parameter(self, command: Command) -> Lines:
        if command.keyword("NAME").upper() != "POWERMONITORINGPERIOD":
            raise Denied("IDNV", "no such parameter")
        self._monitoring = command.keyword("VAL")
        return ()
