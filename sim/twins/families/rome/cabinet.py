"""The cabinet that the command line controls: port names, matrices, the request queue, and unsolicited messages.

Ports have the numbers of the simulator (inputs 1..N, outputs N+1..N+M). `Cabinet.format_name` converts a number to an E
or W port, and `Cabinet.find_port` converts back. With two matrices, A has the first half of the ports and B the rest.
No circuit joins A and B.

A logical port is a group of E and W ports with a common name. Public captures show these schemes, here for matrices of
128 ports:

    AB  A1 is E1 and W1; B129 is E129 and W129, the first ports of matrix B
    Q   Q1 is E1, E2, W1 and W2 of each matrix: a cable of several fibres
    P   P1 is E1 and W1 of each matrix: half of such a cable; the other half is in a second cabinet
    numbers  3 is E3 and W3: an AFM
    XY  Y1 is E1 and W129, X1 is E129 and W1: one end of a duplex circuit in each matrix

A request with two logical names makes circuits in both directions in every matrix. Of several fibres, the first E port
is connected to the last W port.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sim.twins.frontends.cli import CommandError
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import MatrixRefusal, Pair
from sim.twins.switch.robot import Event, Job, JobKind, Robot

NamingScheme = Literal["AB", "Q", "P", "XY", "numbers"]

_CLOCK_START = datetime(2026, 1, 1)  # noqa: DTZ001 - devices show local time without a zone
_NAME_PATTERN = re.compile(r"(?P<side>[EW])(?P<number>\d{1,9})", re.ASCII)
_OPERATION_BY_KIND = {"connect": "CONNECTING", "disconnect": "DISCONNECTING"}


@dataclass(frozen=True, slots=True)
class CabinetPort:
    """An E or W port: simulator port, side, number in the device, matrix letter, and number in the matrix."""

    port: int
    side: str
    number: int
    matrix_letter: str
    number_in_matrix: int


def format_logical_name(naming_scheme: NamingScheme, cabinet_port: CabinetPort) -> str:
    """Return the logical name of a port.

    >>> (
    ...     format_logical_name("XY", CabinetPort(129, "E", 129, "B", 1)),
    ...     format_logical_name("Q", CabinetPort(5, "E", 5, "A", 5)),
    ... )
    ('X1', 'Q3')
    """
    if naming_scheme == "numbers":
        return str(cabinet_port.number)
    if naming_scheme == "AB":
        return f"{cabinet_port.matrix_letter}{cabinet_port.number}"
    if naming_scheme == "Q":
        return f"Q{(cabinet_port.number_in_matrix + 1) // 2}"
    if naming_scheme == "P":
        return f"P{cabinet_port.number_in_matrix}"
    axis = "Y" if (cabinet_port.side == "E") == (cabinet_port.matrix_letter == "A") else "X"
    return f"{axis}{cabinet_port.number_in_matrix}"


def list_circuits(
    first_ports: Iterable[CabinetPort], second_ports: Iterable[CabinetPort]
) -> list[tuple[int, int]]:
    """Return the circuits from `first_ports` to `second_ports`, then those back; none without a common matrix."""
    sources, targets = list(first_ports), list(second_ports)
    return [*_list_one_way(sources, targets), *_list_one_way(targets, sources)]


def _list_one_way(sources: list[CabinetPort], targets: list[CabinetPort]) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for matrix_letter in sorted({cabinet_port.matrix_letter for cabinet_port in sources}):
        east_ports = [
            cabinet_port.port
            for cabinet_port in sources
            if (cabinet_port.side, cabinet_port.matrix_letter) == ("E", matrix_letter)
        ]
        west_ports = [
            cabinet_port.port
            for cabinet_port in targets
            if (cabinet_port.side, cabinet_port.matrix_letter) == ("W", matrix_letter)
        ]
        pairs += zip(east_ports, reversed(west_ports), strict=False)
    return pairs


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Behaviour that published documents leave open.

    With `announces_jam`, all sessions get a message about a jam. With `validates_at_once`, an impossible request is
    refused before it is queued. `logical_scheme` is the scheme of logical names. With `removes_both_ways`, a move that
    removes one direction of a two-way circuit also removes the other.
    """

    matrix_count: int
    announces_jam: bool
    validates_at_once: bool
    logical_scheme: NamingScheme = "AB"
    removes_both_ways: bool = False


@dataclass(frozen=True, slots=True)
class CircuitRequest:
    """A request as the user typed it. `job_numbers` are its job numbers, and `number` is the first of them."""

    number: int
    port1: str
    port2: str
    job_numbers: tuple[int, ...]

    @property
    def is_logical(self) -> bool:
        """True if the request names logical ports."""
        return self.port1[0].upper() not in "EW"


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One row of the queue: the first queued job of a request, its port names, and whether the arm executes it."""

    job: Job
    port_names: tuple[str, str]
    is_running: bool


class Cabinet:
    """A cabinet with one arm. `announce` prints lines to all sessions."""

    def __init__(
        self, device: SwitchDevice, robot: Robot, behaviour: Behaviour, announce: Callable[..., None]
    ) -> None:
        self.device = device
        self.robot = robot
        self.creation_times: dict[Pair, str] = {}
        self._behaviour = behaviour
        self._announce = announce
        self._started_jobs: set[int] = set()
        self._requests: dict[int, CircuitRequest] = {}  # by job number, for unfinished jobs
        self._announced_requests: set[int] = set()
        self._failed_requests: set[int] = set()
        self._cabinet_ports = {port: self._make_cabinet_port(port) for port in device.matrix.ports}
        self._cabinet_ports_by_logical_name: dict[str, list[CabinetPort]] = {}
        for place in self._cabinet_ports.values():
            self._cabinet_ports_by_logical_name.setdefault(
                format_logical_name(behaviour.logical_scheme, place), []
            ).append(place)
        device.add_listener(self._note_change)
        robot.add_listener(self._report_event)

    # -- names

    @property
    def local_time_text(self) -> str:
        """Current date and time, as the device prints them."""
        return (_CLOCK_START + timedelta(seconds=self.device.clock.now())).strftime("%m-%d-%Y %H:%M")

    @property
    def port_counts(self) -> tuple[int, int]:
        """Numbers of E ports and of W ports."""
        return self.device.matrix.input_count, self.device.matrix.output_count

    @property
    def port_counts_by_matrix(self) -> dict[str, tuple[int, int]]:
        """Numbers of E and W ports of each matrix, by its letter."""
        east, west = self.port_counts
        if self._behaviour.matrix_count == 1:
            return {"A": (east, west)}
        return {"A": (east // 2, west // 2), "B": (east - east // 2, west - west // 2)}

    def format_name(self, port: int) -> str:
        """Return the name of a port, such as `E12`."""
        east = self.port_counts[0]
        return f"E{port}" if port <= east else f"W{port - east}"

    def get_matrix_letter(self, port: int) -> str:
        """Return the letter of a port's matrix."""
        return self._cabinet_ports[port].matrix_letter

    def format_location(self, port: int) -> str:
        """Return the place of a port, such as `1AE12`: unit, matrix, side, and number within the matrix."""
        cabinet_port = self._cabinet_ports[port]
        return f"1{cabinet_port.matrix_letter}{cabinet_port.side}{cabinet_port.number_in_matrix}"

    def _make_cabinet_port(self, port: int) -> CabinetPort:
        side, number = self.format_name(port)[0], int(self.format_name(port)[1:])
        first_matrix_size = self.port_counts_by_matrix["A"]["EW".index(side)]
        matrix_letter, number_in_matrix = (
            ("A", number) if number <= first_matrix_size else ("B", number - first_matrix_size)
        )
        return CabinetPort(port, side, number, matrix_letter, number_in_matrix)

    def find_logical_name(self, port: int) -> str:
        """Return the logical name of a port."""
        return format_logical_name(self._behaviour.logical_scheme, self._cabinet_ports[port])

    @property
    def logical_port_count(self) -> int:
        """Number of logical ports of an AFM, which have an E and a W port each."""
        return min(self.port_counts)

    def format_full_name(self, port: int) -> str:
        """Return the name and place of a port, as in messages: `E12[1AE12]`."""
        return f"{self.format_name(port)}[{self.format_location(port)}]"

    def find_port(self, name: str) -> int:
        """Return the port with a name. Raise `CommandError` if it does not exist."""
        match = _NAME_PATTERN.fullmatch(name)
        port_counts = dict(zip("EW", self.port_counts, strict=True))
        if match is None or not 1 <= int(match["number"]) <= port_counts[match["side"]]:
            raise CommandError(f"Error: no port {name}")
        return int(match["number"]) + (self.port_counts[0] if match["side"] == "W" else 0)

    def find_pairs(self, port_name1: str, port_name2: str) -> list[Pair]:
        """Return the circuits between two names: one between an E and a W port, several between logical ports.

        Raise `CommandError` for an unknown name, ports of the same side, or ports without a common matrix.
        """
        if port_name1[0] not in "EW" or port_name2[0] not in "EW":
            pairs = list_circuits(self._find_logical_port(port_name1), self._find_logical_port(port_name2))
        elif port_name1[0] == port_name2[0]:
            raise CommandError("Error: ports are on the same side")
        else:
            east, west = sorted((port_name1, port_name2))
            pairs = [(self.find_port(east), self.find_port(west))]
        if not pairs or any(
            self.get_matrix_letter(source) != self.get_matrix_letter(output) for source, output in pairs
        ):
            raise CommandError("Ports are not of the same matrix")
        return pairs

    def _find_logical_port(self, name: str) -> list[CabinetPort]:
        """Return the E and W ports of a logical name. Raise `CommandError` if it does not exist."""
        if name not in self._cabinet_ports_by_logical_name:
            raise CommandError(f"Error: no port {name}")
        return self._cabinet_ports_by_logical_name[name]

    def is_in_process(self, port: int) -> bool:
        """Return True if the arm is moving a fibre of a port."""
        running_job = self.robot.running_job
        return running_job is not None and port in running_job.pair

    # -- commands

    def submit_request(self, kind: JobKind, port_name1: str, port_name2: str, user: str) -> str:
        """Submit a request to the robot, and return the device's answer. Raise `CommandError` for invalid ports.

        With `validates_at_once`, an impossible request is not submitted: announce it, and return an empty answer.
        """
        pairs = self.find_pairs(port_name1.upper(), port_name2.upper())
        if self._behaviour.validates_at_once:
            for pair in pairs:
                if not self._is_valid(kind, pair):
                    self._report_invalid(kind, pair, (port_name1, port_name2) if len(pairs) == 1 else None)
                    return ""
        jobs = [self.robot.submit_job(kind, pair, user=user, source="CLI") for pair in pairs]
        request = CircuitRequest(jobs[0].number, port_name1, port_name2, tuple(job.number for job in jobs))
        self._requests.update(dict.fromkeys(request.job_numbers, request))
        return f"OK - request added to pending queue ({port_name1.upper()}-{port_name2.upper()})"

    def list_entries(self) -> list[QueueEntry]:
        """Return the queue, with one entry for each request. A request may have several moves."""
        entries: dict[int, QueueEntry] = {}
        for job in self.robot.queue:
            request = self._requests.get(job.number)
            source, output = job.pair
            names = (self.format_name(source), self.format_name(output))
            if request is not None and request.is_logical:
                names = request.port1.upper(), request.port2.upper()
            number = job.number if request is None else request.number
            entries.setdefault(number, QueueEntry(job, names, job.state != "queued"))
        return list(entries.values())

    def _is_valid(self, kind: JobKind, pair: Pair) -> bool:
        """Return False if the matrix would refuse a move now. With jobs in the queue, return True without a check."""
        if self.robot.queue:
            return True
        matrix = self.device.matrix
        try:
            if kind == "connect":
                matrix.plan_connections([pair[0]], [pair[1]])
            else:
                matrix.plan_removal([pair[0]], [pair[1]])
        except MatrixRefusal:
            return False
        return True

    # -- unsolicited messages

    def _report_event(self, event: Event, job: Job | None) -> None:
        if job is not None:
            self._report_job(event, job)
        elif event == "homing":
            self._announce(f"{self.local_time_text} RECOVERY STARTED")
        elif event == "homed":
            self._announce("RECOVERY FINISHED SUCCESSFULLY")

    def _report_job(self, event: Event, job: Job) -> None:
        if event == "running":
            self._started_jobs.add(job.number)
            self._report_start(job)
        elif event == "jammed" and self._behaviour.announces_jam:
            self._announce(f"{self.local_time_text} Multiple Cross Connect Severe Failure")
        elif event in {"done", "skipped", "failed"}:
            request = self._requests.get(job.number)
            if event == "skipped" and request is not None and request.is_logical:
                self._report_start(job)
            if event == "done" and job.kind == "disconnect" and self._behaviour.removes_both_ways:
                circuit_pairs = self.find_pairs(
                    self.find_logical_name(job.pair[0]), self.find_logical_name(job.pair[1])
                )
                remaining_pairs = set(self.device.matrix.connections.items()) - set(circuit_pairs)
                self.device.change_connections(dict(sorted(remaining_pairs)))
            self._report_end(event, job)
            if request is not None:
                self._finish_move(event, job, request)

    def _report_start(self, job: Job) -> None:
        """Announce the start of a request, but only once for all its moves."""
        request = self._requests.get(job.number)
        number = job.number if request is None else request.number
        if number not in self._announced_requests:
            self._announce(f"{self.local_time_text} {_OPERATION_BY_KIND[job.kind]}...")
        if request is not None:
            self._announced_requests.add(number)

    def _finish_move(self, event: Event, job: Job, request: CircuitRequest) -> None:
        """Record the end of a move. Announce completion after the last move of a request for logical ports."""
        del self._requests[job.number]
        if event == "failed":
            self._failed_requests.add(request.number)
        if any(number in self._requests for number in request.job_numbers):
            return
        if request.is_logical and job.kind == "connect" and request.number not in self._failed_requests:
            request_text = f"{request.port1.upper()}<->{request.port2.upper()}"
            self._announce(f"{self.local_time_text} Connection {request_text} completed successfully")
        self._announced_requests.discard(request.number)
        self._failed_requests.discard(request.number)

    def _report_end(self, event: Event, job: Job) -> None:
        if event == "failed" and job.number not in self._started_jobs:
            request = self._requests.get(job.number)
            typed_names = (
                (request.port1, request.port2) if request is not None and not request.is_logical else None
            )
            self._report_invalid(job.kind, job.pair, typed_names)
            return
        self._started_jobs.discard(job.number)
        outcome = {"done": "SUCCEEDED", "skipped": "SKIPPED(already done)"}.get(event, "FAILED")
        source, output = job.pair
        self._announce(
            f"{self.local_time_text} CONNECTION OPERATION {outcome}:"
            f"{self.format_full_name(source)}<->{self.format_full_name(output)} OP:{job.kind}"
        )

    def _report_invalid(self, kind: JobKind, pair: Pair, typed_names: tuple[str, str] | None) -> None:
        """Announce that a request is invalid. Use the port names as `typed_names`, or the names of the pair if None."""
        source, output = pair
        names = "-".join(typed_names or (self.format_name(source), self.format_name(output)))
        self._announce(
            f"{self.local_time_text} ",
            "Ports details:",
            f"[{self.format_full_name(source)}] [{self.format_full_name(output)}]",
            f"{self.local_time_text} OPERATION VALIDATION FAILED:{names} requestType={kind}",
        )

    def _note_change(self, change: Change) -> None:
        for pair in change.removed_pairs:
            self.creation_times.pop(pair, None)
        for pair in change.added_pairs:
            self.creation_times[pair] = self.local_time_text
