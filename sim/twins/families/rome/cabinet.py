"""The cabinet behind the command line: its ports by name, its matrices, one arm, and what it says unasked.

Ports here are the simulator's own (inputs 1..N, outputs N+1..N+M); `name` and `port` translate to E and W ports.
A cabinet of two matrices has the first half of its ports in A and the rest in B, and no way from one to the other.

Logical ports are the E and W ports that go by one name. The schemes are those of public captures, here with matrices
of 128 ports:

    AB  A1 is E1 and W1; B129 is E129 and W129, the first ports of matrix B
    Q   Q1 is E1, E2, W1 and W2 of each matrix: a cable of several fibres
    P   P1 is E1 and W1 of each matrix: half of such a cable, the other half of which is in a second cabinet
    numbers  3 is E3 and W3: an AFM
    XY  Y1 is E1 and W129, X1 is E129 and W1: one end of a duplex circuit in each matrix

Two names ask for circuits both ways in every matrix, and of several fibres the first goes to the last.
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

_BEGINNING = datetime(2026, 1, 1)  # noqa: DTZ001 - devices show local time, and this is nobody's
_NAME = re.compile(r"(?P<side>[EW])(?P<number>\d{1,9})", re.ASCII)
_OPERATION = {"connect": "CONNECTING", "disconnect": "DISCONNECTING"}


@dataclass(frozen=True, slots=True)
class Place:
    """One E or W port: its number in the device, the letter of its matrix, its number within that."""

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


def circuits_between(one: Iterable[Place], other: Iterable[Place]) -> list[tuple[int, int]]:
    """Return the circuits of two logical ports, those from `one` first; empty where they have no matrix in common."""
    here, there = list(one), list(other)
    return [*_one_way(here, there), *_one_way(there, here)]


def _one_way(here: list[Place], there: list[Place]) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for matrix in sorted({place.matrix for place in here}):
        east = [place.port for place in here if (place.side, place.matrix) == ("E", matrix)]
        west = [place.port for place in there if (place.side, place.matrix) == ("W", matrix)]
        pairs += zip(east, reversed(west), strict=False)
    return pairs


@dataclass(frozen=True, slots=True)
class Quirks:
    """Behaviour that the published material leaves open.

    `announces_jam` in words, `validates_at_once` before queueing. `logical` is how ports are named in common.
    `removes_both_ways`: the move that removes one direction of a two-way circuit removes the other as well.
    """

    matrices: int
    announces_jam: bool
    validates_at_once: bool
    logical: Scheme = "AB"
    removes_both_ways: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as somebody typed it; two logical ports take several moves. `number` is that of the first."""

    number: int
    one: str
    other: str
    moves: tuple[int, ...]

    @property
    def is_logical(self) -> bool:
        """True if it names logical ports."""
        return self.one[0].upper() not in "EW"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the queue: a request with its names, and True if the arm is at it."""

    job: Job
    names: tuple[str, str]
    is_running: bool


class Cabinet:
    """One cabinet with one arm; `say` shows lines to everybody."""

    def __init__(self, device: SwitchDevice, robot: Robot, quirks: Quirks, say: Callable[..., None]) -> None:
        self.device = device
        self.robot = robot
        self.since: dict[Pair, str] = {}
        self._quirks = quirks
        self._say = say
        self._ran: set[int] = set()
        self._asked: dict[int, Asked] = {}  # by the numbers of its moves that are not over
        self._begun: set[int] = set()
        self._failed: set[int] = set()
        self._places = {port: self._place(port) for port in device.matrix.ports}
        self._logical: dict[str, list[Place]] = {}
        for place in self._places.values():
            self._logical.setdefault(logical_name(quirks.logical, place), []).append(place)
        device.listen(self._note_change)
        robot.listen(self._report)

    # -- names

    @property
    def now(self) -> str:
        """The date and time that the device prints."""
        return (_BEGINNING + timedelta(seconds=self.device.clock.now())).strftime("%m-%d-%Y %H:%M")

    @property
    def sizes(self) -> tuple[int, int]:
        """E ports and W ports."""
        return self.device.matrix.inputs, self.device.matrix.outputs

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """E and W ports of each matrix by its letter."""
        east, west = self.sizes
        if self._quirks.matrices == 1:
            return {"A": (east, west)}
        return {"A": (east // 2, west // 2), "B": (east - east // 2, west - west // 2)}

    def name(self, port: int) -> str:
        """Return the name of a port."""
        east = self.sizes[0]
        return f"E{port}" if port <= east else f"W{port - east}"

    def matrix_of(self, port: int) -> str:
        """Return the letter of the matrix that a port is in."""
        return self._places[port].matrix

    def place(self, port: int) -> str:
        """Return the place of a port: unit, matrix, side, and its number within the matrix."""
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

    def full(self, port: int) -> str:
        """Name and place, as messages show them."""
        return f"{self.name(port)}[{self.place(port)}]"

    def port(self, name: str) -> int:
        """Return the port of a name. Raises `CommandError`."""
        match = _NAME.fullmatch(name)
        sizes = dict(zip("EW", self.sizes, strict=True))
        if match is None or not 1 <= int(match["number"]) <= sizes[match["side"]]:
            raise CommandError(f"Error: no port {name}")
        return int(match["number"]) + (self.sizes[0] if match["side"] == "W" else 0)

    def pairs(self, one: str, other: str) -> list[Pair]:
        """Return the circuits that two names ask for: E and W give one, logical names some each way.

        Raises `CommandError`.
        """
        if one[0] not in "EW" or other[0] not in "EW":
            pairs = circuits_between(self._logical_port(one), self._logical_port(other))
        elif one[0] == other[0]:
            raise CommandError("Error: ports are on the same side")
        else:
            east, west = sorted((one, other))
            pairs = [(self.port(east), self.port(west))]
        if not pairs or any(self.matrix_of(source) != self.matrix_of(output) for source, output in pairs):
            raise CommandError("Ports are not of the same matrix")
        return pairs

    def _logical_port(self, name: str) -> list[Place]:
        """Return the E and W ports of a logical name. Raises `CommandError`."""
        if name not in self._logical:
            raise CommandError(f"Error: no port {name}")
        return self._logical[name]

    def is_in_process(self, port: int) -> bool:
        """Return True if the arm is at work at a port."""
        running = self.robot.running
        return running is not None and port in running.pair

    # -- what may be commanded

    def request(self, kind: Kind, one: str, other: str, user: str) -> str:
        """Put a request into the queue; gives what is answered. Raises `CommandError`."""
        pairs = self.pairs(one.upper(), other.upper())
        if self._quirks.validates_at_once:
            for pair in pairs:
                if not self._is_valid(kind, pair):
                    self._report_invalid(kind, pair, (one, other) if len(pairs) == 1 else None)
                    return ""
        jobs = [self.robot.submit(kind, pair, user=user, source="CLI") for pair in pairs]
        asked = Asked(jobs[0].number, one, other, tuple(job.number for job in jobs))
        self._asked.update(dict.fromkeys(asked.moves, asked))
        return f"OK - request added to pending queue ({one.upper()}-{other.upper()})"

    def entries(self) -> list[Entry]:
        """Return the queue as people read it: one entry a request, however many moves it takes."""
        entries: dict[int, Entry] = {}
        for job in self.robot.queue:
            asked = self._asked.get(job.number)
            source, output = job.pair
            names = (self.name(source), self.name(output))
            if asked is not None and asked.is_logical:
                names = asked.one.upper(), asked.other.upper()
            number = job.number if asked is None else asked.number
            entries.setdefault(number, Entry(job, names, job.state != "queued"))
        return list(entries.values())

    def _is_valid(self, kind: Kind, pair: Pair) -> bool:
        """Return True if the matrix would do it now, if nothing were in the queue."""
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

    # -- what it says unasked

    def _report(self, event: Event, job: Job | None) -> None:
        if job is not None:
            self._report_job(event, job)
        elif event == "homing":
            self._say(f"{self.now} RECOVERY STARTED")
        elif event == "homed":
            self._say("RECOVERY FINISHED SUCCESSFULLY")

    def _report_job(self, event: Event, job: Job) -> None:
        if event == "running":
            self._ran.add(job.number)
            self._report_beginning(job)
        elif event == "jammed" and self._quirks.announces_jam:
            self._say(f"{self.now} Multiple Cross Connect Severe Failure")
        elif event in {"done", "skipped", "failed"}:
            asked = self._asked.get(job.number)
            if event == "skipped" and asked is not None and asked.is_logical:
                self._report_beginning(job)
            if event == "done" and job.kind == "disconnect" and self._quirks.removes_both_ways:
                mirrored = self.pairs(self.logical(job.pair[0]), self.logical(job.pair[1]))
                left = set(self.device.matrix.connections.items()) - set(mirrored)
                self.device.change(dict(sorted(left)))
            self._report_end(event, job)
            if asked is not None:
                self._end_move(event, job, asked)

    def _report_beginning(self, job: Job) -> None:
        """Say once for a request that it is begun."""
        asked = self._asked.get(job.number)
        number = job.number if asked is None else asked.number
        if number not in self._begun:
            self._say(f"{self.now} {_OPERATION[job.kind]}...")
        if asked is not None:
            self._begun.add(number)

    def _end_move(self, event: Event, job: Job, asked: Asked) -> None:
        """Say that a request for logical ports is complete, after the last of its moves."""
        del self._asked[job.number]
        if event == "failed":
            self._failed.add(asked.number)
        if any(number in self._asked for number in asked.moves):
            return
        if asked.is_logical and job.kind == "connect" and asked.number not in self._failed:
            names = f"{asked.one.upper()}<->{asked.other.upper()}"
            self._say(f"{self.now} Connection {names} completed successfully")
        self._begun.discard(asked.number)
        self._failed.discard(asked.number)

    def _report_end(self, event: Event, job: Job) -> None:
        if event == "failed" and job.number not in self._ran:
            asked = self._asked.get(job.number)
            typed = (asked.one, asked.other) if asked is not None and not asked.is_logical else None
            self._report_invalid(job.kind, job.pair, typed)
            return
        self._ran.discard(job.number)
        how = {"done": "SUCCEEDED", "skipped": "SKIPPED(already done)"}.get(event, "FAILED")
        source, output = job.pair
        self._say(
            f"{self.now} CONNECTION OPERATION {how}:{self.full(source)}<->{self.full(output)} OP:{job.kind}"
        )

    def _report_invalid(self, kind: Kind, pair: Pair, typed: tuple[str, str] | None) -> None:
        """Say that a request is not valid, with the names of its ports as they were typed."""
        source, output = pair
        names = "-".join(typed or (self.name(source), self.name(output)))
        self._say(
            f"{self.now} ",
            "Ports details:",
            f"[{self.full(source)}] [{self.full(output)}]",
            f"{self.now} OPERATION VALIDATION FAILED:{names} requestType={kind}",
        )

    def _note_change(self, change: Change) -> None:
        for pair in change.removed:
            self.since.pop(pair, None)
        for pair in change.made:
            self.since[pair] = self.now
