"""TL1 interface of a Polatis switch: inventory, cross-connects and port commands.

Every command except the login needs a login on its connection. A change by any client is reported to all logged-in
sessions, but to its author only with `sends_own_reports`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sim.twins.families.polatis.attenuators import MAX_LEVEL_DB, MODES, Attenuators, AttenuatorSetting
from sim.twins.frontends.tl1 import (
    Command,
    Denial,
    Handler,
    TextLines,
    Tl1Frontend,
    Tl1Session,
    read_local_time,
)
from sim.twins.switch.device import SwitchDevice

DEFAULT_IDLE_TIMEOUT_S = 1800.0
_PORT_LIST = re.compile(r"\d+(?:&&\d+)?(?:&\d+(?:&&\d+)?)*")
_LIST_ITEM = re.compile(r"\d+(?:&&\d+)?")
_MAX_LIST_PORTS = 4096
PortHandler = Callable[[Command], TextLines]

_MAX_FLAP_CYCLES = 1000


class PolatisTl1(Tl1Frontend):
    """The TL1 interface of one switch, with an idle timeout that users can set."""

    login_required_denial = ("PICC", "login needed")

    def __init__(
        self,
        device: SwitchDevice,
        *,
        account: tuple[str, str],
        model: str,
        serial_number: str,
        firmware: str,
        attenuators: Attenuators,
        page_rows: int = 0,
        sends_own_reports: bool = False,
    ) -> None:
        super().__init__(device, account=account, page_rows=page_rows, sends_own_reports=sends_own_reports)
        self.idle_timeout_s = DEFAULT_IDLE_TIMEOUT_S
        self._identity = (model, serial_number, firmware)
        self._ports = PortCommands(device, attenuators)
        device.add_listener(lambda change: self.report_changes(change, ("DLT-PATCH", "ENT-PATCH")))

    def make_handlers(self, session: Tl1Session) -> dict[str, Handler]:
        """Return the command handlers of a logged-in session, by verb."""
        commands: dict[str, Handler] = {
            "RTRV-HDR": lambda _: (),
            "RTRV-NETYPE": lambda _: self._describe_type(),
            "RTRV-INV": lambda _: self._describe_inventory(),
            "RTRV-EQPT": self._query_equipment,
            "ED-EQPT": self._edit_equipment,
            "ENT-PATCH": self._connect,
            "DLT-PATCH": self._disconnect,
            "RTRV-PATCH": self._list_connections,
            "INH-MSG": lambda _: session.set_silenced(is_silenced=True),
            "ALW-MSG": lambda _: session.set_silenced(is_silenced=False),
        }
        return {**commands, **self._ports.make_handlers()}

    def check_target(self, command: Command) -> None:
        """Raise `Denial` (IITA) if a command names another device."""
        if command.tid not in {"", self.device.name}:
            raise Denial("IITA", f"this is {self.device.name}")

    def format_change(self, number: int, verb: str, pair: tuple[int, int]) -> str:
        """Return the line that reports the change of one circuit, with date and time."""
        now = read_local_time()
        return f"DATE={now:%y-%m-%d},TIME={now:%H-%M-%S},{super().format_change(number, verb, pair)}"

    # -- inventory

    def _describe_type(self) -> TextLines:
        model, _, firmware = self._identity
        return [f"POLATIS,{model},OCS,{firmware}"]

    def _describe_inventory(self) -> TextLines:
        model, serial_number, firmware = self._identity
        return [f"OCS:SN={serial_number},MODEL={model},FW={firmware}"]

    def _query_equipment(self, command: Command) -> TextLines:
        query = (command.aid.upper(), command.get_keyword("PARAMETER").upper())
        matrix = self.device.matrix
        if query == ("SYSTEM", "SIZE"):
            return [f"SYSTEM:SIZE={matrix.input_count}x{matrix.output_count}"]
        if query == ("PMON", "CONFIG"):
            return [
                f"PMON::PORT={port},MODE={'INPUT' if matrix.is_input(port) else 'OUTPUT'}"
                for port in matrix.ports
            ]
        if query == ("ATTEN", "CONFIG"):
            outputs = matrix.ports[matrix.input_count :]
            return [f"ATTEN::PORT={port},MODE={self._ports.get_attenuation(port).mode}" for port in outputs]
        if query == ("TIMEOUT", "ADMIN"):
            return [f"TIMEOUT:ADMIN={self.idle_timeout_s / 60:g}"]
        raise Denial("IIAC", f"no parameter {query[1]} of {query[0]}")

    def _edit_equipment(self, command: Command) -> TextLines:
        if command.aid.upper() != "TIMEOUT":
            raise Denial("IIAC", f"{command.aid} cannot be edited")
        text = command.get_keyword("ADMIN")
        if not text.isdecimal():
            raise Denial("IDNV", "ADMIN is a number of minutes")
        self.idle_timeout_s = 60.0 * int(text)
        return ()

    # -- cross-connects

    async def _connect(self, command: Command) -> TextLines:
        inputs, comma, outputs = command.aid.partition(",")
        if not comma:
            raise Denial("IIAC", "an input and an output are needed")
        is_forced = command.positional[0].lower() == "frcd"
        pairs = parse_ports(inputs), parse_ports(outputs)
        await self._change_connections(
            lambda: self.device.matrix.plan_connections(*pairs, "replace" if is_forced else None)
        )
        return ()

    async def _disconnect(self, command: Command) -> TextLines:
        matrix = self.device.matrix
        if command.aid.upper() == "ALL":
            await self._change_connections(matrix.plan_full_removal)
        else:
            ports = parse_ports(command.aid)
            await self._change_connections(lambda: matrix.plan_port_removal(ports))
        return ()

    async def _change_connections(self, make_connections: Callable[[], dict[int, int]]) -> None:
        """Change the configuration and wait for the light, unless the fault `drop_command` discards the command."""
        if self.device.faults.must_drop_command():
            return
        motion = self.device.change_connections(make_connections())
        if motion:
            await asyncio.wait({motion})  # if the session ends meanwhile, the mirrors go on moving

    def _list_connections(self, command: Command) -> TextLines:
        connections = self.device.matrix.connections
        if not command.aid or command.aid.upper() == "ALL":
            return [f"{source},{output}" for source, output in connections.items()]
        ports = set(parse_ports(command.aid))
        for port in ports:
            self.device.matrix.check_port(port)
        return [f"{source},{output}" for source, output in connections.items() if ports & {source, output}]


def parse_ports(aid: str) -> list[int]:
    """Return the ports of an access identifier: `&` separates ports, `&&` makes a range.

    >>> parse_ports("1&4&10"), parse_ports("1&&4")
    ([1, 4, 10], [1, 2, 3, 4])

    Raise `Denial` (IIAC) if the text is not a list of ports. At most 4096 ports are returned.
    """
    if not _PORT_LIST.fullmatch(aid):
        raise Denial("IIAC", f"{aid[:40]!r} is not a list of ports")
    ports: list[int] = []
    for item in _LIST_ITEM.findall(aid):
        first, _, last = item.partition("&&")
        ports += range(int(first), int(last or first) + 1)[:_MAX_LIST_PORTS]
    return ports[:_MAX_LIST_PORTS]


@dataclass(frozen=True, slots=True)
class MonitorSetting:
    """Settings of a power monitor: wavelength in nm, offset of its readings in dB, and averaging."""

    wavelength_nm: float = 1550.0
    offset_db: float = 0.0
    averaging: int = 4

    def __str__(self) -> str:
        return f"{self.wavelength_nm:.1f},{self.offset_db:.1f},{self.averaging}"


@dataclass(frozen=True, slots=True)
class FlapTest:
    """A link flap test. Each of its `cycle_count` cycles darkens a port for `off_s`, then lights it for `on_s`."""

    off_s: float
    on_s: float
    cycle_count: int

    def __str__(self) -> str:
        return f"{self.off_s * 1000:.0f},{self.on_s * 1000:.0f},{self.cycle_count}"


class PortCommands:
    """Handlers of the port commands of one device."""

    def __init__(self, device: SwitchDevice, attenuators: Attenuators) -> None:
        self._attenuators = attenuators
        self._flap_tests: dict[int, FlapTest] = {}
        self._flapping_ports: set[int] = set()
        self._device = device
        self._matrix = device.matrix
        self._monitors: dict[int, MonitorSetting] = {}

    def make_handlers(self) -> Mapping[str, PortHandler]:
        """Return the command handlers by verb."""
        return {
            "OPR-PORT-SHUTTER": lambda command: self._set_shutters(command, is_disabled=True),
            "RLS-PORT-SHUTTER": lambda command: self._set_shutters(command, is_disabled=False),
            "RTRV-PORT-SHUTTER": lambda command: self._list_values(
                command, lambda port: "CLOSED" if port in self._matrix.disabled_ports else "OPEN"
            ),
            "ENT-PORT-FLAP": self._set_flaps,
            "OPR-PORT-FLAP": self._start_flaps,
            "RLS-PORT-FLAP": self._stop_flaps,
            "RTRV-PORT-FLAP": self._list_flaps,
            "RTRV-PORT-POWER": lambda command: self._list_values(
                command,
                lambda port: f"{self._device.read_power_dbm(port) + self._get_monitor(port).offset_db:.2f}",
            ),
            "RTRV-PORT-PMON": lambda command: self._list_values(
                command, lambda port: str(self._get_monitor(port))
            ),
            "SET-PORT-PMON": self._set_monitors,
            "RTRV-PORT-ATTEN": lambda command: self._list_values(
                command, lambda port: str(self.get_attenuation(port))
            ),
            "SET-PORT-ATTEN": self._set_attenuators,
            "RTRV-PORT-LABEL": lambda command: self._list_values(
                command, lambda p: self._device.labels.get(p, "")
            ),
            "ED-PORT-LABEL": self._set_labels,
        }

    def _parse_ports(self, command: Command) -> list[int]:
        ports = list(self._matrix.ports) if command.aid.upper() == "ALL" else parse_ports(command.aid)
        for port in ports:
            self._matrix.check_port(port)
        return ports

    def _list_values(self, command: Command, format_value: Callable[[int], str]) -> TextLines:
        return [f"{port}:{format_value(port)}" for port in self._parse_ports(command)]

    def _execute_unless_dropped(self, execute_change: Callable[[], object]) -> TextLines:
        """Execute a set command, unless the fault `drop_command` discards it."""
        if not self._device.faults.must_drop_command():
            execute_change()
        return ()

    def _set_shutters(self, command: Command, *, is_disabled: bool) -> TextLines:
        ports = set(self._parse_ports(command))
        return self._execute_unless_dropped(lambda: self._device.set_disabled(ports, is_disabled=is_disabled))

    def _set_flaps(self, command: Command) -> TextLines:
        """Store the parameters of a flap test (off ms, on ms, cycles). `OPR-PORT-FLAP` starts the test."""
        try:
            off_ms, on_ms, cycles = (int(text) for text in command.positional)
        except ValueError:
            raise Denial("IDNV", "three whole numbers are needed: off ms, on ms, cycles") from None
        if min(off_ms, on_ms, cycles) < 1 or cycles > _MAX_FLAP_CYCLES:
            raise Denial("IDRG", f"times are from 1 ms, cycles from 1 to {_MAX_FLAP_CYCLES}")
        flaps = dict.fromkeys(self._parse_ports(command), FlapTest(off_ms / 1000, on_ms / 1000, cycles))
        return self._execute_unless_dropped(lambda: self._flap_tests.update(flaps))

    def _start_flaps(self, command: Command) -> TextLines:
        """Start the flap tests of ports, without waiting (assumption). Raise `Denial` if a port has no test."""
        ports = self._parse_ports(command)
        for port in ports:
            if port not in self._flap_tests:
                raise Denial("SNVS", f"no flap was entered for port {port}")
        return self._execute_unless_dropped(
            lambda: [
                self._device.start_motion(self._run_flap(port, self._flap_tests[port])) for port in ports
            ]
        )

    def _stop_flaps(self, command: Command) -> TextLines:
        """Stop flap tests after their current cycle, which leaves their ports lit (assumption)."""
        ports = self._parse_ports(command)
        return self._execute_unless_dropped(lambda: self._flapping_ports.difference_update(ports))

    def _list_flaps(self, command: Command) -> TextLines:
        """Return the flap tests of the named ports, or of all ports. The format is an assumption."""
        ports = self._parse_ports(command) if command.aid else sorted(self._flap_tests)
        return [f"{port}:{self._flap_tests[port]}" for port in ports if port in self._flap_tests]

    async def _run_flap(self, port: int, flap: FlapTest) -> None:
        self._flapping_ports.add(port)
        for _ in range(flap.cycle_count):
            if port not in self._flapping_ports:
                return
            for is_disabled, seconds in ((True, flap.off_s), (False, flap.on_s)):
                self._device.set_disabled({port}, is_disabled=is_disabled)
                await self._device.clock.sleep(seconds)

    def _set_labels(self, command: Command) -> TextLines:
        labels = dict.fromkeys(self._parse_ports(command), command.get_keyword("LABEL"))
        return self._execute_unless_dropped(lambda: self._device.labels.update(labels))

    # -- power monitors

    def _get_monitor(self, port: int) -> MonitorSetting:
        return self._monitors.get(port, MonitorSetting())

    def _set_monitors(self, command: Command) -> TextLines:
        monitors = {}
        for port in self._parse_ports(command):
            monitor = self._get_monitor(port)
            monitors[port] = replace(
                monitor,
                wavelength_nm=_parse_number(command, "WAVE", monitor.wavelength_nm),
                offset_db=_parse_number(command, "OFFSET", monitor.offset_db),
                averaging=int(_parse_number(command, "AVG", monitor.averaging)),
            )
        return self._execute_unless_dropped(lambda: self._monitors.update(monitors))

    # -- attenuators

    def get_attenuation(self, port: int) -> AttenuatorSetting:
        """Return the attenuator setting of an output. Raise `Denial` (IICM) for an input."""
        self._check_output(port)
        return self._attenuators.get_setting(port)

    def _set_attenuators(self, command: Command) -> TextLines:
        ports = self._parse_ports(command)
        for port in ports:
            self._check_output(port)
        setting = self._parse_setting(command)
        return self._execute_unless_dropped(lambda: self._attenuators.apply_setting(ports, setting))

    def _parse_setting(self, command: Command) -> AttenuatorSetting:
        mode = command.get_keyword("MODE").upper()
        if mode == "NONE":
            return AttenuatorSetting()
        if mode not in MODES:
            raise Denial("IDNV", f"no attenuation mode {mode[:40]}")
        command.get_keyword("LEVEL")
        level, reference = _parse_number(command, "LEVEL", 0.0), int(_parse_number(command, "REFS", 0))
        if abs(level) > MAX_LEVEL_DB:
            raise Denial("IDRG", f"level {level} is out of range")
        if reference:
            self._matrix.check_port(reference)
        return AttenuatorSetting(mode, level, reference)

    def _check_output(self, port: int) -> None:
        if self._matrix.is_input(port):
            raise Denial("IICM", f"port {port} has no attenuator")


def _parse_number(command: Command, name: str, default: float) -> float:
    text = command.keywords.get(name)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise Denial("IDNV", f"{name} is not a number") from None
