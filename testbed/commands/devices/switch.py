"""`testbed switch ADDRESS ...`: one switch, without a lab file. This module holds the commands that only read it.

    testbed switch polatis+tl1://10.0.0.7 read
    testbed switch calient+tl1://10.0.0.8 connect 1.1.1:1.1.2

Ports are numbers (inputs 1 to N, outputs N+1 to N+M) or the device's own names. `=NAME` is always a name.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, StreamCommand, argument, option
from testbed.commands.documents import OMIT_NONE, Document
from testbed.errors import UsageError

if TYPE_CHECKING:
    from ocs_drivers import OpticalSwitch

READ_TIMEOUT_S = 60.0
"""Default time limit of a command that only reads. Commands that move have no default limit."""
MAX_TIMEOUT_S = 86400

_EPILOG = """\b
Addresses: SCHEME://HOST[:PORT], of the schemes
{schemes}
  serial lines: polatis+serial:/dev/ttyUSB0; a panel: manual://FILE;
  sim+SCHEME://NAME starts a simulated switch for the command

\b
Accounts, from the environment or a file:
  LIGHTBED_OCS_USER, LIGHTBED_OCS_PASSWORD  user and password for one session
  LIGHTBED_OCS_CREDENTIALS                  a file of accounts
                      (default: ~/.config/lightbed/credentials.toml)

\b
Examples:
  testbed switch polatis+tl1://10.0.0.7 read
  testbed switch calient+tl1://10.0.0.8 connect 1.1.1:1.1.2 --yes
  testbed switch rome+cli://10.0.0.9 connect E3:W4 --replace --timeout 300
  testbed switch sim+polatis+scpi://spare apply 1:49 2:50 --dry-run
"""

Pair = tuple[int, int]
"""An input and its output."""


@dataclass(frozen=True, kw_only=True)
class SwitchCommand(Command[Any]):
    """Options of the group `testbed switch`: the address, time limits and a recording."""

    needs = "switch"
    has_runs_dir = False
    address: Annotated[
        str,
        argument(
            "Address of the switch, e.g. polatis+scpi://10.0.0.7.",
            "ADDRESS",
            complete="addresses",
            is_local=True,
            belongs_to_group=True,
        ),
    ] = REQUIRED
    timeout_s: Annotated[
        float | None,
        option(
            f"Limit for the whole command; default: {READ_TIMEOUT_S:g} to read, none to move.",
            "--timeout",
            metavar="SECONDS",
            least=0.1,
            most=MAX_TIMEOUT_S,
            belongs_to_group=True,
        ),
    ] = None
    answer_s: Annotated[
        float,
        option(
            "Limit for each answer of the device.",
            "--timeout-each",
            metavar="SECONDS",
            least=0.1,
            most=MAX_TIMEOUT_S,
            belongs_to_group=True,
        ),
    ] = 5.0
    record: Annotated[
        Path | None,
        option(
            "Record the exchange on the wire in this new file.",
            metavar="FILE",
            is_local=True,
            belongs_to_group=True,
        ),
    ] = None

    def validate(self) -> None:
        """Raise `UsageError` for time limits that are not finite."""
        super().validate()
        check_seconds("--timeout", self.timeout_s)
        check_seconds("--timeout-each", self.answer_s)

    @classmethod
    def make_group_epilog(cls) -> str:
        """Return the help on addresses and accounts, with examples."""
        from ocs_drivers.families import FAMILIES

        schemes_text = ", ".join(FAMILIES)
        return _EPILOG.format(
            schemes=textwrap.indent(textwrap.fill(schemes_text, 74, break_on_hyphens=False), "  ")
        )

    def open(self, *, is_bounded: bool = True) -> AbstractContextManager[OpticalSwitch]:
        """Open the switch. With `is_bounded` the default time limit applies, otherwise only `--timeout`."""
        from testbed.commands.devices.session import open_device

        timeout_s = self.timeout_s or (READ_TIMEOUT_S if is_bounded else None)
        # Commands that move show the driver's progress instead of announcing that the device is slow.
        return open_device(self.address, timeout_s, self.answer_s, self.record, announces_slowness=is_bounded)


def check_seconds(name: str, seconds: float | None) -> None:
    """Raise `UsageError` unless the option's value is a finite number of seconds."""
    if seconds is not None and not math.isfinite(seconds):
        raise UsageError(f"{name}: {seconds} is not a number of seconds")


@dataclass(frozen=True, kw_only=True)
class SwitchDocument(Document):
    """First keys of every document about a switch: its address, and whether it is simulated."""

    address: str
    simulated: bool


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Identity that a device reports."""

    vendor: str
    model: str
    serial: str
    firmware: str


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Capabilities of a device: see `ocs_drivers.model.Capabilities`."""

    inputs: int
    outputs: int
    atomic_whole: bool
    bulk_add: bool
    bank_outputs: int | None
    disconnects: bool
    reads_back: bool
    two_step_activate: bool
    serial_robot: bool
    wear_counter: bool
    boot_mode: str | None
    session_timeout_s: float | None
    hitless_keep: bool
    power_monitor: bool
    attenuator: bool
    shutter: bool
    async_events: bool
    login: bool
    max_ports_per_query: int
    switch_time_s: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class IdentityDocument(SwitchDocument):
    """The device that answers, and its capabilities."""

    identity: Identity
    capabilities: Capabilities


@dataclass(frozen=True, kw_only=True)
class SwitchIdentity(SwitchCommand, Command[IdentityDocument]):
    """`testbed switch ADDRESS identity`."""

    def run(self, context: CommandContext) -> IdentityDocument:
        """Read the identity and capabilities. Raises `OcsError`."""
        from testbed.commands.devices.session import make_heading, make_switch_fields

        with self.open() as device:
            identity, capabilities = asdict(device.identity()), asdict(device.capabilities)
            rows = [
                (name.replace("_", " "), value)
                for name, value in {**identity, **capabilities}.items()
                if value not in (None, False)
            ]
            context.say_table(make_heading(device), ("", ""), rows)
            return IdentityDocument(
                **make_switch_fields(device),
                identity=Identity(**identity),
                capabilities=Capabilities(**capabilities),
            )


@dataclass(frozen=True, kw_only=True)
class Port:
    """A port that a device reports: see `ocs_drivers.model.PortInfo`."""

    number: int
    side: str
    state: str
    label: str
    has_power_monitor: bool
    name: str
    moves: int | None

    def make_cells(self) -> tuple[object, ...]:
        """Return the port as a row of a table."""
        moves = "" if self.moves is None else self.moves
        return self.number, self.name, self.side, self.state, self.label, moves


@dataclass(frozen=True, kw_only=True)
class PortList(SwitchDocument):
    """The ports of a switch."""

    ports: tuple[Port, ...]


@dataclass(frozen=True, kw_only=True)
class SwitchPorts(SwitchCommand, Command[PortList]):
    """`testbed switch ADDRESS ports`."""

    def run(self, context: CommandContext) -> PortList:
        """List the ports. Raises `OcsError`."""
        from testbed.commands.devices.session import make_heading, make_switch_fields

        with self.open() as device:
            ports = tuple(
                Port(**asdict(info) | {"side": info.side.value, "state": info.state.value})
                for info in device.ports().values()
            )
            columns = ("port", "name", "side", "state", "label", "moves")
            context.say_table(make_heading(device), columns, [port.make_cells() for port in ports])
            return PortList(**make_switch_fields(device), ports=ports)


@dataclass(frozen=True, kw_only=True)
class PendingMove:
    """A move in a robot's queue."""

    kind: str
    pair: Pair | None
    user: str
    source: str
    request: str


@dataclass(frozen=True, kw_only=True)
class ReadDocument(SwitchDocument):
    """Connections of a switch and their revision, ports that are unusable now, and queued moves of a robot."""

    connections: tuple[Pair, ...]
    revision: str
    unfit: dict[int, str]
    pending: tuple[PendingMove, ...]


@dataclass(frozen=True, kw_only=True)
class SwitchRead(SwitchCommand, Command[ReadDocument]):
    """`testbed switch ADDRESS read`."""

    def run(self, context: CommandContext) -> ReadDocument:
        """Read the connections. Raises `OcsError`."""
        from ocs_drivers.engine.reports import describe_pairs
        from testbed.commands.devices.ports import PortNames
        from testbed.commands.devices.session import make_heading, make_switch_fields

        with self.open() as device:
            snapshot, port_names = device.read(), PortNames(device.ports())
            rows = [
                (source, port_names.get_name(source), output, port_names.get_name(output))
                for source, output in snapshot.connections.items()
            ]
            title = f"{make_heading(device)}: {len(rows)} connected, revision {snapshot.revision}"
            context.say_table(title, ("input", "name", "output", "name"), rows)
            context.say(
                *(
                    f"pending: {move.kind} {describe_pairs([move.pair]) if move.pair else 'other ports'} "
                    f"for {move.user or 'somebody'}"
                    for move in snapshot.pending
                )
            )
            return ReadDocument(
                **make_switch_fields(device),
                connections=tuple(sorted(snapshot.connections.items())),
                revision=snapshot.revision,
                unfit={port: state.value for port, state in snapshot.unfit.items()},
                pending=tuple(PendingMove(**asdict(move)) for move in snapshot.pending),
            )


@dataclass(frozen=True, kw_only=True)
class PowerReading:
    """Optical power in dBm. `below_floor` is true if the monitor sees no light."""

    dbm: float
    below_floor: bool


@dataclass(frozen=True, kw_only=True)
class PowerDocument(SwitchDocument):
    """Optical power by port, or None for a port without a monitor."""

    power: dict[int, PowerReading | None]


@dataclass(frozen=True, kw_only=True)
class SwitchPower(SwitchCommand, Command[PowerDocument]):
    """`testbed switch ADDRESS power`."""

    named: Annotated[
        tuple[str, ...], argument("Ports to show; default: all.", "[PORT]...", complete="ports")
    ] = ()

    def run(self, context: CommandContext) -> PowerDocument:
        """Read the power. Raises `OcsError`."""
        from testbed.commands.devices.ports import PortNames
        from testbed.commands.devices.session import make_heading, make_switch_fields

        with self.open() as device:
            ports = device.ports()
            port_names = PortNames(ports)
            selected_ports = [port_names.find_number(text, None) for text in self.named] or list(ports)
            reading_by_port = {
                port: None if reading is None else PowerReading(**asdict(reading))
                for port, reading in device.power(selected_ports).items()
            }
            rows = [
                (
                    port,
                    port_names.get_name(port),
                    ports[port].side.value,
                    _format_power(reading_by_port[port]),
                )
                for port in selected_ports
            ]
            context.say_table(make_heading(device), ("port", "name", "side", "power dBm"), rows)
            return PowerDocument(**make_switch_fields(device), power=reading_by_port)


def _format_power(reading: PowerReading | None) -> str:
    if reading is None:
        return "no monitor"
    return "dark" if reading.below_floor else f"{reading.dbm:.2f}"


@dataclass(frozen=True, kw_only=True)
class WatchEvent(SwitchDocument):
    """An event of a watch: the connections at its start, a change of them, or an event that the device reports."""

    connections: tuple[Pair, ...] | None = field(default=None, metadata=OMIT_NONE)
    event: str | None = field(default=None, metadata=OMIT_NONE)
    lines: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    removed: tuple[Pair, ...] | None = field(default=None, metadata=OMIT_NONE)
    added: tuple[Pair, ...] | None = field(default=None, metadata=OMIT_NONE)

    def format_line(self) -> str:
        """Return a line for people."""
        if self.connections is not None:
            return f"{len(self.connections)} connected"
        if self.event is not None:
            return f"{self.event} {' '.join(self.lines or ())}"
        return " ".join(
            [f"-{source}:{output}" for source, output in self.removed or ()]
            + [f"+{source}:{output}" for source, output in self.added or ()]
        )


@dataclass(frozen=True, kw_only=True)
class SwitchWatch(SwitchCommand, StreamCommand[WatchEvent]):
    """`testbed switch ADDRESS watch`."""

    role = None
    every_s: Annotated[
        float,
        option("Seconds between readings.", "--every", metavar="SECONDS", least=0.05, most=MAX_TIMEOUT_S),
    ] = 1.0
    for_s: Annotated[
        float | None, option("Duration of the watch; default: until interrupted.", "--for", metavar="SECONDS")
    ] = None

    def validate(self) -> None:
        """Raise `UsageError` for times that are not finite."""
        super().validate()
        check_seconds("--every", self.every_s)
        check_seconds("--for", self.for_s)

    def stream(self, context: CommandContext) -> Generator[WatchEvent, None, None]:
        """Yield the connections, then every change and every event of the device, until `--for` has passed.

        Connections are read every `--every` seconds. Raises `OcsError`.
        """
        from testbed.commands.devices.session import make_switch_fields

        with self.open(is_bounded=False) as device:
            begin_s, switch_fields = time.monotonic(), make_switch_fields(device)
            connections = device.read().connections
            last_number = max((event.number for event in device.events()), default=0)
            yield WatchEvent(**switch_fields, connections=tuple(sorted(connections.items())))
            while self.for_s is None or time.monotonic() - begin_s < self.for_s:
                time.sleep(self.every_s)
                for event in device.events(since=last_number):
                    last_number = event.number
                    yield WatchEvent(**switch_fields, event=event.kind, lines=tuple(event.lines))
                previous_circuits, connections = connections, device.read().connections
                if connections != previous_circuits:
                    removed_pairs = tuple(sorted(previous_circuits.pairs - connections.pairs))
                    added_pairs = tuple(sorted(connections.pairs - previous_circuits.pairs))
                    yield WatchEvent(**switch_fields, removed=removed_pairs, added=added_pairs)
