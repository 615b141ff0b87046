"""Output formats of a ROME, which prints states as words, and of an AFM, which prints states as digits.

Captures show all headings, columns and widths, the state `In process` of a ROME, and the tables of logical ports of an
AFM. Assumptions: an AFM shows 6 (attached) while the arm is at a port, and it can print the queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sim.twins.families.rome.cabinet import Cabinet

Product = Literal["ROME", "AFM"]

_ROME_COLUMNS = (16, 12, 11, 13, 7, 14, 8)
_ROME_HEADING = ("Port", "Admin Status", "Oper Status", "Port Status", "Counter", "ConnectedTo", "Logical")
_CIRCUIT_HEADING = (
    ("Port East", "Port West", "Paired", "TimeStamp"),
    ("=========", "=========", "======", "=========="),
)
_QUEUE_COLUMNS = (7, 9, 9, 18, 7, 19)
_QUEUE_HEADING = ("Request", "Port1", "Port2", "Command", "Source", "User")

_AFM_HEADING = """\
Admin Lock state: 1-unlocked     2-locked
Oper state:       1-disconnected 2-connected 6-attached
HW Admin state:   1-enabled      2-disabled
Port role:        1-connections  2-loopback  3-test bus  4-pass through  5-link
OMB: Out of matrix bound
================================================================================
Port  Admin  Oper   HW Adm  Paired  Connected-port  Port  Connection  Port
ID    Lock   state  state   Port     ID   Name      role  counter     Name
================================================================================"""

_LOGIC_HEADING = (
    """\
Port                          Port                          Customer            Customer      \
Disabled/Enabled      locked/unlocked
 A                             B                               A                   B
"""
    + "=" * 141
)
_LOGIC_TABLE_HEADING = (
    """\
Customer        Logical             Side         TX     RX
Name              Name                           Port   Port
"""
    + "=" * 65
)

SPARE_EAST, SPARE_WEST_COUNT = 2, 4
"""Numbers of E and W places without a name in each matrix, from captures of a ROME500."""


@dataclass(frozen=True, slots=True)
class Printer:
    """Output formats of one device.

    With `shows_spares`, tables contain places without a name. With `shows_locations`, the first column shows the place
    of a port and the last column its name, as in other releases. `paired_state` is the state of paired ports that
    `show board` prints (AFM). With `always_recommends_homing`, the queue recommends a homing run whenever a command is
    in process.
    """

    product: Product
    shows_spares: bool = False
    shows_locations: bool = False
    always_recommends_homing: bool = False
    paired_state: str = "Enabled"

    # -- the board

    def format_board(self, cabinet: Cabinet, name: str) -> str:
        """Return the text of `show board`: the identity and state of the device."""
        product, is_rome = self.product, self.product == "ROME"
        enabled_text = "enabled" if cabinet.robot.is_enabled else "disabled"
        lines = [
            "CURR SW VERSION  creationDate(Jan 01 2026, 00:00:00) SIMULATED",
            f"{product} STATUS".ljust(17) + "adminStatus(enabled) operStatus(enable"
            f"{'d' if is_rome else ''}) alarmState({'Major' if cabinet.robot.is_jammed else 'Cleared'})",
            f"{product} STATE".ljust(17) + "OPER",
            f"{product} NAME".ljust(17) + name,
            f"{product} TYPE".ljust(17) + ("ROME500" if is_rome else "2"),
            "RTOS             VxWorks (6.8)",
            "BOARD            ver(LCU-100) rev(3) S/N(SIM0-0000-0000)",
            "MATRIX SIZE:",
            *self._format_sizes(cabinet),
            "IP               IP addr(127.0.0.1) subnet(255.0.0.0/0xff000000)",
            f"ACTIVE SW VER    {'1.10.2.10' if is_rome else '1.6.2.1'}",
            f"UP TIME          total {cabinet.device.clock.now():.0f} seconds",
            "Recovery         recovery was done",
            f"CONNECTIONS      {'connection execution is' if is_rome else 'connections are'} {enabled_text}",
            *([] if is_rome else [f"PAIRED PORT      {self.paired_state}"]),
            f"OPERATION COUNT  {sum(cabinet.device.move_count_by_port.values()) // 2}",
            "AUTHENTICATION   local",
        ]
        return "\n".join(lines)

    def _format_sizes(self, cabinet: Cabinet) -> list[str]:
        indent = " " * 17
        if self.product == "AFM":
            east, west = cabinet.port_counts
            return [
                f"{indent}MIN_PORT_{side} 1  MAX_PORT_{side} {highest_port}"
                for side, highest_port in (("EAST", east), ("WEST", west))
            ]
        spare_east, spare_west = self._count_spares()
        return [
            f"{indent}Matrix {matrix_letter}: Male/West 1..{west + spare_west}, Female/East 1..{east + spare_east}"
            for matrix_letter, (east, west) in cabinet.port_counts_by_matrix.items()
        ]

    def _count_spares(self) -> tuple[int, int]:
        return (SPARE_EAST, SPARE_WEST_COUNT) if self.shows_spares else (0, 0)

    # -- ports

    def format_ports(self, cabinet: Cabinet) -> str:
        """Return the table of all ports, E before W."""
        if self.product == "AFM":
            rows = [self._format_afm_row(cabinet, port) for port in cabinet.device.matrix.ports]
            return "\n".join([_AFM_HEADING, *rows])
        rule = _format_columns(tuple("=" * width for width in _ROME_COLUMNS), _ROME_COLUMNS)
        rows = [
            row
            for side in "EW"
            for matrix in cabinet.port_counts_by_matrix
            for row in self._format_side(cabinet, side, matrix)
        ]
        return "\n".join([rule, _format_columns(_ROME_HEADING, _ROME_COLUMNS), rule, *rows])

    def _format_side(self, cabinet: Cabinet, side: str, matrix_letter: str) -> list[str]:
        """Return the rows of one side of a matrix, with its spare places."""
        ports = [
            port
            for port in cabinet.device.matrix.ports
            if cabinet.format_name(port)[0] == side and cabinet.get_matrix_letter(port) == matrix_letter
        ]
        spare_count = self._count_spares()["EW".index(side)]
        return [self._format_rome_row(cabinet, port) for port in ports] + [
            _format_columns(
                (
                    f"1{matrix_letter}{side}{len(ports) + extra}",
                    "Unlocked",
                    "Enabled",
                    "Disconnected",
                    "0",
                    "",
                    "",
                ),
                _ROME_COLUMNS,
            )
            for extra in range(1, spare_count + 1)
        ]

    def _format_rome_row(self, cabinet: Cabinet, port: int) -> str:
        matrix = cabinet.device.matrix
        peer = matrix.find_peer(port)
        state = "Disconnected" if peer is None else "Connected"
        logical_name = cabinet.find_logical_name(port)
        return _format_columns(
            (
                cabinet.format_location(port) if self.shows_locations else cabinet.format_full_name(port),
                "Locked" if port in matrix.locked_ports else "Unlocked",
                "Disabled" if port in matrix.disabled_ports else "Enabled",
                "In process" if cabinet.is_in_process(port) else state,
                str(cabinet.device.move_count_by_port[port]),
                "" if peer is None else cabinet.format_full_name(peer),
                f"{cabinet.format_name(port)},{logical_name}" if self.shows_locations else logical_name,
            ),
            _ROME_COLUMNS,
        )

    def _format_afm_row(self, cabinet: Cabinet, port: int) -> str:
        matrix, name = cabinet.device.matrix, cabinet.format_name(port)
        peer = matrix.find_peer(port)
        state = 6 if cabinet.is_in_process(port) else 1 if peer is None else 2
        paired_name = ("w" if name[0] == "E" else "e") + name[1:]
        return (
            f"{name:<8}{2 if port in matrix.locked_ports else 1:<7}{state:<7}"
            f"{2 if port in matrix.disabled_ports else 1:<7}"
            f"{paired_name:<8}{'' if peer is None else cabinet.format_name(peer):<17}1      "
            f"{cabinet.device.move_count_by_port[port]}"
        )

    # -- logical ports of an AFM: an E and a W port of the same number

    def format_logic_table(self, cabinet: Cabinet) -> str:
        """Return the table of logical ports with their transmit and receive fibres."""
        highest_port = cabinet.logical_port_count
        rows = [
            f"{'customer':<16}{number:<16}{_format_half(number, highest_port):<16}e{number:<6}w{number}"
            for number in range(1, highest_port + 1)
        ]
        return "\n".join([_LOGIC_TABLE_HEADING, *rows])

    def format_logic(self, cabinet: Cabinet) -> str:
        """Return the table of logical ports with their peers and states."""
        rows = [
            self._format_logic_row(cabinet, number) for number in range(1, cabinet.logical_port_count + 1)
        ]
        return "\n".join([_LOGIC_HEADING, *rows])

    def _format_logic_row(self, cabinet: Cabinet, number: int) -> str:
        matrix = cabinet.device.matrix
        ports = (cabinet.find_port(f"E{number}"), cabinet.find_port(f"W{number}"))
        peers = {cabinet.format_name(peer)[1:] for peer in map(matrix.find_peer, ports) if peer is not None}
        peer = "/".join(sorted(peers, key=int))
        is_locked, is_disabled = matrix.locked_ports & set(ports), matrix.disabled_ports & set(ports)
        return (
            f"{number:<30}{peer:<30}{number:<20}{peer:<20}{'Disabled' if is_disabled else 'Enabled':<20}"
            f"{'Locked' if is_locked else 'Unlocked'}"
        )

    # -- circuits and the queue

    def format_circuits(self, cabinet: Cabinet) -> str:
        """Return the table of circuits with the time at which each was made.

        The vendor's client skips three heading lines and one line after the last row (ROME).
        """
        circuits = [
            (
                cabinet.format_name(source),
                cabinet.format_name(output),
                f"w{cabinet.format_name(source)[1:]}",
                cabinet.creation_times.get((source, output), cabinet.local_time_text),
            )
            for source, output in sorted(cabinet.device.matrix.connections.items())
        ]
        if self.product == "AFM":  # in captures, its columns are not aligned with the headings
            headings = [_format_circuit(row, (29, 31, 13)) for row in _CIRCUIT_HEADING]
            return "\n".join([*headings, *(_format_circuit(row, (30, 32, 10)) for row in circuits)])
        heading, rule, *rows = (_format_circuit(row, (30, 32, 14)) for row in (*_CIRCUIT_HEADING, *circuits))
        return "\n".join([rule, heading, rule, *rows, "\n"])

    def format_queue(self, cabinet: Cabinet) -> str:
        """Return the text of the queue: the current request, then the waiting requests."""
        entries = cabinet.list_entries()
        running_entry = next((entry for entry in entries if entry.is_running), None)
        recommends_homing = cabinet.robot.is_jammed or (
            self.always_recommends_homing and running_entry is not None
        )
        enabled_text = "enabled" if cabinet.robot.is_enabled else "disabled"
        status = "delayed due to command in process" if recommends_homing else enabled_text
        lines = [f"Connection execution status: {status}"]
        lines += [" " * 29 + 'Perform "homing run"'] if recommends_homing else []
        if running_entry is None:
            lines += ["", "no request in process", ""]
        else:
            request_text = "-".join(running_entry.port_names)
            lines += [
                "",
                "Command in process:",
                f"{running_entry.job.kind}, ports: {request_text}, status: in process with payload",
                "",
            ]
        rule = _format_columns(tuple("=" * width for width in _QUEUE_COLUMNS), _QUEUE_COLUMNS)
        lines += [rule, _format_columns(_QUEUE_HEADING, _QUEUE_COLUMNS), rule]
        for entry in entries:
            job = entry.job
            if not entry.is_running:
                row = (str(job.number), *entry.port_names, job.kind, job.source, job.user)
                lines.append(_format_columns(row, _QUEUE_COLUMNS))
        return "\n".join([*lines, ""])


def _format_columns(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def _format_circuit(cells: tuple[str, ...], widths: tuple[int, int, int]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, (*widths, 0), strict=True)).rstrip()


def _format_half(number: int, highest_port: int) -> str:
    """Return the first and last logical port of the half of the cabinet that contains port `number`.

    >>> _format_half(90, 180), _format_half(91, 180)
    ('1_90', '91_180')
    """
    half_count = -(-highest_port // 2)
    return f"1_{half_count}" if number <= half_count else f"{half_count + 1}_{highest_port}"
