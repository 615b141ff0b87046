"""The TL1 of a Calient: raw for machines, and with a prompt for people.

A command without ctag is answered under `M  0`. Answers longer than `page_rows` come in several blocks: one
that ends with `>` instead of `;` means that more follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from sim.twins.families.calient import tl1_syntax
from sim.twins.families.calient.circuits import Circuit, CircuitBook
from sim.twins.families.polatis.tl1_syntax import Command, CommandReader, Denied, parse
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.fault_board import Fault
from sim.twins.switch.matrix import Reason, Refused
from sim.twins.wire.control import Request
from sim.twins.wire.line import Line

_CODE_OF: Mapping[Reason, str] = {
    Reason.NO_SUCH_PORT: "IIAC",
    Reason.WRONG_SIDE: "IIAC",
    Reason.REPEATED: "IIAC",
    Reason.FAILED: "SROF",
}
Lines = Sequence[str]
Handler = Callable[[Command], Lines | Awaitable[Lines]]


def _wall_clock() -> datetime:
    return datetime.now()  # noqa: DTZ005 - a switch prints its local time


class Tl1Front:
    """What all sessions of one switch share."""

    def __init__(
        self,
        device: SwitchDevice,
        book: CircuitBook,
        *,
        account: tuple[str, str],
        serial: str,
        page_rows: int,
        reports: bool,
        change_word: str = "DBCHG",
    ) -> None:
        self.device = device
        self.book = book
        self.page_rows = page_rows
        self._names = book.names
        self._account = account
        self._serial = serial
        self._change_word = change_word
        self._sessions: list[Tl1Session] = []
        self._reports = 0
        self._noise = 0
        if reports:
            device.listen(self._report_change)

    async def converse(self, line: Line, *, interactive: bool, echo: bool = False) -> None:
        """Serve one client until it leaves; with `echo`, repeat each command before it is answered."""
        session = Tl1Session(self, line.send)
        self._sessions.append(session)
        prompt = tl1_syntax.PROMPT if interactive else b""
        line.send(prompt)
        try:
            reader = CommandReader()
            while data := await line.read():
                for text in reader.feed(data):
                    if echo:
                        line.send(f"{text};\r\n".encode("latin-1"))
                    await line.respond(lambda text=text: session.execute(text), prompt)  # type: ignore[misc]
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
            raise Denied("PICC", "Invalid user or password")
        return command.aid

    def table(self) -> Mapping[str, Handler]:
        """The commands of a session that is logged in."""
        return {
            "RTRV-HDR": lambda _: (),
            "RTRV-NE": lambda _: [self._network_element()],
            "RTRV-CRS": self._circuits,
            "RTRV-PORT": lambda command: [self._port(port) for port in self._ports(command)],
            "RTRV-PORT-SUM": lambda command: [self._port_sum(port) for port in self._ports(command)],
            "ENT-CRS": self._provision,
            "ACT-CRS": lambda command: self._each(command, self.book.activate),
            "CANC-CRS": lambda command: self._each(command, self.book.deactivate),
            "DLT-CRS": lambda command: self._each(command, self.book.delete),
            "DLT-CRS-ALL": self._delete_all,
        }

    # -- faults of its own

    def faults(self) -> Mapping[str, Fault]:
        """For the fault board: pages, reports between command and answer."""
        usual = self.page_rows
        return {
            "page_rows": Fault(
                lambda request: setattr(self, "page_rows", request.whole("count")),
                lambda _: setattr(self, "page_rows", usual),
            ),
            "report_noise": Fault(self._set_noise, lambda _: self._set_noise(None)),
        }

    def _set_noise(self, request: Request | None) -> None:
        self._noise = request.whole("count", 1) if request else 0

    def make_noise(self, send: Callable[[bytes], None]) -> None:
        """Report something that has nothing to do with the command at hand, where a fault asks for it."""
        if self._noise:
            self._noise -= 1
            self.device.faults.fired["report_noise"] += 1
            self._report([send], "REPT ALM CRS", ["1.1.1>1.1.2:MN,PWRLOW,NSA,,,:threshold; crossed"])

    # -- what it tells

    def _network_element(self) -> str:
        return (
            f"{self.device.name}:SERIALNUMBER={self._serial},SWPACKAGE=6.0-3,STATUS=OK,CHASSISTYPE=S"
            f"{self._names.ports},PLATFORM=VERSION2"
        )

    def _circuits(self, command: Command) -> Lines:
        wanted = command.positional[0]
        circuits = self.book.circuits()
        if wanted.upper() not in {"", "ALL"}:
            circuits = [self.book.find(wanted)]
        return [self._circuit_row(circuit) for circuit in circuits]

    def _circuit_row(self, circuit: Circuit) -> str:
        name = self.book.name(circuit)
        admin, operational, capability = self.book.states(circuit)
        return (
            f"{name}:SRCPORT={self._names.name(circuit.source)},DSTPORT={self._names.name(circuit.target)},"
            f"GRPNAME={circuit.group},CONNNAME={name},CONNTYPE={'2WAY' if circuit.two_way else '1WAY'},"
            f"AS={admin},OS={operational},OC={capability},PS=UPR,AL=CL"
        )

    def _ports(self, command: Command) -> Sequence[int]:
        """Ports that a command names: `::0` means all."""
        named = command.aid.strip()
        if named in {"", "0"}:
            return range(1, self._names.ports + 1)
        return [self._names.number(name) for name in named.split("&")]

    def _port(self, port: int) -> str:
        sides = [
            f"{side}AS={admin},{side}OS={operational},{side}OC={capability},{side}RS=NPR"
            for side, number in (("IN", port), ("OUT", port + self._names.ports))
            for admin, operational, capability in [self.book.fibre_states(number)]
        ]
        return f"{self._names.name(port)}:WX,TRANSIT,TRANSIT:{','.join(sides)}"

    def _port_sum(self, port: int) -> str:
        powers = [self._power(number) for number in (port, port + self._names.ports)]
        through = [c for c in self.book.circuits() if any(port in ends for ends in c.ends())][:2]
        conns = [(self.book.name(c), "ACT" if c.active else "PRO") for c in through]
        conns += [("NONE", "NONE")] * (2 - len(conns))
        told = ",".join(
            f"CONNNAME{n}={name},CONNSTATE{n}={state}" for n, (name, state) in enumerate(conns, 1)
        )
        alias = self.book.label(port) or "NONE"
        return f"{self._names.name(port)}:ALIAS={alias},INPWR={powers[0]},OUTPWR={powers[1]},{told}"

    def _power(self, number: int) -> str:
        dbm = self.book.power_dbm(number)
        return "NONE" if dbm is None else f"{dbm:.2f}"

    # -- what it is told

    def _provision(self, command: Command) -> Lines:
        names = command.aid.split(",")
        if len(names) != 2:
            raise Denied("IIAC", "Invalid Port: two ports are needed")
        source, target = (self._names.number(name) for name in names)
        *group, direction = [*command.positional, ""][:2] if len(command.positional) > 1 else ["", "1WAY"]
        if direction.upper() not in {"1WAY", "2WAY"}:
            raise Denied("IDNV", "Invalid direction")
        if not self.device.faults.take_dropped_command():
            two_way = direction.upper() == "2WAY"
            self.book.provision(source, target, two_way=two_way, group="".join(group))
        return ()

    def _each(self, command: Command, act: Callable[[Circuit], None]) -> Lines:
        """Do something with the circuit that one of the positional parameters names."""
        named = [text for text in command.positional if ">" in text or "-" in text]
        if len(named) != 1:
            raise Denied("IPMS", "a connection is needed")
        circuit = self.book.find(named[0])
        if not self.device.faults.take_dropped_command():
            act(circuit)
        return ()

    def _delete_all(self, command: Command) -> Lines:
        del command
        if not self.device.faults.take_dropped_command():
            for circuit in self.book.circuits():
                self.book.delete(circuit)
        return ()

    # -- what it says unasked

    def _report_change(self, change: Change) -> None:
        listeners = [session.send for session in self._sessions if session.reported]
        for verb, pairs in (("DLT-CRS", change.removed), ("ENT-CRS", change.made)):
            for source, output in pairs:
                name = f"{self._names.name(source)}>{self._names.name(output - self._names.ports)}"
                self._report(
                    listeners, f"REPT {self._change_word}", [f"DBCHGSEQ={self._reports + 1}:{verb}:{name}"]
                )

    def _report(self, listeners: Sequence[Callable[[bytes], None]], event: str, lines: Lines) -> None:
        self._reports += 1
        data = tl1_syntax.report(self.device.name, self._reports, event, lines, _wall_clock())
        for send in listeners:
            send(data)


class Tl1Session:
    """One connection: commands to answers."""

    def __init__(self, front: Tl1Front, send: Callable[[bytes], None]) -> None:
        self.user = ""
        self.send = send
        self._silenced = False
        self._front = front
        self._table = front.table()

    @property
    def reported(self) -> bool:
        """Whether it wants to hear what happens."""
        return bool(self.user) and not self._silenced

    async def execute(self, text: str) -> bytes:
        """Execute one command and give its answer."""
        command = parse(text)
        try:
            lines = await self._run(command)
        except Refused as refusal:
            code = _CODE_OF.get(refusal.reason, "SNVS")
            return self._denial(command, Denied(code, self._front.book.words(refusal)))
        except Denied as denied:
            return self._denial(command, denied)
        self._front.make_noise(self.send)
        return self._answer(command, lines)

    async def _run(self, command: Command) -> Lines:
        if command.verb == "ACT-USER":
            if self.user == command.aid:
                raise Denied("SNVS", "Already logged in")
            self.user = self._front.require_login(command)
            return [f"{self.user}:{self.user},2"]
        if not self.user:
            raise Denied("PLNA", "Login Not Active")
        if command.verb == "CANC-USER":
            self.user = ""
            return ()
        if command.verb.startswith(("INH-MSG", "ALW-MSG")):
            self._silenced = command.verb.startswith("INH")
            return ()
        if command.verb not in self._table:
            raise Denied("ICNV", "Invalid command")
        lines = self._table[command.verb](command)
        return lines if isinstance(lines, Sequence) else await lines

    def _denial(self, command: Command, denied: Denied) -> bytes:
        return tl1_syntax.denial(self._front.device.name, command.ctag, denied, _wall_clock())

    def _answer(self, command: Command, lines: Lines) -> bytes:
        rows, name = self._front.page_rows, self._front.device.name
        if 0 < rows < len(lines):
            self._front.device.faults.fired["page_rows"] += 1
        note = tl1_syntax.NOTICE if command.verb == "ACT-USER" else ""
        return tl1_syntax.answer(name, command.ctag, lines, _wall_clock(), page_rows=rows, note=note)
