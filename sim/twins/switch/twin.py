"""A simulated switch on the wire: one device, any number of ways in, a control socket and its verbs, a power button."""

from __future__ import annotations

import itertools
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, TypeVar
from urllib.parse import urlencode

from sim.models.clock import Clock, VirtualClock
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault, FaultBoard
from sim.twins.switch.matrix import Refused
from sim.twins.wire.control import ControlServer, Reply, Request, Verb, VerbError
from sim.twins.wire.line import Line, Reader, Transcript, Writer
from sim.twins.wire.listener import AnyListener, Listener
from sim.twins.wire.memory import MemoryClient, MemoryListener

_T = TypeVar("_T")
REFUSED_STATUS = 255
"""Exit status of a command that a session limit keeps out; a client of SSH gives the same for a broken connection."""

Wire = Literal["tcp", "telnet", "ssh", "serial"]
Client = Callable[[Reader, Writer], Awaitable[None]]
Execution = Callable[[Reader, Writer, str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Frontend:
    """One way in: `serve` serves one client until it leaves, `wire` says what carries it.

    `scheme` begins the address that is printed (`polatis+scpi`). `account` is for wires that have a login of
    their own (SSH); `baud` for serial lines. `max_sessions_here` says whether the fault `max_sessions`
    refuses connections of this frontend (else the frontend's own logins count). `options` are what its address must
    say besides where it is. Where the client keeps a `file`, the address names one in a directory of the
    twin's, which goes when it ends, and where we listen is the option `operator`. `execute` does one command that
    comes without a shell (SSH), and gives its exit status; with `one_session` a connection of SSH ends with its first
    shell or command.
    """

    scheme: str
    serve: Callable[[Line], Awaitable[None]]
    execute: Callable[[Line, str], Awaitable[int]] | None = None
    wire: Wire = "tcp"
    one_session: bool = False
    account: tuple[str, str] = ("admin", "root")
    baud: int = 38400
    max_sessions_here: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    file: str = ""


def _listener(
    frontend: Frontend, sock: socket.socket | None, client: Client, execution: Execution, clock: Clock
) -> AnyListener:
    """Whatever accepts clients on the wire of a frontend."""
    if frontend.wire == "serial":
        from sim.twins.wire.serial_line import SerialLine

        return SerialLine(client, baud=frontend.baud, clock=clock)
    assert sock is not None  # every other wire is TCP below
    if frontend.wire == "ssh":
        from sim.twins.wire.ssh_server import SshServer

        executes = execution if frontend.execute else None
        return SshServer(sock, frontend.account, client, executes, one_session=frontend.one_session)
    return Listener(sock, client)


class SwitchTwin:
    """One simulated switch: one state behind all its frontends, for several clients at once.

    `expire` ends all logins and gives their number. `verbs` and `faults` are the family's additions to what
    every control socket knows. `on_boot` forgets what a device forgets without power (error queues).
    """

    def __init__(
        self,
        device: SwitchDevice,
        frontends: Mapping[str, Frontend],
        *,
        expire: Callable[[], int] = lambda: 0,
        verbs: Mapping[str, Verb] | None = None,
        faults: Mapping[str, Fault] | None = None,
        on_boot: Callable[[], None] = lambda: None,
    ) -> None:
        self.device = device
        self.frontends = frontends
        self.transcript = Transcript(device.clock)
        self._sessions = itertools.count(1)
        self._served: Counter[str] = Counter()  # how many clients each frontend has now
        self._on_boot = on_boot
        self._listeners: dict[str, AnyListener] = {}
        self._memory: dict[str, MemoryListener] = {}
        self._board = FaultBoard(device, line=self, expire=expire, own=faults)
        self._panel = Panel(self, device, self.transcript, self._board, verbs or {})
        self._control = ControlServer(self.verbs())
        self._control_address = ""
        self._directory: TemporaryDirectory[str] | None = None

    def verbs(self) -> Mapping[str, Verb]:
        """Return everything the control socket can be asked."""
        return self._panel.verbs()

    @property
    def faults(self) -> Mapping[str, Fault]:
        """All faults this twin knows, by name."""
        return self._board.known

    async def set_fault(self, request: Request) -> None:
        """Set the fault that `request` names. Raises `VerbError`."""
        await self._board.set_fault(request)

    @property
    def needs_socket(self) -> tuple[str, ...]:
        """Names of the frontends that are served on a bound socket."""
        return tuple(name for name, frontend in self.frontends.items() if frontend.wire != "serial")

    async def serve(self, sockets: Mapping[str, socket.socket], *, serial: bool = False) -> None:
        """Serve clients; returns at once, the event loop does the work.

        `sockets` are bound (`sim.twins.wire.listener.bound_socket`): `control`, and one by the name of each frontend
        that is wanted and `needs_socket`. Serial lines are served with `serial`.
        """
        for name, frontend in self.frontends.items():
            if name not in sockets and not (serial and frontend.wire == "serial"):
                continue
            self._listeners[name] = _listener(
                frontend, sockets.get(name), self._client(name), self._execution(name), self.device.clock
            )
        self.accept()
        control = sockets["control"]
        self._control_address = "{}:{}".format(*control.getsockname()[:2])
        await self._control.serve(control)

    async def close(self) -> None:
        """Drop all clients and close the sockets. What is lit stays lit in the plant."""
        for listener in self._all_listeners():
            await listener.close()
        await self._control.close()
        await self.device.stop()
        if self._directory is not None:
            self._directory.cleanup()

    def addresses(self) -> dict[str, str]:
        """Return the address of every frontend as a driver takes it, and that of the control socket."""
        found = {name: self._url(name, listener) for name, listener in self._listeners.items()}
        return {**found, "control": f"tcp://{self._control_address}"}

    def _url(self, name: str, listener: AnyListener) -> str:
        frontend = self.frontends[name]
        where, options = listener.address, {"baud": str(frontend.baud)} if frontend.wire == "serial" else {}
        if frontend.file:
            if self._directory is None:
                self._directory = TemporaryDirectory(prefix="lightbed-twin-")
            where, options = str(Path(self._directory.name) / frontend.file), {"operator": listener.address}
        query = urlencode({**options, **frontend.options})
        return f"{frontend.scheme}://{where}" + (f"?{query}" if query else "")

    def host_of(self, name: str) -> str:
        """Return the host that a frontend listens on, for devices that tell their own address."""
        listener = self._listeners.get(name)
        return listener.address.rpartition(":")[0] if listener else "127.0.0.1"

    def attach(self, frontend: str) -> MemoryClient:
        """Return a session with a frontend in memory. Raises `ConnectionRefusedError` while clients are refused."""
        if frontend not in self._memory:
            self._memory[frontend] = MemoryListener(self._client(frontend))
        try:
            return self._memory[frontend].attach()
        except ConnectionRefusedError:
            self.device.faults.fired["refuse"] += 1
            raise

    def accept(self) -> None:
        """Accept clients of the wire languages."""
        for listener in self._all_listeners():
            listener.open()

    async def refuse(self) -> None:
        """Refuse new clients of the wire languages; the control socket goes on."""
        for name in self.frontends:  # also those that nobody has attached to yet
            self._memory.setdefault(name, MemoryListener(self._client(name)))
        for listener in self._all_listeners():
            await listener.refuse()

    def drop_clients(self) -> int:
        """Break all connections of the wire languages; gives their number."""
        return sum(listener.drop_clients() for listener in self._all_listeners())

    async def power_cycle(self, off_s: float) -> None:
        """Switch off, stay off for `off_s` of the clock, boot with what the boot mode keeps."""
        self.device.power_off()
        await self.refuse()
        self.drop_clients()
        await self.device.clock.sleep(off_s)
        self._on_boot()
        self.device.boot()
        self.accept()

    def _all_listeners(self) -> list[AnyListener]:
        return [*self._listeners.values(), *self._memory.values()]

    def _client(self, name: str) -> Client:
        """Serve one client of a frontend. Raises `KeyError` when there is none of that name."""
        frontend = self.frontends[name]

        async def serve(reader: Reader, writer: Writer) -> None:
            await self._serve_one(name, (reader, writer), frontend.serve)

        return serve

    def _execution(self, name: str) -> Execution:
        """Execute one command of a client of a frontend."""

        async def execute(reader: Reader, writer: Writer, command: str) -> int:
            do = self.frontends[name].execute
            assert do is not None  # or the listener refuses the request
            status = await self._serve_one(name, (reader, writer), lambda line: do(line, command))
            return REFUSED_STATUS if status is None else status

        return execute

    async def _serve_one(
        self, name: str, streams: tuple[Reader, Writer], serve: Callable[[Line], Awaitable[_T]]
    ) -> _T | None:
        """Serve one client, and give what `serve` gives; None when there are as many clients as may be."""
        faults = self.device.faults
        limit = faults.max_sessions
        if self.frontends[name].max_sessions_here and limit is not None and self._served[name] >= limit:
            faults.fired["max_sessions"] += 1
            return None
        session = next(self._sessions)
        line = Line(
            name, session, streams, faults=faults, transcript=self.transcript, clock=self.device.clock
        )
        self._served[name] += 1
        try:
            return await serve(line)
        finally:
            self._served[name] -= 1


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
            raise VerbError("this device runs in real time; start it with a virtual clock to advance it")
        seconds = request.number("seconds")
        if seconds < 0:
            raise VerbError("time only moves forward")
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
            self.device.change(self.device.matrix.add(inputs, outputs, "replace"))
        except Refused as refusal:
            raise VerbError(str(refusal)) from None
        return {"connections": _as_lists(self.device.matrix.connections)}

    async def _power_cycle(self, request: Request) -> Reply:
        await self.power.power_cycle(request.number("off_s", 0.0))
        return {"connections": _as_lists(self.device.matrix.connections)}


def _as_lists(connections: Mapping[int, int]) -> list[list[int]]:
    return [[source, output] for source, output in connections.items()]
