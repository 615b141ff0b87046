"""The TL1 of a Glimmerglass: logins, sessions, reports, and the table of commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sim.models.light import DARK_FLOOR_DBM
from sim.twins.families.glimmerglass import tl1_syntax as syntax
from sim.twins.families.polatis.tl1_syntax import Command, CommandReader, Denied, parse
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.fault_board import Fault
from sim.twins.switch.matrix import Connections, Reason, Refused
from sim.twins.wire.control import Request
from sim.twins.wire.line import Line

_CODE_OF: Mapping[Reason, str] = {
    Reason.NO_SUCH_PORT: "IIAC",
    Reason.WRONG_SIDE: "IIAC",
    Reason.REPEATED: "IIAC",
    Reason.UNEQUAL: "IIAC",
    Reason.FAILED: "SROF",
}

Lines = Sequence[str]
Handler = Callable[[Command], Lines | Awaitable[Lines]]


def _wall_clock() -> datetime:
    return datetime.now()  # noqa: DTZ005 - a switch prints its local time


@dataclass(frozen=True, slots=True)
class Character:
    """What the published material leaves open.

    `waits` is whether a connection without OPMODE is answered when the mirrors have arrived (Sync) or at once;
    `moving` is the CONNSTATE of a row until then. `port_power` is whether rows of ports tell the power,
    `reports` whether changes are reported.
    """

    waits: bool = True
    moving: str = "moving"
    port_power: bool = True
    reports: bool = True


class Tl1Front:
    """What all sessions of one switch share."""

    def __init__(
        self,
        device: SwitchDevice,
        *,
        account: tuple[str, str],
        system: Mapping[str, str],
        character: Character,
    ) -> None:
        self.device = device
        self.numbering = syntax.Numbering(device.matrix.inputs, device.matrix.outputs)
        self._account = account
        self._system = system
        self._character = character
        self._sessions: list[Tl1Session] = []
        self._reports = 0
        self._wrong_tags = 0
        self._noise = 0
        self._monitoring = "10"
        device.listen(self._report_change)

    async def converse(self, line: Line) -> None:
        """Serve one client until it leaves."""
        session = Tl1Session(self, line.send)
        self._sessions.append(session)
        line.send(syntax.PROMPT)
        try:
            reader = CommandReader()
            while data := await line.read():
                for text in reader.feed(data):
                    await line.respond(lambda text=text: session.execute(text))  # type: ignore[misc]
        finally:
            self._sessions.remove(session)

    def expire(self) -> int:
        """End all logins, leaving the connections; gives their number."""
        logged_in = [session for session in self._sessions if session.user]
        for session in logged_in:
            session.user = ""
        return len(logged_in)

    def require_login(self, command: Command) -> str:
        """The user that a login command brings. Raises `Denied`."""
        limit = self.device.faults.max_sessions
        if limit is not None and sum(bool(session.user) for session in self._sessions) >= limit:
            self.device.faults.fired["max_sessions"] += 1
            raise Denied("SROF", "maximum number of sessions reached")
        if (command.aid, command.positional[0]) != self._account:
            raise Denied("PICC", "login incorrect")
        return command.aid

    def table(self) -> Mapping[str, Handler]:
        """The commands of a session that is logged in."""
        return {
            "RTRV-HDR": lambda _: (),
            "RTRV-SYSTEM-INFO": lambda _: [f"{name}={value}" for name, value in self._system.items()],
            "RTRV-CFG-FIBER": lambda command: [self._port_row(port) for port in self._ports(command.aid)],
            "RTRV-CRS-FIBER": self._circuits,
            "ENT-CRS-FIBER": self._connect,
            "DLT-CRS-FIBER": self._disconnect,
            "ED-PARAM": self._edit_parameter,
        }

    # -- faults of its own

    def faults(self) -> Mapping[str, Fault]:
        """For the fault board: answers under a tag nobody used, and reports between command and answer."""
        return {
            "wrong_tag": Fault(self._set_wrong_tags, lambda _: self._set_wrong_tags(None)),
            "report_noise": Fault(self._set_noise, lambda _: self._set_noise(None)),
        }

    def _set_wrong_tags(self, request: Request | None) -> None:
        self._wrong_tags = request.whole("count", 1) if request else 0

    def _set_noise(self, request: Request | None) -> None:
        self._noise = request.whole("count", 1) if request else 0

    def tag(self, command: Command) -> str:
        """The tag that the answer to a command carries."""
        if not self._wrong_tags:
            return command.ctag
        self._wrong_tags -= 1
        self.device.faults.fired["wrong_tag"] += 1
        return f"{command.ctag}9"

    def make_noise(self, send: Callable[[bytes], None]) -> None:
        """Report something that has nothing to do with the command at hand, where a fault asks for it."""
        if self._noise:
            self._noise -= 1
            self.device.faults.fired["report_noise"] += 1
            lines = ["10001:CL,PWRLOW,NSA,,,:threshold; crossed"]
            self._report([send], "REPT ALM FIBER", lines)

    # -- what the device is and holds

    def _ports(self, aid: str) -> Sequence[int]:
        return self.device.matrix.ports if aid.lower() == "all" else self.numbering.ports(aid)

    def _port_row(self, port: int) -> str:
        matrix = self.device.matrix
        side = "IN" if matrix.is_input(port) else "OUT"
        number = self.numbering.number(port)
        label = self.device.labels.get(port, f"{side}{number % syntax.INPUT_BASE}")
        health = "good" if matrix.state(port) == "E" else "bad"
        power = f"PORTPWR={syntax.power_text(self._power(port))}," if self._character.port_power else ""
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
            state = (self._character.moving, "none")
        else:
            state = ("steady", "none") if None not in powers else ("fault", "nolight")
        numbers = self.numbering.number(source), self.numbering.number(output)
        return syntax.circuit_row(*numbers, labels, state, powers)

    # -- what it is told

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
        return await self._change(after, waits=self._character.waits)

    async def _change(self, after: Connections, *, waits: bool) -> Lines:
        """Do what a set command asks, unless a fault swallows the command."""
        if not self.device.faults.take_dropped_command():
            motion = self.device.change(after)
            if motion is not None and waits:
                await self.device.wait_idle()
        return ()

    def _waits(self, mode: str) -> bool:
        if mode not in {"", "SYNC", "ASYNC"}:
            raise Denied("IDNV", f"no OPMODE {mode[:40]}")
        return self._character.waits if not mode else mode == "SYNC"

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

    # -- what it says unasked

    def _report_change(self, change: Change) -> None:
        if not self._character.reports:
            return
        listeners = [session.send for session in self._sessions if session.user]
        for verb, pairs in (("DLT-CRS-FIBER", change.removed), ("ENT-CRS-FIBER", change.made)):
            for source, output in pairs:
                numbers = f"{self.numbering.number(source)},{self.numbering.number(output)}"
                self._report(listeners, "REPT DBCHG", [f"DBCHGSEQ={self._reports + 1}:{verb}:{numbers}"])

    def _report(self, listeners: Sequence[Callable[[bytes], None]], event: str, lines: Lines) -> None:
        self._reports += 1
        data = syntax.report(self.device.name, self._reports, event, lines, _wall_clock())
        for send in listeners:
            send(data)


class Tl1Session:
    """One connection: commands to answers."""

    def __init__(self, front: Tl1Front, send: Callable[[bytes], None]) -> None:
        self.user = ""
        self.send = send
        self._front = front
        self._table = front.table()

    async def execute(self, text: str) -> bytes:
        """Execute one command and give its answer."""
        command, name = parse(text), self._front.device.name
        try:
            lines = await self._run(command)
        except Refused as refusal:
            denied = Denied(_CODE_OF.get(refusal.reason, "SNVS"), str(refusal))
            return syntax.denial(name, self._front.tag(command), denied, _wall_clock())
        except Denied as denied:
            return syntax.denial(name, self._front.tag(command), denied, _wall_clock())
        self._front.make_noise(self.send)
        return syntax.answer(name, self._front.tag(command), lines, _wall_clock())

    async def _run(self, command: Command) -> Lines:
        if command.verb == "ACT-USER":
            self.user = self._front.require_login(command)
            return ()
        if not self.user:
            raise Denied("PLNA", "login not active")
        if command.verb == "CANC-USER":
            self.user = ""
            return ()
        if command.verb not in self._table:
            raise Denied("ICNV", f"no command {command.verb[:40]}")
        lines = self._table[command.verb](command)
        return lines if isinstance(lines, Sequence) else await lines
