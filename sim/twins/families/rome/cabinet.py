"""The cabinet behind the command line: its ports by name, its matrices, one arm, and what it says unasked.

Ports here are the simulator's own (inputs 1..N, outputs N+1..N+M); `name` and `port` translate to E and W ports.
A cabinet of two matrices has the first half of its ports in A and the rest in B, and no way from one to the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sim.twins.frontends.cli import CommandError
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import Pair, Refused
from sim.twins.switch.robot import Event, Job, Kind, Robot

_BEGINNING = datetime(2026, 1, 1)  # noqa: DTZ001 - devices show local time, and this is nobody's
_NAME = re.compile(r"(?P<side>[EW])(?P<number>\d{1,9})", re.ASCII)
_OPERATION = {"connect": "CONNECTING", "disconnect": "DISCONNECTING"}


@dataclass(frozen=True, slots=True)
class Quirks:
    """Behaviour that the published material leaves open.

    `announces_jam` in words, `validates_at_once` before queueing. With `numbers_ports`, logical ports have a number
    for their name, as an AFM has it, else the letter of their matrix and a number.
    """

    matrices: int
    announces_jam: bool
    validates_at_once: bool
    numbers_ports: bool = False


class Cabinet:
    """One cabinet with one arm; `say` shows lines to everybody."""

    def __init__(self, device: SwitchDevice, robot: Robot, quirks: Quirks, say: Callable[..., None]) -> None:
        self.device = device
        self.robot = robot
        self.since: dict[Pair, str] = {}
        self._quirks = quirks
        self._say = say
        self._ran: set[int] = set()
        self._places = {port: self._place(port) for port in device.matrix.ports}
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
        return self.place(port)[1]

    def place(self, port: int) -> str:
        """Return the place of a port: unit, matrix, side, and its number within the matrix."""
        return self._places[port]

    def _place(self, port: int) -> str:
        side, number = self.name(port)[0], int(self.name(port)[1:])
        first = self.matrices["A"]["EW".index(side)]
        if number <= first:
            return f"1A{side}{number}"
        return f"1B{side}{number - first}"

    def logical(self, port: int) -> str:
        """Return the logical name of a port, which goes on counting in the second matrix."""
        letter = "" if self._quirks.numbers_ports else self.matrix_of(port)
        return f"{letter}{self.name(port)[1:]}"

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
        """Return the circuits that two names ask for: E and W give one, logical names one each way.

        Raises `CommandError`.
        """
        if one[0] in "EW" and other[0] in "EW":
            if one[0] == other[0]:
                raise CommandError("Error: ports are on the same side")
            east, west = sorted((one, other))
            pairs = [(self.port(east), self.port(west))]
        else:
            here, there = self._logical_port(one), self._logical_port(other)
            pairs = [(here[0], there[1]), (there[0], here[1])]
        if any(self.matrix_of(source) != self.matrix_of(output) for source, output in pairs):
            raise CommandError("Ports are not of the same matrix")
        return pairs

    def _logical_port(self, name: str) -> Pair:
        """Return the E and W port of a logical name. Raises `CommandError`."""
        number = name if self._quirks.numbers_ports else name[1:]
        east, west = self.port(f"E{number}"), self.port(f"W{number}")
        if name not in {self.logical(east), self.logical(west)}:
            raise CommandError(f"Error: no port {name}")
        return east, west

    def is_in_process(self, port: int) -> bool:
        """Return True if the arm is at work at a port."""
        running = self.robot.running
        return running is not None and port in running.pair

    # -- what may be commanded

    def request(self, kind: Kind, one: str, other: str, user: str) -> str:
        """Put a request into the queue; gives what is answered. Raises `CommandError`."""
        pairs = self.pairs(one, other)
        if self._quirks.validates_at_once:
            for pair in pairs:
                if not self._is_valid(kind, pair):
                    self._report_invalid(kind, pair)
                    return ""
        for pair in pairs:
            self.robot.submit(kind, pair, user=user, source="CLI")
        return f"OK - request added to pending queue ({one}-{other})"

    def _is_valid(self, kind: Kind, pair: Pair) -> bool:
        """Return True if the matrix would do it now, if nothing were in the queue."""
        if self.robot.queue:
            return True
        matrix = self.device.matrix
        try:
            if kind == "connect":
                matrix.added([pair[0]], [pair[1]])
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
            self._say(f"{self.now} {_OPERATION[job.kind]}...")
        elif event == "jammed" and self._quirks.announces_jam:
            self._say(f"{self.now} Multiple Cross Connect Severe Failure")
        elif event in {"done", "skipped", "failed"}:
            self._report_end(event, job)

    def _report_end(self, event: Event, job: Job) -> None:
        if event == "failed" and job.number not in self._ran:
            self._report_invalid(job.kind, job.pair)
            return
        self._ran.discard(job.number)
        how = {"done": "SUCCEEDED", "skipped": "SKIPPED(already done)"}.get(event, "FAILED")
        source, output = job.pair
        self._say(
            f"{self.now} CONNECTION OPERATION {how}:{self.full(source)}<->{self.full(output)} OP:{job.kind}"
        )

    def _report_invalid(self, kind: Kind, pair: Pair) -> None:
        source, output = pair
        self._say(
            f"{self.now} ",
            "Ports details:",
            f"[{self.full(source)}] [{self.full(output)}]",
            f"{self.now} OPERATION VALIDATION FAILED:{self.name(source)}-{self.name(output)} requestType={kind}",
        )

    def _note_change(self, change: Change) -> None:
        for pair in change.removed:
            self.since.pop(pair, None)
        for pair in change.made:
            self.since[pair] = self.now
