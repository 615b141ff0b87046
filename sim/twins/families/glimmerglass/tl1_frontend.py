"""The TL1 of a Glimmerglass: logins, sessions, reports, and the table of commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sim.twins.families.glimmerglass import tl1_syntax as syntax
from sim.twins.frontends.tl1 import Handler, Lines, Tl1Frontend, Tl1Session
from sim.twins.frontends.tl1_frames import Framing
from sim.twins.frontends.tl1_syntax import Command, Denied
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Connections
from sim.twins.wire.control import Request

Reports = Literal["no", "others", "yes"]


@dataclass(frozen=True, slots=True)
class Quirks:
    """Behaviour that the published material leaves open, or that differs between releases.

    With `waits`, a connection without OPMODE is answered when the mirrors have arrived (Sync), else at once;
    `moving` is the CONNSTATE of a row until then. `reports` says to whom changes are reported: to nobody, to the
    `others`, or to the session that made them as well. `release` is whose rows are printed.
    """

    waits: bool = True
    moving: str = "moving"
    reports: Reports = "others"
    release: syntax.Release = "2016"


class GlimmerglassTl1(Tl1Frontend):
    """TL1 of one switch, behind a prompt that follows every answer."""

    framing = Framing(before="\r\n\n   ", after=syntax.PROMPT, before_report="\r\n\n   ")
    noise = ("REPT ALM FIBER", "10001:CL,PWRLOW,NSA,,,:threshold; crossed")

    def __init__(
        self,
        device: SwitchDevice,
        *,
        account: tuple[str, str],
        system: Mapping[str, str],
        quirks: Quirks,
    ) -> None:
        super().__init__(device, account=account, own_reports=quirks.reports == "yes")
        self.numbering = syntax.Numbering(device.matrix.inputs, device.matrix.outputs)
        self._system = system
        self._quirks = quirks
        self._wrong_tags = 0
        self._monitoring = "10"
        self._made_by: dict[int, str] = {}
        if quirks.reports != "no":
            device.listen(lambda change: self.report_changes(change, ("DLT-CRS-FIBER", "ENT-CRS-FIBER")))

    def table(self, session: Tl1Session) -> Mapping[str, Handler]:
        """Return the commands of a session that is logged in."""
        return {
            "RTRV-HDR": lambda _: (),
            "RTRV-SYSTEM-INFO": lambda _: [f"GGN:{name}={value}" for name, value in self._system.items()],
            "RTRV-CFG-FIBER": lambda command: [self._port_row(port) for port in self._ports(command.aid)],
            "RTRV-CRS-FIBER": lambda command: [self._circuit_row(port) for port in self._ports(command.aid)],
            "RTRV-PORT-POWER": lambda command: [self._power_row(port) for port in self._ports(command.aid)],
            "RTRV-SIGTYPE-FIBER": lambda command: [self._band_row(port) for port in self._ports(command.aid)],
            "ENT-CRS-FIBER": lambda command: self._connect(command, session),
            "DLT-CRS-FIBER": self._disconnect,
            "ED-PARAM": self._edit_parameter,
        }

    def pages(self, lines: Lines) -> list[Lines]:
        """Return the lines of each block of an answer: as many as one page holds."""
        pages: list[Lines] = []
        first, size = 0, 0
        for number, line in enumerate(lines):
            length = len(line) + len('   ""\r\n')
            if number > first and size + length > syntax.PAGE_BYTES:
                pages.append(lines[first:number])
                first, size = number, 0
            size += length
        return [*pages, lines[first:]]

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
        """Return the ports that a command names; all of them where it names none."""
        return self.device.matrix.ports if aid.lower() in {"", "all"} else self.numbering.ports(aid)

    def _name(self, port: int) -> str:
        side = "IN" if self.device.matrix.is_input(port) else "OUT"
        number = self.numbering.number(port) % syntax.INPUT_BASE
        return self.device.labels.get(port, "" if self._quirks.release == "2005" else f"{side}{number}")

    def _power(self, port: int) -> float:
        """Return the reading of a port; the monitors see noise where there is no light."""
        return max(self.device.power_dbm(port), syntax.noise_dbm(self.numbering.number(port)))

    def _is_lit(self, port: int) -> bool:
        return self._power(port) > syntax.noise_dbm(self.numbering.number(port))

    def _port_row(self, port: int) -> str:
        health = "good" if self.device.matrix.state(port) == "E" else "bad"
        return syntax.port_row(self._quirks.release, self.numbering.number(port), self._name(port), health)

    def _power_row(self, port: int) -> str:
        return f"GGN:PORTID={self.numbering.number(port)},PORTPOWER={self._power(port):.3f}"

    def _band_row(self, port: int) -> str:
        return f"GGN:PORTID={self.numbering.number(port)},PORTNAME={self._name(port)},SIGTYPE=1550"

    def _circuit_row(self, port: int) -> str:
        """Return the row of a port: its circuit, the same at both ends, or the port alone."""
        matrix = self.device.matrix
        ends = {matrix.is_input(end): end for end in (port, matrix.peer(port)) if end is not None}
        return syntax.circuit_row(
            self._quirks.release,
            self._end(ends.get(True)),
            self._end(ends.get(False)),
            self._state(ends[True], ends[False]) if len(ends) == 2 else syntax.State(),
        )

    def _end(self, port: int | None) -> syntax.End:
        if port is None:
            return syntax.End()
        return syntax.End(self.numbering.number(port), self._name(port), self._power(port))

    def _state(self, source: int, output: int) -> syntax.State:
        user = self._made_by.get(source, "")
        if self.device.is_moving(source):
            return syntax.State(self._quirks.moving, user=user)
        if self._is_lit(source) and self._is_lit(output):
            return syntax.State("steady", user=user)
        return syntax.State("fault", "initial_connection_timer_expired", user)

    # -- changes

    async def _connect(self, command: Command, session: Tl1Session) -> Lines:
        inputs, outputs = self._two_lists(command.aid)
        after = self.device.matrix.added(inputs, outputs)
        waits = self._waits(command)
        self._made_by |= dict.fromkeys(inputs, session.user)
        return await self._change(after, waits=waits)

    async def _disconnect(self, command: Command) -> Lines:
        matrix = self.device.matrix
        if command.aid.lower() == "all":
            after = matrix.emptied()
        elif "," in command.aid:
            after = matrix.without(*self._two_lists(command.aid))
        else:
            after = matrix.without_ports(self.numbering.ports(command.aid))
        return await self._change(after, waits=self._waits(command))

    async def _change(self, after: Connections, *, waits: bool) -> Lines:
        """Execute a set command, unless a fault swallows the command."""
        if not self.device.faults.take_dropped_command():
            motion = self.device.change(after)
            if motion is not None and waits:
                await self.device.wait_idle()
        return ()

    def _waits(self, command: Command) -> bool:
        mode = command.keywords.get("OPMODE", "").upper()
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
