"""A simulated Telescent robotic patch panel: a command line over SSH, and one arm that moves fibres.

The only published document is a third-party driver. Options select behaviour that it leaves open:

    motion=hidden|shown          does the table show pending moves (letters C and D), or only plugged fibres
    simplex_unlock=fails|works   does `unallocate` refuse a port of which only one direction is unlocked
    unallocate_queued=reject|after is `unallocate` refused while the connect is queued, or executed after it
    when_occupied=reject|replace does `connect --force` refuse or replace a circuit of a port in use
    errors=frame|exception       are refusals in a frame of `====`, or on one line with `Exception`
    colour=yes|no                are prompt and table coloured
    sessions=many|one            does an SSH connection accept many shells and commands, or end with the first
    idle_s=180, homing_s=60      idle timeout of a session, and duration of a homing run, in seconds

A move takes 60 s unless `--switch-time-ms` is set; with `--speed 1000` these 60 s pass in 60 ms of real time.
The account is admin, admin (assumption: none is published).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sim.twins.frontends.cli import CliFaults, CliFrontend, CliStyle, CommandError, Handler, Typed
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import Pair, Refused
from sim.twins.switch.robot import Event, Job, Robot
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin
from sim.twins.wire.control import Reply, Request, Verb

MOVE_S = 60.0
HOMING_S = 60.0
IDLE_S = 180.0

_OPTIONS = (
    "motion",
    "simplex_unlock",
    "unallocate_queued",
    "when_occupied",
    "errors",
    "colour",
    "sessions",
    "idle_s",
    "homing_s",
)

COLUMNS = 12

_GREEN, _YELLOW, _PLAIN = "\x1b[32m", "\x1b[33m", "\x1b[0m"
_WIDTH = 8


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Telescent. Raise `SettingError` for an invalid option, or unequal inputs and outputs."""
    settings.check_options(*_OPTIONS)
    if settings.inputs != settings.outputs:
        raise SettingError(
            f"every port of this frame has an input and an output; size it {settings.inputs}x{settings.inputs}"
        )
    device = settings.patch_panel()
    if settings.choice("when_occupied", "reject", "replace") == "replace":
        device.matrix.when_occupied = "replace"
    robot = Robot(device, move_s=settings.move_s(MOVE_S), homing_s=settings.number("homing_s", HOMING_S))
    frame = Frame(
        device,
        robot,
        simplex_unlock=settings.choice("simplex_unlock", "fails", "works") == "works",
        unallocates_queued=settings.choice("unallocate_queued", "reject", "after") == "after",
    )
    faults = CliFaults(device.faults)
    cli = _command_line(settings, frame, faults)
    frontend = Frontend(
        "telescent+cli",
        cli.serve,
        cli.execute,
        wire="ssh",
        one_session=settings.one_session,
        account=(cli.style.user, settings.password or "admin"),
    )
    return SwitchTwin(
        device,
        {"cli": frontend},
        expire=cli.expire,
        verbs={**robot.verbs(), **_verbs(robot)},
        faults={**robot.faults(), **faults.table()},
        on_boot=frame.unlocked.clear,
    )


def _command_line(settings: TwinSettings, frame: Frame, faults: CliFaults) -> CliFrontend:
    colour = settings.choice("colour", "yes", "no") == "yes"
    printer = Printer(
        colour=colour,
        shows_motion=settings.choice("motion", "hidden", "shown") == "shown",
        frames_errors=settings.choice("errors", "frame", "exception") == "frame",
    )
    user = settings.user or "admin"
    host = re.sub(r"[^0-9a-zA-Z]", "", settings.name) or "ntm"
    style = CliStyle(
        f"{user}@{host}> ",
        user=user,
        greeting="Network Topology Manager (SIMULATED)",
        colour=colour,
        unknown=printer.error("unknown command"),
    )
    return CliFrontend(
        Commands(frame, printer).table(),
        style,
        clock=settings.clock,
        faults=faults,
        idle_timeout_s=settings.number("idle_s", IDLE_S),
    )


def _verbs(robot: Robot) -> Mapping[str, Verb]:
    """Return verbs for a technician at the robot, as the published driver has no commands for this."""

    def home(_: Request) -> Reply:
        robot.home()
        return {"homing": True}

    def enable(_: Request) -> Reply:
        robot.enable()
        return {"enabled": robot.enabled}

    return {"home_robot": home, "enable_robot": enable}


class Frame:
    """A frame with one arm: its locks and its requests to the arm.

    A port of the device has a number from 0, an input and an output; `sides` converts to port numbers of the simulator
    (inputs 1..N, outputs N+1..2N). Both ends of a circuit are locked. After `unlock`, they are locked again when
    the next circuit on them is finished, even if it is the same circuit: the public driver connects without checking
    the present circuit, and waits until it is allocated and locked. A port without a circuit is locked only if it is
    reserved (the fault `lock_port`).

    With `simplex_unlock`, one direction of a port can be unallocated. With `unallocates_queued`, a circuit that is
    still queued can be unallocated; the arm then makes it first and removes it afterwards.
    """

    def __init__(
        self, device: SwitchDevice, robot: Robot, *, simplex_unlock: bool, unallocates_queued: bool = False
    ) -> None:
        self.device = device
        self.robot = robot
        self.unlocked: set[int] = set()
        self._simplex_unlock = simplex_unlock
        self._unallocates_queued = unallocates_queued
        device.listen(self._lock_again)
        robot.listen(self._lock_unmoved)

    @property
    def size(self) -> int:
        """Number of ports."""
        return self.device.matrix.inputs

    def source(self, number: int) -> int:
        """Return the input of port `number`. Raise `CommandError` if the port does not exist."""
        if number >= self.size:
            raise CommandError(f"port {number} does not exist; ports are 0 to {self.size - 1}")
        return number + 1

    def output(self, number: int) -> int:
        """Return the output of port `number`. Raise `CommandError` if the port does not exist."""
        return self.source(number) + self.size

    def sides(self, number: int) -> tuple[int, int]:
        """Return input and output of port `number`. Raise `CommandError` if the port does not exist."""
        return self.source(number), self.output(number)

    def number(self, port: int) -> int:
        """Return the number of the port that has an input or output."""
        return (port - 1) % self.size

    def is_locked(self, port: int) -> bool:
        """Return True if an input or output is locked now."""
        if self.device.matrix.peer(port) is None:
            return port in self.device.matrix.locked
        return port not in self.unlocked

    def job_for(self, output: int) -> Job | None:
        """Return the first queued or running job of an output, or None."""
        return next((job for job in self.robot.queue if job.pair[1] == output), None)

    # -- commands

    def unlock(self, *ports: int) -> None:
        """Unlock inputs or outputs, including those locked by the fault `lock_port`."""
        self.device.matrix.locked.difference_update(ports)
        self.unlocked.update(ports)

    def connect(self, pair: Pair, user: str) -> None:
        """Queue a move that makes a circuit. Raise `CommandError` for a locked or unusable port, or a faulty arm."""
        self._check_arm()
        for port in pair:
            if self.is_locked(port):
                raise CommandError(f"port {self.number(port)} is locked")
        try:
            self.device.matrix.add([pair[0]], [pair[1]])
        except Refused as refusal:
            raise CommandError(f"{refusal.reason.name}: port {self.number(refusal.port)}") from None
        self.robot.submit("connect", pair, user=user, source="CLI")

    def unallocate(self, port: int, user: str) -> None:
        """Queue a move that removes the circuit of an input or output, if it has one.

        Raise `CommandError` if the port is not unlocked, its connect is still queued, or the arm is faulty.
        """
        pair = self._circuit(port)
        if pair is None:
            return
        self._check_arm()
        required_ports = (port,) if self._simplex_unlock else self.sides(self.number(port))
        if not self.unlocked.issuperset(required_ports):
            raise CommandError(f"port {self.number(port)} is not unlocked")
        self.robot.submit("disconnect", pair, user=user, source="CLI")

    def _circuit(self, port: int) -> Pair | None:
        """Return the circuit that an input or output has after all queued jobs, or None.

        Unless `unallocates_queued`, raise `CommandError` for a circuit that is still to be made.
        """
        jobs = [job for job in self.robot.queue if port in job.pair]
        if not jobs:
            peer = self.device.matrix.peer(port)
            return None if peer is None else (min(port, peer), max(port, peer))
        if jobs[-1].kind == "disconnect":
            return None
        if not self._unallocates_queued:
            raise CommandError(f"port {self.number(port)} has a connect in the queue of the robot")
        return jobs[-1].pair

    def _check_arm(self) -> None:
        if self.robot.jammed or not self.robot.enabled:
            raise CommandError("robot fault: homing required before the next move")

    def _lock_again(self, change: Change) -> None:
        for pair in (*change.removed, *change.added):
            self.unlocked.difference_update(pair)

    def _lock_unmoved(self, event: Event, job: Job | None) -> None:
        """Lock a circuit whose job was skipped because it exists already."""
        if event == "skipped" and job is not None and job.kind == "connect":
            self.unlocked.difference_update(job.pair)


@dataclass(frozen=True, slots=True)
class Printer:
    """Output formats of one device.

    Known: the rows `R<row>#<letter>` with 12 entries of letters and digits, of which `A...` are allocated and
    `U...` are not; the label C12 in the heading; `STATE = ALLOCATED_AND_LOCKED`, `OUTPUT = 321 `; the frame of `====`.
    Assumptions: the second letter of an entry (locked or unlocked), the letter of a row, the number of a free output
    (its own), F for a failed output, and C and D for outputs with a queued connect or disconnect.
    """

    colour: bool
    shows_motion: bool
    frames_errors: bool

    def table(self, frame: Frame) -> str:
        """Return the table of all outputs, twelve in each row except possibly the last."""
        heading = "".join(f"C{column + 1}".ljust(_WIDTH) for column in range(COLUMNS))
        rows = [" " * _WIDTH + heading.rstrip()]
        for first in range(0, frame.size, COLUMNS):
            cells = [self._cell(frame, n) for n in range(first, min(first + COLUMNS, frame.size))]
            rows.append(f"R{first // COLUMNS}#N".ljust(_WIDTH) + " ".join(cells))
        return "\n".join(rows)

    def input_state(self, frame: Frame, number: int) -> str:
        """Return the state of an input. Raise `CommandError` if the port does not exist."""
        port = frame.source(number)
        peer = frame.device.matrix.peer(port)
        allocated = "UNALLOCATED" if peer is None else "ALLOCATED"
        locked = "LOCKED" if frame.is_locked(port) else "UNLOCKED"
        lines = [f"INPUT {number}", f"STATE = {allocated}_AND_{locked}"]
        return "\n".join(lines if peer is None else [*lines, f"OUTPUT = {frame.number(peer)} "])

    def error(self, text: str) -> str:
        """Return the text of a refusal."""
        if self.frames_errors:
            return f"==== ERROR ====\n{text}\n===="
        return f"com.ntm.CommandException: {text}"

    def _cell(self, frame: Frame, number: int) -> str:
        output = frame.output(number)
        letter, target = self._status(frame, output)
        text = f"{letter}{'L' if frame.is_locked(output) else 'U'}{target}"
        if not self.colour:
            return text.ljust(_WIDTH - 1)
        return f"{_GREEN if letter == 'U' else _YELLOW}{text}{_PLAIN}".ljust(_WIDTH + 8)

    def _status(self, frame: Frame, output: int) -> tuple[str, int]:
        """Return the first letter of a table entry, and the number after its letters."""
        job = frame.job_for(output) if self.shows_motion else None
        if job is not None:
            return ("C" if job.kind == "connect" else "D"), frame.number(job.pair[0])
        peer = frame.device.matrix.peer(output)
        if peer is not None:
            return "A", frame.number(peer)
        return ("F" if output in frame.device.matrix.failed else "U"), frame.number(output)


class Commands:
    """Command handlers of one frame."""

    def __init__(self, frame: Frame, printer: Printer) -> None:
        self._frame = frame
        self._printer = printer

    def table(self) -> Mapping[str, Handler]:
        """Return the command handlers by regular expression."""
        force = r"(?:\s+--force)?"
        side = r"(?:\s+-(?P<side>in|out))?"
        return {
            r"switchstate": self._make_question(lambda _: self._printer.table(self._frame)),
            r"switchstate\s+input\s+(?P<port>\d+)": self._make_question(
                lambda typed: self._printer.input_state(self._frame, int(typed.match["port"]))
            ),
            rf"unlock{force}{side}\s+(?P<port>\d+)": self._make_order(
                lambda typed: self._frame.unlock(*self._find_ports(typed)), self._opens
            ),
            rf"connect{force}\s+-in\s+(?P<source>\d+)\s+-out\s+(?P<output>\d+)": self._make_order(
                self._connect
            ),
            rf"connect{force}\s+(?P<source>\d+)\s+(?P<output>\d+)": self._make_order(self._connect_both_ways),
            rf"unallocate{force}{side}\s+(?P<port>\d+)": self._make_order(self._unallocate),
        }

    def _make_question(self, answer: Callable[[Typed], str]) -> Handler:
        """Return the handler of a query, which prints refusals in the device's format."""

        def handler(typed: Typed) -> str:
            try:
                return answer(typed)
            except CommandError as error:
                return self._printer.error(str(error))

        return handler

    def _make_order(
        self, execute: Callable[[Typed], None], has_effect: Callable[[Typed], bool] = lambda _: True
    ) -> Handler:
        """Return the handler of a change; the fault `drop_command` discards those that `has_effect` accepts."""

        def answer(typed: Typed) -> str:
            if has_effect(typed) and self._frame.device.faults.take_dropped_command():
                return ""
            execute(typed)
            return "OK"

        return self._make_question(answer)

    def _opens(self, typed: Typed) -> bool:
        """Return True if an unlock command names a locked input or output."""
        return any(map(self._frame.is_locked, self._find_ports(typed)))

    def _connect(self, typed: Typed) -> None:
        pair = self._frame.source(int(typed.match["source"])), self._frame.output(int(typed.match["output"]))
        self._frame.connect(pair, typed.user)

    def _connect_both_ways(self, typed: Typed) -> None:
        """Queue two circuits: from the input of each port to the output of the other."""
        self._connect(typed)
        there, here = int(typed.match["output"]), int(typed.match["source"])
        self._frame.connect((self._frame.source(there), self._frame.output(here)), typed.user)

    def _unallocate(self, typed: Typed) -> None:
        for port in self._find_ports(typed):
            self._frame.unallocate(port, typed.user)

    def _find_ports(self, typed: Typed) -> tuple[int, ...]:
        """Return the input, the output, or both, of the port that a command names."""
        source, output = self._frame.sides(int(typed.match["port"]))
        return {"in": (source,), "out": (output,)}.get(typed.match["side"] or "", (source, output))
