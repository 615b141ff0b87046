"""A simulated switch as a server: one device behind any number of frontends, with a control socket."""

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
from sim.twins.switch.fault_list import Fault, FaultRegistry
from sim.twins.switch.matrix import MatrixRefusal
from sim.twins.wire.control import ControlServer, Reply, Request, Verb, VerbError
from sim.twins.wire.line import Line, Reader, Transcript, Writer
from sim.twins.wire.listener import AnyListener, Listener
from sim.twins.wire.memory import MemoryClient, MemoryListener

_T = TypeVar("_T")
REFUSED_STATUS = 255
"""Exit status of a command beyond the session limit. An SSH client whose connection breaks exits with the same."""

Wire = Literal["tcp", "telnet", "ssh", "serial"]
ClientHandler = Callable[[Reader, Writer], Awaitable[None]]
CommandHandler = Callable[[Reader, Writer, str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Frontend:
    """A frontend of a twin: one protocol (`serve`) on one kind of connection (`wire`).

    - `scheme`: scheme of the printed address, such as `polatis+scpi`.
    - `options`: query parameters of the printed address.
    - `serve`: serves one client until it disconnects.
    - `execute`: runs a command that an SSH client sends without a shell, and returns the exit status.
    - `is_single_session`: if True, an SSH connection ends after its first shell or command.
    - `account`: user name and password of a wire with its own login (SSH).
    - `baud`: rate of a serial line in bit/s.
    - `enforces_max_sessions`: if True, the fault `max_sessions` limits connections. If False, the frontend limits
      logins.
    - `file_name`: name of a file that the client keeps. The printed address is then the path of this file in a
      temporary directory, with the listener's address as the option `operator`. `SwitchTwin.close` removes the
      directory.
    """

    scheme: str
    serve: Callable[[Line], Awaitable[None]]
    execute: Callable[[Line, str], Awaitable[int]] | None = None
    wire: Wire = "tcp"
    is_single_session: bool = False
    account: tuple[str, str] = ("admin", "root")
    baud: int = 38400
    enforces_max_sessions: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    file_name: str = ""


def _make_listener(
    frontend: Frontend,
    sock: socket.socket | None,
    client_handler: ClientHandler,
    command_handler: CommandHandler,
    clock: Clock,
) -> AnyListener:
    """Return the listener for the wire of a frontend."""
    if frontend.wire == "serial":
        from sim.twins.wire.serial_line import SerialLine

        return SerialLine(client_handler, baud=frontend.baud, clock=clock)
    assert sock is not None  # every other wire is TCP below
    if frontend.wire == "ssh":
        from sim.twins.wire.ssh_server import SshServer

        handler = command_handler if frontend.execute else None
        return SshServer(
            sock, frontend.account, client_handler, handler, is_single_session=frontend.is_single_session
        )
    return Listener(sock, client_handler)


class SwitchTwin:
    """One simulated switch: one state that all frontends share, for several clients at once.

    `expire_logins` ends all logins and returns their number. `verbs` and `faults` are added to the verbs and faults
    that every family has. `on_boot` clears state that a device loses without power, such as error queues.
    """

    def __init__(
        self,
        device: SwitchDevice,
        frontends: Mapping[str, Frontend],
        *,
        expire_logins: Callable[[], int] = lambda: 0,
        verbs: Mapping[str, Verb] | None = None,
        faults: Mapping[str, Fault] | None = None,
        on_boot: Callable[[], None] = lambda: None,
    ) -> None:
        self.device = device
        self.frontends = frontends
        self.transcript = Transcript(device.clock)
        self._session_numbers = itertools.count(1)
        self._client_counts: Counter[str] = Counter()  # current clients of each frontend
        self._on_boot = on_boot
        self._listeners: dict[str, AnyListener] = {}
        self._memory_listeners: dict[str, MemoryListener] = {}
        self._fault_registry = FaultRegistry(
            device, client_lines=self, expire_logins=expire_logins, family_faults=faults
        )
        self._control_verbs = ControlVerbs(self, device, self.transcript, self._fault_registry, verbs or {})
        self._control = ControlServer(self.make_verbs())
        self._control_address = ""
        self._directory: TemporaryDirectory[str] | None = None

    def make_verbs(self) -> Mapping[str, Verb]:
        """Return the verbs of the control socket."""
        return self._control_verbs.make_verbs()

    @property
    def faults(self) -> Mapping[str, Fault]:
        """All faults of this twin, by name."""
        return self._fault_registry.faults

    async def set_fault(self, request: Request) -> None:
        """Set the fault that `request` names. Raise `VerbError` for an unknown fault or an invalid field."""
        await self._fault_registry.set_fault(request)

    @property
    def socket_frontends(self) -> tuple[str, ...]:
        """Names of the frontends that need a bound socket: all except those on serial lines."""
        return tuple(name for name, frontend in self.frontends.items() if frontend.wire != "serial")

    async def serve(self, sockets: Mapping[str, socket.socket], *, has_serial_lines: bool = False) -> None:
        """Start to serve clients in the event loop, and return without waiting for them.

        `sockets` maps names to bound sockets (`sim.twins.wire.listener.bind_socket`). It holds `control`, and any
        frontends of `socket_frontends`; frontends without a socket are not served. With `has_serial_lines`, also serve
        the frontends on serial lines.
        """
        for name, frontend in self.frontends.items():
            if name not in sockets and not (has_serial_lines and frontend.wire == "serial"):
                continue
            self._listeners[name] = _make_listener(
                frontend,
                sockets.get(name),
                self._make_client_handler(name),
                self._make_command_handler(name),
                self.device.clock,
            )
        self.accept()
        control = sockets["control"]
        self._control_address = "{}:{}".format(*control.getsockname()[:2])
        await self._control.serve(control)

    async def close(self) -> None:
        """Disconnect all clients and close the sockets. Lit circuits stay lit."""
        for listener in self._list_listeners():
            await listener.close()
        await self._control.close()
        await self.device.stop()
        if self._directory is not None:
            self._directory.cleanup()

    def list_addresses(self) -> dict[str, str]:
        """Return the address of every served frontend, in the form that drivers accept, and of `control`."""
        addresses = {name: self._format_address(name, listener) for name, listener in self._listeners.items()}
        return {**addresses, "control": f"tcp://{self._control_address}"}

    def _format_address(self, name: str, listener: AnyListener) -> str:
        frontend = self.frontends[name]
        location, options = (
            listener.address,
            {"baud": str(frontend.baud)} if frontend.wire == "serial" else {},
        )
        if frontend.file_name:
            if self._directory is None:
                self._directory = TemporaryDirectory(prefix="lightbed-twin-")
            location, options = (
                str(Path(self._directory.name) / frontend.file_name),
                {"operator": listener.address},
            )
        query = urlencode({**options, **frontend.options})
        return f"{frontend.scheme}://{location}" + (f"?{query}" if query else "")

    def get_host(self, name: str) -> str:
        """Return the IP address that a frontend listens on. Some devices report their own address."""
        listener = self._listeners.get(name)
        return listener.address.rpartition(":")[0] if listener else "127.0.0.1"

    def attach(self, frontend: str) -> MemoryClient:
        """Open an in-memory session with a frontend. Raise `ConnectionRefusedError` while the twin refuses clients."""
        if frontend not in self._memory_listeners:
            self._memory_listeners[frontend] = MemoryListener(self._make_client_handler(frontend))
        try:
            return self._memory_listeners[frontend].attach()
        except ConnectionRefusedError:
            self.device.faults.fire_counts["refuse"] += 1
            raise

    def accept(self) -> None:
        """Accept clients on all frontends."""
        for listener in self._list_listeners():
            listener.open()

    async def refuse(self) -> None:
        """Refuse new clients on all frontends. The control socket stays available."""
        for name in self.frontends:  # create missing listeners, so that they refuse a later `attach`
            self._memory_listeners.setdefault(name, MemoryListener(self._make_client_handler(name)))
        for listener in self._list_listeners():
            await listener.refuse()

    def drop_clients(self) -> int:
        """Break the connections of all frontends, and return their number."""
        return sum(listener.drop_clients() for listener in self._list_listeners())

    async def power_cycle(self, off_s: float) -> None:
        """Switch the device off, wait `off_s` on its clock, and boot it in its boot mode."""
        self.device.power_off()
        await self.refuse()
        self.drop_clients()
        await self.device.clock.sleep(off_s)
        self._on_boot()
        self.device.boot()
        self.accept()

    def _list_listeners(self) -> list[AnyListener]:
        return [*self._listeners.values(), *self._memory_listeners.values()]

    def _make_client_handler(self, name: str) -> ClientHandler:
        """Return a function that serves one client of a frontend. Raise `KeyError` for an unknown frontend."""
        frontend = self.frontends[name]

        async def serve(reader: Reader, writer: Writer) -> None:
            await self._serve_client(name, (reader, writer), frontend.serve)

        return serve

    def _make_command_handler(self, name: str) -> CommandHandler:
        """Return a function that executes one command of an SSH client of a frontend."""

        async def execute(reader: Reader, writer: Writer, command: str) -> int:
            execute_command = self.frontends[name].execute
            assert execute_command is not None  # without `execute`, the listener refuses the request
            status = await self._serve_client(
                name, (reader, writer), lambda line: execute_command(line, command)
            )
            return REFUSED_STATUS if status is None else status

        return execute

    async def _serve_client(
        self, name: str, streams: tuple[Reader, Writer], serve: Callable[[Line], Awaitable[_T]]
    ) -> _T | None:
        """Serve one client and return the result of `serve`, or None if the session limit is reached."""
        faults = self.device.faults
        limit = faults.max_sessions
        if (
            self.frontends[name].enforces_max_sessions
            and limit is not None
            and self._client_counts[name] >= limit
        ):
            faults.fire_counts["max_sessions"] += 1
            return None
        session_number = next(self._session_numbers)
        line = Line(
            name, session_number, streams, faults=faults, transcript=self.transcript, clock=self.device.clock
        )
        self._client_counts[name] += 1
        try:
            return await serve(line)
        finally:
            self._client_counts[name] -= 1


class PowerCycler(Protocol):
    """A device that can be power-cycled."""

    async def power_cycle(self, off_s: float) -> None:
        """Switch the device off, wait `off_s` on its clock, and switch it on."""


@dataclass(frozen=True, slots=True)
class ControlVerbs:
    """Verbs of the control socket of one switch."""

    power_cycler: PowerCycler
    device: SwitchDevice
    transcript: Transcript
    fault_registry: FaultRegistry
    family_verbs: Mapping[str, Verb] = field(default_factory=dict)

    def make_verbs(self) -> Mapping[str, Verb]:
        """Return the verbs that every switch has, and the verbs of the family."""
        return {
            "truth": lambda _: self._read_truth(),
            "advance": self._advance_clock,
            "transcript": self._read_transcript,
            "operator": self._change_connections_as_operator,
            "power_cycle": self._power_cycle,
            "set_fault": self.fault_registry.set_fault,
            "clear_fault": self.fault_registry.clear_fault,
            **self.family_verbs,
        }

    def _read_truth(self) -> Reply:
        device = self.device
        return {
            "simulated": True,
            "connections": _convert_to_lists(device.matrix.connections),
            "lit": _convert_to_lists(device.lit_connections),
            "really": _convert_to_lists(device.light_paths),
            "ports": {str(port): device.matrix.get_state(port) for port in device.matrix.ports},
            "locked": sorted(device.matrix.locked_ports),
            "boot_mode": device.boot_mode,
            "changes": device.change_count,
            "busy_s": device.busy_s,
            "last_busy_s": device.last_busy_s,
            "wear": {str(port): moves for port, moves in sorted(device.move_count_by_port.items())},
            "fired": dict(device.fire_counts),
            "now_s": device.clock.now(),
        }

    async def _advance_clock(self, request: Request) -> Reply:
        clock = self.device.clock
        if not isinstance(clock, VirtualClock):
            raise VerbError("this device runs in real time; start it with a virtual clock to advance it")
        seconds = request.get_number("seconds")
        if seconds < 0:
            raise VerbError("time only moves forward")
        await clock.advance(seconds)
        return {"now_s": clock.now()}

    def _read_transcript(self, request: Request) -> Reply:
        entries = [entry.as_json() for entry in self.transcript.list_entries()]
        if request.get_flag("clear", default=False):
            self.transcript.clear()
        return {"entries": entries}

    def _change_connections_as_operator(self, request: Request) -> Reply:
        """Change connections as another operator does. A new connection replaces others that use its ports."""
        pairs = request.get_pairs("connect")
        try:
            self.device.change_connections(
                self.device.matrix.plan_port_removal(request.get_integers("disconnect"))
            )
            inputs, outputs = [source for source, _ in pairs], [output for _, output in pairs]
            self.device.change_connections(self.device.matrix.plan_connections(inputs, outputs, "replace"))
        except MatrixRefusal as refusal:
            raise VerbError(str(refusal)) from None
        return {"connections": _convert_to_lists(self.device.matrix.connections)}

    async def _power_cycle(self, request: Request) -> Reply:
        await self.power_cycler.power_cycle(request.get_number("off_s", 0.0))
        return {"connections": _convert_to_lists(self.device.matrix.connections)}


def _convert_to_lists(connections: Mapping[int, int]) -> list[list[int]]:
    return [[source, output] for source, output in connections.items()]
