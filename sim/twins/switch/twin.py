"""A simulated switch on the wire: one device, any number of ways in, a control socket and a power button."""

from __future__ import annotations

import itertools
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol
from urllib.parse import urlencode

from sim.models.clock import Clock
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_board import Fault, FaultBoard
from sim.twins.switch.panel import Panel
from sim.twins.wire.control import ControlServer, Request, Verb
from sim.twins.wire.line import Line, Reader, Writer
from sim.twins.wire.listener import Listener
from sim.twins.wire.memory import MemoryClient, MemoryDoor
from sim.twins.wire.transcript import Transcript

Wire = Literal["tcp", "telnet", "ssh", "serial"]
Client = Callable[[Reader, Writer], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Front:
    """One way in: `converse` serves one client until it leaves, `wire` says what carries it.

    `scheme` begins the address that is printed (`polatis+scpi`). `account` is for wires that have a login of
    their own (SSH); `baud` for serial lines. `max_sessions_here` says whether the fault `max_sessions`
    refuses connections of this front (else the front's own logins count). `options` are what its address must
    say besides where it is. Where the client keeps a `file`, the address names one in a directory of the
    twin's, which goes when it ends, and where we listen is the option `operator`.
    """

    scheme: str
    converse: Callable[[Line], Awaitable[None]]
    wire: Wire = "tcp"
    account: tuple[str, str] = ("admin", "root")
    baud: int = 38400
    max_sessions_here: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    file: str = ""


class Door(Protocol):
    """What accepts the clients of one front: `Listener`, or its like for other wires."""

    @property
    def address(self) -> str:
        """Where it is: `host:port`, or a path."""

    @property
    def clients(self) -> int:
        """How many clients there are."""

    def open(self) -> None:
        """Accept clients from now on."""

    async def refuse(self) -> None:
        """Accept nobody from now on."""

    def drop_clients(self) -> int:
        """Break every conversation; gives how many there were."""

    async def close(self) -> None:
        """Break every conversation, for good."""


def _door(front: Front, sock: socket.socket | None, client: Client, clock: Clock) -> Door:
    """Whatever accepts clients on the wire of a front."""
    if front.wire == "serial":
        from sim.twins.wire.serial_line import SerialLine

        return SerialLine(client, baud=front.baud, clock=clock)
    assert sock is not None  # every other wire is TCP below
    if front.wire == "ssh":
        from sim.twins.wire.ssh_server import SshServer

        return SshServer(sock, front.account, client)
    return Listener(sock, client)


class SwitchTwin:
    """One simulated switch: one state behind all its fronts, for several clients at once.

    `expire` ends all logins and gives their number. `verbs` and `faults` are the family's additions to what
    every control socket knows. `on_boot` forgets what a device forgets without power (error queues).
    """

    def __init__(
        self,
        device: SwitchDevice,
        fronts: Mapping[str, Front],
        *,
        expire: Callable[[], int] = lambda: 0,
        verbs: Mapping[str, Verb] | None = None,
        faults: Mapping[str, Fault] | None = None,
        on_boot: Callable[[], None] = lambda: None,
    ) -> None:
        self.device = device
        self.fronts = fronts
        self.transcript = Transcript(device.clock)
        self._sessions = itertools.count(1)
        self._served: Counter[str] = Counter()  # how many clients each front has now
        self._on_boot = on_boot
        self._doors: dict[str, Door] = {}
        self._memory: dict[str, MemoryDoor] = {}
        self._board = FaultBoard(device, line=self, expire=expire, own=faults)
        self._panel = Panel(self, device, self.transcript, self._board, verbs or {})
        self._control = ControlServer(self.verbs())
        self._control_address = ""
        self._directory: TemporaryDirectory[str] | None = None

    def verbs(self) -> Mapping[str, Verb]:
        """Everything the control socket can be asked."""
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
        """Names of the fronts that are served on a bound socket."""
        return tuple(name for name, front in self.fronts.items() if front.wire != "serial")

    async def serve(self, sockets: Mapping[str, socket.socket], *, serial: bool = False) -> None:
        """Serve clients; returns at once, the event loop does the work.

        `sockets` are bound (`sim.twins.wire.listener.bound_socket`): `control`, and one by the name of each front
        that is wanted and `needs_socket`. Serial lines are served with `serial`.
        """
        for name, front in self.fronts.items():
            if name not in sockets and not (serial and front.wire == "serial"):
                continue
            self._doors[name] = _door(front, sockets.get(name), self._client(name), self.device.clock)
        self.accept()
        control = sockets["control"]
        self._control_address = "{}:{}".format(*control.getsockname()[:2])
        await self._control.serve(control)

    async def close(self) -> None:
        """Drop all clients and close the sockets. What is lit stays lit in the plant."""
        for door in self._all_doors():
            await door.close()
        await self._control.close()
        await self.device.stop()
        if self._directory is not None:
            self._directory.cleanup()

    def addresses(self) -> dict[str, str]:
        """The address of every front as a driver takes it, and that of the control socket."""
        found = {name: self._url(name, door) for name, door in self._doors.items()}
        return {**found, "control": f"tcp://{self._control_address}"}

    def _url(self, name: str, door: Door) -> str:
        front = self.fronts[name]
        where, options = door.address, {"baud": str(front.baud)} if front.wire == "serial" else {}
        if front.file:
            where, options = str(Path(self._scratch()) / front.file), {"operator": door.address}
        query = urlencode({**options, **front.options})
        return f"{front.scheme}://{where}" + (f"?{query}" if query else "")

    def _scratch(self) -> str:
        """A directory that lives as long as the twin serves."""
        if self._directory is None:
            self._directory = TemporaryDirectory(prefix="lightbed-twin-")
        return self._directory.name

    def host_of(self, name: str) -> str:
        """The host that a front listens on, for devices that tell their own address."""
        door = self._doors.get(name)
        return door.address.rpartition(":")[0] if door else "127.0.0.1"

    def attach(self, front: str) -> MemoryClient:
        """A conversation with a front in memory. Raises `ConnectionRefusedError` while clients are refused."""
        if front not in self._memory:
            self._memory[front] = MemoryDoor(self._client(front))
        try:
            return self._memory[front].attach()
        except ConnectionRefusedError:
            self.device.faults.fired["refuse"] += 1
            raise

    def accept(self) -> None:
        """Accept clients of the wire languages."""
        for door in self._all_doors():
            door.open()

    async def refuse(self) -> None:
        """Refuse new clients of the wire languages; the control socket goes on."""
        for name in self.fronts:  # also those that nobody has attached to yet
            self._memory.setdefault(name, MemoryDoor(self._client(name)))
        for door in self._all_doors():
            await door.refuse()

    def drop_clients(self) -> int:
        """Break all connections of the wire languages; gives their number."""
        return sum(door.drop_clients() for door in self._all_doors())

    async def power_cycle(self, off_s: float) -> None:
        """Switch off, stay off for `off_s` of the clock, boot with what the boot mode keeps."""
        self.device.power_off()
        await self.refuse()
        self.drop_clients()
        await self.device.clock.sleep(off_s)
        self._on_boot()
        self.device.boot()
        self.accept()

    def _all_doors(self) -> list[Door]:
        return [*self._doors.values(), *self._memory.values()]

    def _client(self, name: str) -> Client:
        """Serves one client of a front."""
        front = self.fronts[name]

        async def serve(reader: Reader, writer: Writer) -> None:
            limit = self.device.faults.max_sessions
            if front.max_sessions_here and limit is not None and self._served[name] >= limit:
                self.device.faults.fired["max_sessions"] += 1
                return
            line = Line(
                name,
                next(self._sessions),
                (reader, writer),
                faults=self.device.faults,
                transcript=self.transcript,
                clock=self.device.clock,
            )
            self._served[name] += 1
            try:
                await front.converse(line)
            finally:
                self._served[name] -= 1

        return serve
