"""The switch's TL1: logins, sessions, reports, and the table of commands.

Every command but the login needs a login on its connection. Configuration changes by anybody are reported
to every session that is logged in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from sim.twins.families.polatis.tl1_ports import PortCommands
from sim.twins.families.polatis.tl1_syntax import (
    Command,
    CommandReader,
    Denied,
    aid_ports,
    denial,
    parse,
    reply,
    report,
)
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import Reason, Refused

DEFAULT_IDLE_TIMEOUT_S = 1800.0

_CODE_OF: Mapping[Reason, str] = {
    Reason.NO_SUCH_PORT: "IIAC",
    Reason.WRONG_SIDE: "IIAC",
    Reason.REPEATED: "IIAC",
    Reason.UNEQUAL: "IIAC",
    Reason.NOT_CONNECTED: "SNVS",
    Reason.OCCUPIED: "SNVS",
    Reason.DISABLED: "SNVS",
    Reason.LOCKED: "SNVS",
    Reason.FAILED: "SROF",
}

Lines = Sequence[str]
Handler = Callable[[Command], Lines | Awaitable[Lines]]


def _wall_clock() -> datetime:
    return datetime.now()  # noqa: DTZ005 - a switch prints its local time


class Tl1Front:
    """What all TL1 sessions of one switch share: account, idle limit, numbering of reports.

    `account` is (user, password). The idle limit is counted on the device's clock; 0 means none. With
    `page_rows`, replies of more lines than that come in pages.
    """

    def __init__(
        self,
        device: SwitchDevice,
        *,
        name: str,
        account: tuple[str, str],
        model: str,
        serial: str,
        firmware: str,
        page_rows: int = 0,
    ) -> None:
        self.page_rows = page_rows
        self.device = device
        self.name = name
        self.idle_timeout_s = DEFAULT_IDLE_TIMEOUT_S
        self._account = account
        self._label = (model, serial, firmware)
        self._sessions: list[Tl1Session] = []
        self._reports = 0
        self._ports = PortCommands(device)
        device.listen(self._report_change)

    def session(self, send: Callable[[bytes], None]) -> Tl1Session:
        """A new session, not logged in, whose reports go out by `send`."""
        session = Tl1Session(self, send)
        self._sessions.append(session)
        return session

    def forget(self, session: Tl1Session) -> None:
        """The connection of a session has ended."""
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

    def table(self) -> dict[str, Handler]:
        """The commands of a session that is logged in."""
        commands: dict[str, Handler] = {
            "RTRV-HDR": lambda _: (),
            "RTRV-NETYPE": lambda _: self._network_element_type(),
            "RTRV-INV": lambda _: self._inventory(),
            "RTRV-EQPT": self._equipment,
            "ED-EQPT": self._edit_equipment,
            "ENT-PATCH": self._connect,
            "DLT-PATCH": self._disconnect,
            "RTRV-PATCH": self._connections,
        }
        return {**commands, **self._ports.table()}

    # -- what the device is

    def _network_element_type(self) -> Lines:
        model, _, firmware = self._label
        return [f"POLATIS,{model},OCS,{firmware}"]

    def _inventory(self) -> Lines:
        model, serial, firmware = self._label
        return [f"OCS:SN={serial},MODEL={model},FW={firmware}"]

    def _equipment(self, command: Command) -> Lines:
        asked = (command.aid.upper(), command.keyword("PARAMETER").upper())
        matrix = self.device.matrix
        if asked == ("SYSTEM", "SIZE"):
            return [f"SYSTEM:SIZE={matrix.inputs}x{matrix.outputs}"]
        if asked == ("PMON", "CONFIG"):
            return [
                f"PMON::PORT={port},MODE={'INPUT' if matrix.is_input(port) else 'OUTPUT'}"
                for port in matrix.ports
            ]
        if asked == ("ATTEN", "CONFIG"):
            outputs = matrix.ports[matrix.inputs :]
            return [f"ATTEN::PORT={port},MODE={self._ports.attenuation(port).mode}" for port in outputs]
        if asked == ("TIMEOUT", "ADMIN"):
            return [f"TIMEOUT:ADMIN={self.idle_timeout_s / 60:g}"]
        raise Denied("IIAC", f"no parameter {asked[1]} of {asked[0]}")

    def _edit_equipment(self, command: Command) -> Lines:
        if command.aid.upper() != "TIMEOUT":
            raise Denied("IIAC", f"{command.aid} cannot be edited")
        text = command.keyword("ADMIN")
        if not text.isdecimal():
            raise Denied("IDNV", "ADMIN is a number of minutes")
        self.idle_timeout_s = 60.0 * int(text)
        return ()

    # -- cross-connects

    async def _connect(self, command: Command) -> Lines:
        inputs, comma, outputs = command.aid.partition(",")
        if not comma:
            raise Denied("IIAC", "an input and an output are needed")
        forced = command.positional[0].lower() == "frcd"
        pairs = aid_ports(inputs), aid_ports(outputs)
        await self._change(lambda: self.device.matrix.added(*pairs, "replace" if forced else None))
        return ()

    async def _disconnect(self, command: Command) -> Lines:
        matrix = self.device.matrix
        if command.aid.upper() == "ALL":
            await self._change(matrix.emptied)
        else:
            ports = aid_ports(command.aid)
            await self._change(lambda: matrix.without_ports(ports))
        return ()

    async def _change(self, after: Callable[[], dict[int, int]]) -> None:
        """Change the configuration, and wait for the light, unless a fault swallows the command."""
        if self.device.faults.take_dropped_command():
            return
        motion = self.device.change(after())
        if motion:
            await asyncio.wait({motion})  # a session that ends meanwhile does not stop the mirrors

    def _connections(self, command: Command) -> Lines:
        connections = self.device.matrix.connections
        if not command.aid or command.aid.upper() == "ALL":
            return [f"{source},{output}" for source, output in connections.items()]
        wanted = set(aid_ports(command.aid))
        for port in wanted:
            self.device.matrix.require_port(port)
        return [f"{source},{output}" for source, output in connections.items() if wanted & {source, output}]

    def _report_change(self, change: Change) -> None:
        for verb, pairs in (("DLT-PATCH", change.removed), ("ENT-PATCH", change.made)):
            for source, output in pairs:
                self._report(f"{verb}:{source},{output}")

    def _report(self, change: str) -> None:
        self._reports += 1
        listeners = [session for session in self._sessions if session.user and not session.inhibited]
        if not listeners:
            return
        now = _wall_clock()
        line = f"DATE={now:%y-%m-%d},TIME={now:%H-%M-%S},DBCHGSEQ={self._reports}:{change}"
        data = report(self.name, self._reports, "REPT DBCHG", [line], now)
        for session in listeners:
            session.send(data)


class Tl1Session:
    """One connection: bytes to commands, commands to answers."""

    def __init__(self, front: Tl1Front, send: Callable[[bytes], None]) -> None:
        self.user = ""
        self.inhibited = False
        self.send = send
        self._front = front
        self._clock = front.device.clock
        self._used_s = self._clock.now()
        self._reader = CommandReader()
        self._table = front.table() | {
            "INH-MSG": lambda _: self._inhibit(inhibited=True),
            "ALW-MSG": lambda _: self._inhibit(inhibited=False),
        }

    def commands(self, data: bytes) -> list[str]:
        """The commands that `data` completes."""
        return self._reader.feed(data)

    async def execute(self, text: str) -> bytes:
        """Execute one command and give its answer."""
        command = parse(text)
        try:
            lines = await self._run(command)
        except Refused as refusal:
            return self._deny(command, Denied(_CODE_OF[refusal.reason], str(refusal)))
        except Denied as denied:
            return self._deny(command, denied)
        return reply(self._front.name, command.ctag, lines, _wall_clock(), page_rows=self._front.page_rows)

    def _inhibit(self, *, inhibited: bool) -> Lines:
        """Keep reports from this session, or let them through again."""
        self.inhibited = inhibited
        return ()

    def end(self) -> None:
        """The connection has ended."""
        self._front.forget(self)

    def _deny(self, command: Command, denied: Denied) -> bytes:
        return denial(self._front.name, command.ctag, denied, _wall_clock())

    async def _run(self, command: Command) -> Lines:
        if command.tid not in {"", self._front.name}:
            raise Denied("IITA", f"this is {self._front.name}")
        if command.verb == "ACT-USER":
            self.user = self._front.require_login(command)
            self._used_s = self._clock.now()
            return ()
        self._require_session()
        if command.verb == "CANC-USER":
            self.user = ""
            return ()
        if command.verb not in self._table:
            raise Denied("ICNV", f"no command {command.verb[:40]}")
        lines = self._table[command.verb](command)
        return lines if isinstance(lines, Sequence) else await lines

    def _require_session(self) -> None:
        limit_s, idle_s = self._front.idle_timeout_s, self._clock.now() - self._used_s
        if limit_s and idle_s > limit_s:
            self.user = ""
        if not self.user:
            raise Denied("PICC", "login needed")
        self._used_s = self._clock.now()
