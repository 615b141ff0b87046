"""A simulated Glimmerglass System 100: TL1 with a `<` prompt, echo of each command, and long answers in pages.

Options for differences between releases:

    rows=2016|2005                format of the rows
    echo=yes|no                   whether each command is echoed
    greeting=prompt|terminal      greeting of a client: a prompt, or the control sequences of older software

Options for behaviour that published documents leave open:

    opmode=sync|async             answer a change without OPMODE after the mirrors have stopped, or at once
    moving=TEXT                   CONNSTATE of a circuit whose mirrors move
    reports=others|yes|no         sessions that get reports of a change: all except its author, all, or none
    when_occupied=reject|replace  effect of a connection to a port in use
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from sim.twins.frontends.tl1 import Command, Denial, Framing, Handler, TextLines, Tl1Frontend, Tl1Session
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Connections, OccupiedPolicy
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin
from sim.twins.wire.control import Request

DEFAULT_SWITCH_TIME_S = 0.02
TERMINAL_SETUP = "".join(
    f"\x1b{sequence}"
    for sequence in ('[62;1"p', ">", "[?4l", "[?5l", "[?7h", "[?8h", "[1;50r", "[50;1H", "[50;0H", "[4l")
)
"""Control sequences that a client of 2007 received after connecting."""
PROMPT = "\r\n<"
INPUT_BASE, OUTPUT_BASE = 10_000, 20_000
PAGE_BYTES = 3960
"""Maximum size of the data lines of a page, inferred from the pages of a capture of 2016."""

FirmwareRelease = Literal["2016", "2005"]
ReportPolicy = Literal["no", "others", "yes"]

_PORT_RANGE = r"\d{5}(?:&&\d{5})?"
_PORT_LIST = re.compile(rf"{_PORT_RANGE}(?:&{_PORT_RANGE})*")
_MAX_LIST_PORTS = 4096


def make_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Glimmerglass switch. Raise `SettingError` for an invalid option."""
    settings.check_options("opmode", "moving", "rows", "echo", "greeting", "reports", "when_occupied")
    occupied_policy = cast("OccupiedPolicy", settings.read_choice("when_occupied", "reject", "replace"))
    device = settings.make_device(switch_time_s=DEFAULT_SWITCH_TIME_S, occupied_policy=occupied_policy)
    tl1 = GlimmerglassTl1(
        device,
        account=settings.get_account("admin", "admin"),
        system_fields={
            "SerialNumber": settings.serial_number,
            "SystemType": "System100",
            "ChassisType": "GG100",
            "SoftwareActiveVersion": "4.2.1",
            "LicensedPortMatrix": f"{settings.input_count}x{settings.output_count}",
        },
        behaviour=Behaviour(
            waits_for_motion=settings.read_choice("opmode", "sync", "async") == "sync",
            moving_state=settings.options.get("moving", "moving"),
            report_policy=cast("ReportPolicy", settings.read_choice("reports", "others", "yes", "no")),
            release=cast("FirmwareRelease", settings.read_choice("rows", "2016", "2005")),
        ),
    )
    greeting = (
        TERMINAL_SETUP if settings.read_choice("greeting", "prompt", "terminal") == "terminal" else ""
    ) + PROMPT
    echoes_input = settings.read_choice("echo", "yes", "no") == "yes"
    frontends = {
        "tl1": Frontend(
            "glimmerglass+tl1",
            lambda line: tl1.serve(line, greeting=greeting.encode(), echoes_input=echoes_input),
            enforces_max_sessions=False,
        )
    }
    return SwitchTwin(device, frontends, expire_logins=tl1.expire_sessions, faults=tl1.list_faults())


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Behaviour that published documents leave open, or that differs between releases.

    With `waits_for_motion`, a change without OPMODE is answered after the mirrors have stopped (SYNC), otherwise at
    once. `moving_state` is the CONNSTATE of a circuit whose mirrors move. `report_policy` selects the sessions that
    get reports of a change: none (`no`), all except its author (`others`), or all (`yes`). `release` selects the
    format of the rows.
    """

    waits_for_motion: bool = True
    moving_state: str = "moving"
    report_policy: ReportPolicy = "others"
    release: FirmwareRelease = "2016"


class GlimmerglassTl1(Tl1Frontend):
    """The TL1 interface of one switch, with a prompt after every answer."""

    framing = Framing(block_prefix="\r\n\n   ", block_suffix=PROMPT, report_prefix="\r\n\n   ")
    noise_report = ("REPT ALM FIBER", "10001:CL,PWRLOW,NSA,,,:threshold; crossed")

    def __init__(
        self,
        device: SwitchDevice,
        *,
        account: tuple[str, str],
        system_fields: Mapping[str, str],
        behaviour: Behaviour,
    ) -> None:
        super().__init__(device, account=account, sends_own_reports=behaviour.report_policy == "yes")
        self.numbering = Numbering(device.matrix.input_count, device.matrix.output_count)
        self._system_fields = system_fields
        self._behaviour = behaviour
        self._remaining_wrong_tags = 0
        self._monitoring_period = "10"
        self._user_of_input: dict[int, str] = {}
        if behaviour.report_policy != "no":
            device.add_listener(
                lambda change: self.report_changes(change, ("DLT-CRS-FIBER", "ENT-CRS-FIBER"))
            )

    def make_handlers(self, session: Tl1Session) -> Mapping[str, Handler]:
        """Return the command handlers of a logged-in session, by verb."""
        return {
            "RTRV-HDR": lambda _: (),
            "RTRV-SYSTEM-INFO": lambda _: [
                f"GGN:{name}={value}" for name, value in self._system_fields.items()
            ],
            "RTRV-CFG-FIBER": lambda command: [
                self._format_port_row(port) for port in self._parse_ports(command.aid)
            ],
            "RTRV-CRS-FIBER": lambda command: [
                self._format_circuit_row(port) for port in self._parse_ports(command.aid)
            ],
            "RTRV-PORT-POWER": lambda command: [
                f"GGN:PORTID={self.numbering.find_number(port)},PORTPOWER={self._read_power_dbm(port):.3f}"
                for port in self._parse_ports(command.aid)
            ],
            "RTRV-SIGTYPE-FIBER": lambda command: [
                f"GGN:PORTID={self.numbering.find_number(port)},PORTNAME={self._find_name(port)},SIGTYPE=1550"
                for port in self._parse_ports(command.aid)
            ],
            "ENT-CRS-FIBER": lambda command: self._connect(command, session),
            "DLT-CRS-FIBER": self._disconnect,
            "ED-PARAM": self._edit_parameter,
        }

    def split_into_pages(self, lines: TextLines) -> list[TextLines]:
        """Split the lines of an answer into pages of at most `PAGE_BYTES`."""
        pages: list[TextLines] = []
        first_line, page_bytes = 0, 0
        for number, line in enumerate(lines):
            length = len(line) + len('   ""\r\n')
            if number > first_line and page_bytes + length > PAGE_BYTES:
                pages.append(lines[first_line:number])
                first_line, page_bytes = number, 0
            page_bytes += length
        return [*pages, lines[first_line:]]

    def format_pair_name(self, pair: tuple[int, int]) -> str:
        """Return the name of a circuit in reports."""
        return f"{self.numbering.find_number(pair[0])},{self.numbering.find_number(pair[1])}"

    # -- faults

    def list_faults(self) -> Mapping[str, Fault]:
        """Return the faults `wrong_tag` (the next answers have a wrong ctag) and `report_noise`, by name."""
        return {
            "wrong_tag": Fault(self._set_wrong_tags, lambda _: self._set_wrong_tags(None)),
            "report_noise": self.make_noise_fault(),
        }

    def _set_wrong_tags(self, request: Request | None) -> None:
        self._remaining_wrong_tags = request.get_integer("count", 1) if request else 0

    def choose_tag(self, command: Command) -> str:
        """Return the tag of an answer: the ctag of the command, or a wrong tag if the fault `wrong_tag` is set."""
        if not self._remaining_wrong_tags:
            return command.ctag
        self._remaining_wrong_tags -= 1
        self.device.faults.fire_counts["wrong_tag"] += 1
        return f"{command.ctag}9"

    # -- reads

    def _parse_ports(self, aid: str) -> Sequence[int]:
        """Return the ports that a command names. An empty identifier or `all` names all ports."""
        return self.device.matrix.ports if aid.lower() in {"", "all"} else self.numbering.parse_ports(aid)

    def _find_name(self, port: int) -> str:
        side = "IN" if self.device.matrix.is_input(port) else "OUT"
        number = self.numbering.find_number(port) % INPUT_BASE
        return self.device.labels.get(port, "" if self._behaviour.release == "2005" else f"{side}{number}")

    def _read_power_dbm(self, port: int) -> float:
        """Return the power reading of a port in dBm. Without light, a monitor reads noise."""
        return max(self.device.read_power_dbm(port), compute_noise_dbm(self.numbering.find_number(port)))

    def _is_lit(self, port: int) -> bool:
        return self._read_power_dbm(port) > compute_noise_dbm(self.numbering.find_number(port))

    def _format_port_row(self, port: int) -> str:
        health = "good" if self.device.matrix.get_state(port) == "E" else "bad"
        return format_port_row(
            self._behaviour.release, self.numbering.find_number(port), self._find_name(port), health
        )

    def _format_circuit_row(self, port: int) -> str:
        """Return the row of the circuit on a port, or a row of the port alone if it has no circuit."""
        matrix = self.device.matrix
        ports_by_side = {
            matrix.is_input(end): end for end in (port, matrix.find_peer(port)) if end is not None
        }
        return format_circuit_row(
            self._behaviour.release,
            self._make_circuit_end(ports_by_side.get(True)),
            self._make_circuit_end(ports_by_side.get(False)),
            self._find_state(ports_by_side[True], ports_by_side[False])
            if len(ports_by_side) == 2
            else CircuitState(),
        )

    def _make_circuit_end(self, port: int | None) -> CircuitEnd:
        if port is None:
            return CircuitEnd()
        return CircuitEnd(self.numbering.find_number(port), self._find_name(port), self._read_power_dbm(port))

    def _find_state(self, source: int, output: int) -> CircuitState:
        user = self._user_of_input.get(source, "")
        if self.device.is_moving(source):
            return CircuitState(self._behaviour.moving_state, user=user)
        if self._is_lit(source) and self._is_lit(output):
            return CircuitState("steady", user=user)
        return CircuitState("fault", "initial_connection_timer_expired", user)

    # -- changes

    async def _connect(self, command: Command, session: Tl1Session) -> TextLines:
        inputs, outputs = self._parse_port_lists(command.aid)
        connections = self.device.matrix.plan_connections(inputs, outputs)
        must_wait = self._should_wait(command)
        self._user_of_input |= dict.fromkeys(inputs, session.user)
        return await self._change_connections(connections, must_wait=must_wait)

    async def _disconnect(self, command: Command) -> TextLines:
        matrix = self.device.matrix
        if command.aid.lower() == "all":
            connections = matrix.plan_full_removal()
        elif "," in command.aid:
            connections = matrix.plan_removal(*self._parse_port_lists(command.aid))
        else:
            connections = matrix.plan_port_removal(self.numbering.parse_ports(command.aid))
        return await self._change_connections(connections, must_wait=self._should_wait(command))

    async def _change_connections(self, connections: Connections, *, must_wait: bool) -> TextLines:
        """Change the connections, unless the fault `drop_command` discards the command."""
        if not self.device.faults.must_drop_command():
            motion = self.device.change_connections(connections)
            if motion is not None and must_wait:
                await self.device.wait_idle()
        return ()

    def _should_wait(self, command: Command) -> bool:
        mode = command.keywords.get("OPMODE", "").upper()
        if mode not in {"", "SYNC", "ASYNC"}:
            raise Denial("IDNV", f"no OPMODE {mode[:40]}")
        return self._behaviour.waits_for_motion if not mode else mode == "SYNC"

    def _parse_port_lists(self, aid: str) -> tuple[list[int], list[int]]:
        inputs, comma, outputs = aid.partition(",")
        if not comma:
            raise Denial("IIAC", "inputs and outputs are needed")
        return self.numbering.parse_ports(inputs), self.numbering.parse_ports(outputs)

    def _edit_parameter(self, command: Command) -> TextLines:
        if command.get_keyword("NAME").upper() != "POWERMONITORINGPERIOD":
            raise Denial("IDNV", "no such parameter")
        self._monitoring_period = command.get_keyword("VAL")
        return ()


@dataclass(frozen=True, slots=True)
class Numbering:
    """Conversion between port numbers of the device (inputs from 10001, outputs from 20001) and of the matrix."""

    input_count: int
    output_count: int

    def find_number(self, port: int) -> int:
        """Return the device's number of a port of the matrix.

        >>> Numbering(8, 8).find_number(1), Numbering(8, 8).find_number(9)
        (10001, 20001)
        """
        return INPUT_BASE + port if port <= self.input_count else OUTPUT_BASE + port - self.input_count

    def find_port(self, number: int) -> int:
        """Return the port of the matrix for a device number. Raise `Denial` (IIAC) if there is no such port."""
        if INPUT_BASE < number <= INPUT_BASE + self.input_count:
            return number - INPUT_BASE
        if OUTPUT_BASE < number <= OUTPUT_BASE + self.output_count:
            return number - OUTPUT_BASE + self.input_count
        raise Denial("IIAC", f"there is no port {number}")

    def parse_ports(self, text: str) -> list[int]:
        """Return the ports of the matrix for a list of device numbers and ranges. Raise `Denial` (IIAC) if invalid.

        >>> Numbering(8, 8).parse_ports("10001&10003&20001&&20003")
        [1, 3, 9, 10, 11]
        """
        if not _PORT_LIST.fullmatch(text):
            raise Denial("IIAC", f"{text[:40]!r} is not a list of ports")
        ports: list[int] = []
        for part in re.split(r"(?<!&)&(?!&)", text)[:_MAX_LIST_PORTS]:
            first, _, last = part.partition("&&")
            ports += [self.find_port(number) for number in range(int(first), int(last or first) + 1)]
        return ports


@dataclass(frozen=True, slots=True)
class CircuitEnd:
    """One end of a circuit row: a port with its name and power reading. The default means no port."""

    number: int = 0
    name: str = ""
    power_dbm: float | None = None


@dataclass(frozen=True, slots=True)
class CircuitState:
    """State of a circuit, the cause of this state, and the user who made the circuit."""

    status: str = "single"
    cause: str = "none"
    user: str = ""


def format_circuit_row(
    release: FirmwareRelease, source: CircuitEnd, output: CircuitEnd, state: CircuitState
) -> str:
    """Return a row of `RTRV-CRS-FIBER` for a circuit, or for a port without a circuit.

    >>> format_circuit_row("2005", CircuitEnd(10001, "", -49.162), CircuitEnd(), CircuitState()).partition(
    ...     ",CONNID="
    ... )[2]
    '0,CONNSTATE=single,CONNCAUSE=none,INPWR=-49.162,OUTPWR=0.000,PWRLOSS=0.000,CONNLOCK=0,CONNLOCKUSER='
    """
    loss_db = (
        None if source.power_dbm is None or output.power_dbm is None else source.power_dbm - output.power_dbm
    )
    powers = (
        format_power(release, source.power_dbm),
        format_power(release, output.power_dbm),
        format_power(release, loss_db),
    )
    if release == "2005":
        return (
            f"GGN:IPORTID={source.number},IPORTNAME={source.name},OPORTID={output.number},OPORTNAME={output.name},"
            f"CONNID=0,CONNSTATE={state.status},CONNCAUSE={state.cause},INPWR={powers[0]},OUTPWR={powers[1]},"
            f"PWRLOSS={powers[2]},CONNLOCK=0,CONNLOCKUSER={state.user}"
        )
    name = source.name if source.number and output.number else ""
    return (
        f"GGN:{_format_circuit_end('I', source, powers[0])},{_format_circuit_end('O', output, powers[1])},"
        f"SIGBAND=1550,PWRLOSS={powers[2]},"
        f"CONNID=0,CONNNAME={name},CONNSTATE={state.status},CONNCAUSE={state.cause},"
        f"CONNLOCK=0,CONNLOCKUSER={state.user}"
    )


def _format_circuit_end(side: str, end: CircuitEnd, power: str) -> str:
    group = "OpenGroup" if end.number else ""
    return (
        f"{side}PORTID={end.number},{side}PORTGROUP={group},{side}PORTNAME={end.name},{side}PORTCOMMENT=,"
        f"{'IN' if side == 'I' else 'OUT'}PWR={power}"
    )


def format_power(release: FirmwareRelease, dbm: float | None) -> str:
    """Return the text of a power reading in dBm, or the text for a missing port (None).

    >>> format_power("2016", -12.05), format_power("2016", None), format_power("2005", None)
    ('-12.05', 'NA', '0.000')
    """
    if release == "2005":
        return f"{dbm or 0:.3f}"
    return "NA" if dbm is None else f"{dbm:.2f}"


def format_port_row(release: FirmwareRelease, number: int, name: str, health: str) -> str:
    """Return a row of `RTRV-CFG-FIBER`.

    >>> format_port_row("2005", 10064, "from stack #4", "good")
    'GGN:PORTID=10064,PORTNAME=from stack #4,PORTDIR=input,PORTHEALTH=good,PORTCAT=nor,PORTPRIV=0x1'
    """
    is_input = number < OUTPUT_BASE
    if release == "2005":
        side = "input" if is_input else "output"
        return (
            f"GGN:PORTID={number},PORTNAME={name},PORTDIR={side},PORTHEALTH={health},PORTCAT=nor,PORTPRIV=0x1"
        )
    return (
        f"GGN:PORTID={number},PORTGROUP=OpenGroup,PORTNAME={name},SIGBAND=1550,SIGTHRESH=1550,"
        f"PORTHEALTH={health},PORTCAT=nor,PORTCOMMENT=,STMINSEV=DI,STMAXSEV=DI{'' if is_input else ',CSFLTSEV=CR'}"
    )


def compute_noise_dbm(number: int) -> float:
    """Return the power reading of a dark port in dBm. It depends on the port, from -49.0 to -52.9, as in captures."""
    return -49.0 - number * 7 % 40 / 10
