"""The cabinet behind the command line: port names, matrices, the request queue, and unsolicited messages.

Ports are numbered as in the simulator (inputs 1..N, outputs N+1..N+M); `name` and `port` convert to E and W ports.
With two matrices, the first half of the ports is in A and the rest in B, without connections between them.

A logical port is a group of E and W ports with a common name. The schemes are those of public captures, shown here for
matrices of 128 ports:

    AB  A1 is E1 and W1; B129 is E129 and W129, the first ports of matrix B
    Q   Q1 is E1, E2, W1 and W2 of each matrix: a cable of several fibres
    P   P1 is E1 and W1 of each matrix: half of such a cable; the other half is in a second cabinet
    numbers  3 is E3 and W3: an AFM
    XY  Y1 is E1 and W129, X1 is E129 and W1: one end of a duplex circuit in each matrix

A request with two logical names makes circuits in both directions in every matrix; among several fibres, the first
is connected to the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sim.twins.frontends.cli import CommandError
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import Pair, Refused
from sim.twins.switch.robot import Event, Job, Kind, Robot

Scheme = Literal["AB", "Q", "P", "XY", "numbers"]

_START = datetime(2026, 1, 1)  # noqa: DTZ001 - devices show local time without a zone
_NAME = re.compile(r"(?P<side>[EW])(?P<number>\d{1,9})", re.ASCII)
_OPERATION = {"connect": "CONNECTING", "disconnect": "DISCONNECTING"}


@dataclass(frozen=True, slots=True)
class Place:
    """An E or W port: simulator port, side, number in the device, matrix letter, and number within the matrix."""

    port: int
    side: str
    number: int
    matrix: str
    within: int


def logical_name(scheme: Scheme, place: Place) -> str:
    """Return the logical name of a port.

    >>> logical_name("XY", Place(129, "E", 129, "B", 1)), logical_name("Q", Place(5, "E", 5, "A", 5))
    ('X1', 'Q3')
    """
    if scheme == "numbers":
        return str(place.number)
    if scheme == "AB":
        return f"{place.matrix}{place.number}"
    if scheme == "Q":
        return f"Q{(place.within + 1) // 2}"
    if scheme == "P":
        return f"P{place.within}"
    return f"{'Y' if (place.side == 'E') == (place.matrix == 'A') else 'X'}{place.within}"


def list_circuits(one: Iterable[Place], other: Iterable[Place]) -> list[tuple[int, int]]:
    """Return the circuits between two logical ports, those from `one` first; empty if they share no matrix."""
    here, there = list(one), list(other)
    return [*_list_one_way(here, there), *_list_one_way(there, here)]


def _list_one_way(here: list[Place], there: list[Place]) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for matrix in sorted({place.matrix for place in here}):
        east = [place.port for place in here if (place.side, place.matrix) == ("E", matrix)]
        west = [place.port for place in there if (place.side, place.matrix) == ("W", matrix)]
        pairs += zip(east, reversed(west), strict=False)
    return pairs


@dataclass(frozen=True, slots=True)
class Quirks:
    """Behaviour that published documents leave open.

    `announces_jam` sends a message to all sessions. `validates_at_once` refuses an impossible request before
    it is queued. `logical` is the scheme of logical names. With `removes_both_ways`, a move that removes one direction
    of a two-way circuit also removes the other.
    """

    matrices: int
    announces_jam: bool
    validates_at_once: bool
    logical: Scheme = "AB"
    removes_both_ways: bool = False


@dataclass(frozen=True, slots=True)
class CircuitRequest:
    """A request as typed. Logical ports need several moves; `number` is the job number of the first."""

    number: int
    one: str
    other: str
    moves: tuple[int, ...]

    @property
    def is_logical(self) -> bool:
        """True if the request names logical ports."""
        return self.one[0].upper() not in "EW"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the queue: the first job of a request, its port names, and whether the arm is executing it."""

    job: Job
    names: tuple[str, str]
    is_running: bool


class Cabinet:
    """A cabinet with one arm; `announce` prints lines to all sessions."""

    def __init__(
        self, device: SwitchDevice, robot: Robot, quirks: Quirks, announce: Callable[..., None]
    ) -> None:
        self.device = device
        self.robot = robot
        self.since: dict[Pair, str] = {}
        self._quirks = quirks
        self._announce = announce
        self._started_jobs: set[int] = set()
        self._requests: dict[int, CircuitRequest] = {}  # by job number, for unfinished jobs
        self._announced_requests: set[int] = set()
        self._failed_requests: set[int] = set()
        self._places = {port: self._place(port) for port in device.matrix.ports}
        self._logical: dict[str, list[Place]] = {}
        for place in self._places.values():
            self._logical.setdefault(logical_name(quirks.logical, place), []).append(place)
        device.listen(self._note_change)
        robot.listen(self._report)

    # -- names

    @property
    def now(self) -> str:
        """Date and time as the device prints them."""
        return (_START + timedelta(seconds=self.device.clock.now())).strftime("%m-%d-%Y %H:%M")

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of E ports and of W ports."""
        return self.device.matrix.inputs, self.device.matrix.outputs

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Numbers of E and W ports of each matrix, by its letter."""
        east, west = self.sizes
        if self._quirks.matrices == 1:
            return {"A": (east, west)}
        return {"A": (east // 2, west // 2), "B": (east - east // 2, west - west // 2)}

    def name(self, port: int) -> str:
        """Return the name of a port, such as `E12`."""
        east = self.sizes[0]
        return f"E{port}" if port <= east else f"W{port - east}"

    def matrix_of(self, port: int) -> str:
        """Return the letter of the matrix that a port is in."""
        return self._places[port].matrix

    def place(self, port: int) -> str:
        """Return the place of a port, such as `1AE12`: unit, matrix, side, and number within the matrix."""
        place = self._places[port]
        return f"1{place.matrix}{place.side}{place.within}"

    def _place(self, port: int) -> Place:
        side, number = self.name(port)[0], int(self.name(port)[1:])
        first = self.matrices["A"]["EW".index(side)]
        matrix, within = ("A", number) if number <= first else ("B", number - first)
        return Place(port, side, number, matrix, within)

    def logical(self, port: int) -> str:
        """Return the logical name of a port."""
        return logical_name(self._quirks.logical, self._places[port])

    @property
    def logical_ports(self) -> int:
        """Number of ports that have both an E and a W port."""
        return min(self.sizes)

    def full_name(self, port: int) -> str:
        """Return name and place of a port as messages show them, such as `E12[1AE12]`."""
        return f"{self.name(port)}[{self.place(port)}]"

    def port(self, name: str) -> int:
        """Return the port with a name. Raise `CommandError` if it does not exist."""
        match = _NAME.fullmatch(name)
        sizes = dict(zip("EW", self.sizes, strict=True))
        if match is None or not 1 <= int(match["number"]) <= sizes[match["side"]]:
            raise CommandError(f"Error: no port {name}")
        return int(match["number"]) + (self.sizes[0] if match["side"] == "W" else 0)

    def pairs(self, one: str, other: str) -> list[Pair]:
        """Return the circuits between two names: one for an E and a W port, several for logical ports.

        Raise `CommandError` for an unknown name, ports of the same side, or ports without a common matrix.
        """
        if one[0] not in "EW" or other[0] not in "EW":
            pairs = list_circuits(self._logical_port(one), self._logical_port(other))
        elif one[0] == other[0]:
            raise CommandError("Error: ports are on the same side")
        else:
            east, west = sorted((one, other))
            pairs = [(self.port(east), self.port(west))]
        if not pairs or any(self.matrix_of(source) != self.matrix_of(output) for source, output in pairs):
            raise CommandError("Ports are not of the same matrix")
        return pairs

    def _logical_port(self, name: str) -> list[Place]:
        """Return the E and W ports of a logical name. Raise `CommandError` if it does not exist."""
        if name not in self._logical:
            raise CommandError(f"Error: no port {name}")
        return self._logical[name]

    def is_in_process(self, port: int) -> bool:
        """Return True if the arm is moving a fibre of a port."""
        running = self.robot.running
        return running is not None and port in running.pair

    # -- commands

    def request(self, kind: Kind, one: str, other: str, user: str) -> str:
        """Submit a request to the robot, and return the device's answer. Raise `CommandError` for invalid ports.

        With `validates_at_once`, announce an impossible request instead, and return an empty answer.
        """
        pairs = self.pairs(one.upper(), other.upper())
        if self._quirks.validates_at_once:
            for pair in pairs:
                if not self._is_valid(kind, pair):
                    self._report_invalid(kind, pair, (one, other) if len(pairs) == 1 else None)
                    return ""
        jobs = [self.robot.submit(kind, pair, user=user, source="CLI") for pair in pairs]
        request = CircuitRequest(jobs[0].number, one, other, tuple(job.number for job in jobs))
        self._requests.update(dict.fromkeys(request.moves, request))
        return f"OK - request added to pending queue ({one.upper()}-{other.upper()})"

    def entries(self) -> list[Entry]:
        """Return the queue with one entry for each request, even if it needs several moves."""
        entries: dict[int, Entry] = {}
        for job in self.robot.queue:
            request = self._requests.get(job.number)
            source, output = job.pair
            names = (self.name(source), self.name(output))
            if request is not None and request.is_logical:
                names = request.one.upper(), request.other.upper()
            number = job.number if request is None else request.number
            entries.setdefault(number, Entry(job, names, job.state != "queued"))
        return list(entries.values())

    def _is_valid(self, kind: Kind, pair: Pair) -> bool:
        """Return False if the queue is empty and the matrix would refuse a move now; otherwise return True."""
        if self.robot.queue:
            return True
        matrix = self.device.matrix
        try:
            if kind == "connect":
                matrix.add([pair[0]], [pair[1]])
            else:
                matrix.without([pair[0]], [pair[1]])
        except Refused:
            return False
        return True

    # -- unsolicited messages

    def _report(self, event: Event, job: Job | None) -> None:
        if job is not None:
            self._report_job(event, job)
        elif event == "homing":
            self._announce(f"{self.now} RECOVERY STARTED")
        elif event == "homed":
            self._announce("RECOVERY FINISHED SUCCESSFULLY")

    def _report_job(self, event: Event, job: Job) -> None:
        if event == "running":
            self._started_jobs.add(job.number)
            self._report_start(job)
        elif event == "jammed" and self._quirks.announces_jam:
            self._announce(f"{self.now} Multiple Cross Connect Severe Failure")
        elif event in {"done", "skipped", "failed"}:
            request = self._requests.get(job.number)
            if event == "skipped" and request is not None and request.is_logical:
                self._report_start(job)
            if event == "done" and job.kind == "disconnect" and self._quirks.removes_both_ways:
                both_ways = self.pairs(self.logical(job.pair[0]), self.logical(job.pair[1]))
                remaining = set(self.device.matrix.connections.items()) - set(both_ways)
                self.device.change(dict(sorted(remaining)))
            self._report_end(event, job)
            if request is not None:
                self._finish_move(event, job, request)

    def _report_start(self, job: Job) -> None:
        """Announce the start of a request, once for all its moves."""
        request = self._requests.get(job.number)
        number = job.number if request is None else request.number
        if number not in self._announced_requests:
            self._announce(f"{self.now} {_OPERATION[job.kind]}...")
        if request is not None:
            self._announced_requests.add(number)

    def _finish_move(self, event: Event, job: Job, request: CircuitRequest) -> None:
        """Note the end of a move; after the last move of a request for logical ports, announce that it is complete."""
        del self._requests[job.number]
        if event == "failed":
            self._failed_requests.add(request.number)
        if any(number in self._requests for number in request.moves):
            return
        if request.is_logical and job.kind == "connect" and request.number not in self._failed_requests:
            names = f"{request.one.upper()}<->{request.other.upper()}"
            self._announce(f"{self.now} Connection {names} completed successfully")
        self._announced_requests.discard(request.number)
        self._failed_requests.discard(request.number)

    def _report_end(self, event: Event, job: Job) -> None:
        if event == "failed" and job.number not in self._started_jobs:
            request = self._requests.get(job.number)
            typed = (request.one, request.other) if request is not None and not request.is_logical else None
            self._report_invalid(job.kind, job.pair, typed)
            return
        self._started_jobs.discard(job.number)
        outcome = {"done": "SUCCEEDED", "skipped": "SKIPPED(already done)"}.get(event, "FAILED")
        source, output = job.pair
        self._announce(
            f"{self.now} CONNECTION OPERATION {outcome}:"
            f"{self.full_name(source)}<->{self.full_name(output)} OP:{job.kind}"
        )

    def _report_invalid(self, kind: Kind, pair: Pair, typed: tuple[str, str] | None) -> None:
        """Announce that a request is invalid, with its port names as typed, if known."""
        source, output = pair
        names = "-".join(typed or (self.name(source), self.name(output)))
        self._announce(
            f"{self.now} ",
            "Ports details:",
            f"[{self.full_name(source)}] [{self.full_name(output)}]",
            f"{self.now} OPERATION VALIDATION FAILED:{names} requestType={kind}",
        )

    def _note_change(self, change: Change) -> None:
        for pair in change.removed:
            self.since.pop(pair, None)
        for pair in change.added:
            self.since[pair] = self.now
