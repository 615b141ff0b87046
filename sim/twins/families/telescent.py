"""A Telescent robotic patch panel: a command line over SSH, and one arm behind it.

The published material is one driver of somebody else, so much is left open; the options are:

    motion=hidden|shown          does the table show what the arm still has to do (letters C and D), or only
                                 what is plugged
    simplex_unlock=fails|works   is a port refused by `unallocate` of which one direction only was unlocked
    unallocate_queued=reject|after is `unallocate` refused while the connect is queued, or done after it
    when_occupied=reject|replace does `connect --force` refuse a port in use
    errors=frame|exception       refusals in a frame of `====`, or on one line with `Exception`
    colour=yes|no                are prompt and table coloured
    sessions=many|one            does a connection take many shells and commands, or end with its first
    idle_s=180, homing_s=60      when an idle session is ended, how long a homing run takes

The time of one move is 60 s unless `--switch-time-ms` says otherwise; `--speed 1000` makes that 60 ms of ours.
The account is admin, admin (assumption: none has been published).
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
    """Return a simulated Telescent. Raises `SettingError`; a frame has as many inputs as outputs."""
    settings.only(*_OPTIONS)
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
    """Return the verbs of a technician at the robot: the published driver has no command for them."""

    def home(_: Request) -> Reply:
        robot.home()
        return {"homing": True}

    def enable(_: Request) -> Reply:
        robot.enable()
        return {"enabled": robot.enabled}

    return {"home_robot": home, "enable_robot": enable}


class Frame:
    """One frame with one arm: what is locked, and what the arm is asked to do.

    A port has a number from 0, an input and an output; here ports are the simulator's own (inputs 1..N, outputs
    N+1..2N), and `sides` translates. A finished circuit is locked at both ends; `unlock` opens them, and they are
    locked again when the next circuit on them is finished, be it the one that is there: the public driver connects
    without a look at what is there, and waits for a circuit that is allocated and locked. A port without a circuit is
    locked only when somebody reserved it (the fault `lock_port`).

    `simplex_unlock`: one direction of a port may be unallocated by itself. `unallocates_queued`: a circuit that the
    arm has yet to make may be unallocated, which the arm then does after it.
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
        """Return the input of port `number`. Raises `CommandError` when there is no such port."""
        if number >= self.size:
            raise CommandError(f"port {number} does not exist; ports are 0 to {self.size - 1}")
        return number + 1

    def output(self, number: int) -> int:
        """Return the output of port `number`. Raises `CommandError`."""
        return self.source(number) + self.size

    def sides(self, number: int) -> tuple[int, int]:
        """Input and output of port `number`. Raises `CommandError`."""
        return self.source(number), self.output(number)

    def number(self, port: int) -> int:
        """Return the number of the port that an input or output belongs to."""
        return (port - 1) % self.size

    def is_locked(self, port: int) -> bool:
        """Return True if an input or output is locked now."""
        if self.device.matrix.peer(port) is None:
            return port in self.device.matrix.locked
        return port not in self.unlocked

    def job_for(self, output: int) -> Job | None:
        """Return the job that waits for the arm at an output."""
        return next((job for job in self.robot.queue if job.pair[1] == output), None)

    # -- what may be commanded

    def unlock(self, *ports: int) -> None:
        """Open the locks of inputs or outputs, whoever closed them."""
        self.device.matrix.locked.difference_update(ports)
        self.unlocked.update(ports)

    def connect(self, pair: Pair, user: str) -> None:
        """Move the arm to make a circuit. Raises `CommandError` if the device would refuse."""
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
        """Move the arm to remove the circuit of an input or output, if it has one. Raises `CommandError`."""
        pair = self._circuit(port)
        if pair is None:
            return
        self._check_arm()
        needed = (port,) if self._simplex_unlock else self.sides(self.number(port))
        if not self.unlocked.issuperset(needed):
            raise CommandError(f"port {self.number(port)} is not unlocked")
        self.robot.submit("disconnect", pair, user=user, source="CLI")

    def _circuit(self, port: int) -> Pair | None:
        """Return the circuit that a port has when the arm has done what was asked; None when it has none by then.

        Raises `CommandError` for one that the arm has yet to make.
        """
        asked = [job for job in self.robot.queue if port in job.pair]
        if not asked:
            peer = self.device.matrix.peer(port)
            return None if peer is None else (min(port, peer), max(port, peer))
        if asked[-1].kind == "disconnect":
            return None
        if not self._unallocates_queued:
            raise CommandError(f"port {self.number(port)} has a connect in the queue of the robot")
        return asked[-1].pair

    def _check_arm(self) -> None:
        if self.robot.jammed or not self.robot.enabled:
            raise CommandError("robot fault: homing required before the next move")

    def _lock_again(self, change: Change) -> None:
        for pair in (*change.removed, *change.made):
            self.unlocked.difference_update(pair)

    def _lock_unmoved(self, event: Event, job: Job | None) -> None:
        """Lock a circuit that the arm was to make and found there."""
        if event == "skipped" and job is not None and job.kind == "connect":
            self.unlocked.difference_update(job.pair)


@dataclass(frozen=True, slots=True)
class Printer:
    """Formats of one device: in colour, with the arm's work shown or hidden, refusals framed or not.

    Known: the rows `R<row>#<letter>` with 12 entries of letters and digits, of which `A...` are allocated and
    `U...` are not; the label C12 in the heading; `STATE = ALLOCATED_AND_LOCKED`, `OUTPUT = 321 `; the frame of `====`.
    Assumptions: the second letter of an entry (locked or unlocked), the letter of a row, what stands for a free
    output (its own number), F for an output that has failed, C and D for what the arm has yet to make and to clear.
    """

    colour: bool
    shows_motion: bool
    frames_errors: bool

    def table(self, frame: Frame) -> str:
        """Return all outputs, twelve to a row; the last row is short where the size is no multiple of twelve."""
        heading = "".join(f"C{column + 1}".ljust(_WIDTH) for column in range(COLUMNS))
        rows = [" " * _WIDTH + heading.rstrip()]
        for first in range(0, frame.size, COLUMNS):
            cells = [self._cell(frame, n) for n in range(first, min(first + COLUMNS, frame.size))]
            rows.append(f"R{first // COLUMNS}#N".ljust(_WIDTH) + " ".join(cells))
        return "\n".join(rows)

    def input_state(self, frame: Frame, number: int) -> str:
        """Return the state of one input. Raises `CommandError` when there is no such port."""
        port = frame.source(number)
        peer = frame.device.matrix.peer(port)
        allocated = "UNALLOCATED" if peer is None else "ALLOCATED"
        locked = "LOCKED" if frame.is_locked(port) else "UNLOCKED"
        lines = [f"INPUT {number}", f"STATE = {allocated}_AND_{locked}"]
        return "\n".join(lines if peer is None else [*lines, f"OUTPUT = {frame.number(peer)} "])

    def error(self, text: str) -> str:
        """Return a refusal."""
        if self.frames_errors:
            return f"==== ERROR ====\n{text}\n===="
        return f"com.ntm.CommandException: {text}"

    def _cell(self, frame: Frame, number: int) -> str:
        output = frame.output(number)
        letter, belongs_to = self._status(frame, output)
        text = f"{letter}{'L' if frame.is_locked(output) else 'U'}{belongs_to}"
        if not self.colour:
            return text.ljust(_WIDTH - 1)
        return f"{_GREEN if letter == 'U' else _YELLOW}{text}{_PLAIN}".ljust(_WIDTH + 8)

    def _status(self, frame: Frame, output: int) -> tuple[str, int]:
        """Return the first letter of an entry, and the number after its letters."""
        job = frame.job_for(output) if self.shows_motion else None
        if job is not None:
            return ("C" if job.kind == "connect" else "D"), frame.number(job.pair[0])
        peer = frame.device.matrix.peer(output)
        if peer is not None:
            return "A", frame.number(peer)
        return ("F" if output in frame.device.matrix.failed else "U"), frame.number(output)


class Commands:
    """The commands of the command line on one frame."""

    def __init__(self, frame: Frame, printer: Printer) -> None:
        self._frame = frame
        self._printer = printer

    def table(self) -> Mapping[str, Handler]:
        """Return commands by their pattern."""
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
        """Return the handler of a question, with refusals as the device prints them."""

        def handler(typed: Typed) -> str:
            try:
                return answer(typed)
            except CommandError as error:
                return self._printer.error(str(error))

        return handler

    def _make_order(
        self, do: Callable[[Typed], None], would_do: Callable[[Typed], bool] = lambda _: True
    ) -> Handler:
        """Return the handler of an order; a fault may swallow one that would do something."""

        def answer(typed: Typed) -> str:
            if would_do(typed) and self._frame.device.faults.take_dropped_command():
                return ""
            do(typed)
            return "OK"

        return self._make_question(answer)

    def _opens(self, typed: Typed) -> bool:
        """Return True if a lock is closed that this would open."""
        return any(map(self._frame.is_locked, self._find_ports(typed)))

    def _connect(self, typed: Typed) -> None:
        pair = self._frame.source(int(typed.match["source"])), self._frame.output(int(typed.match["output"]))
        self._frame.connect(pair, typed.user)

    def _connect_both_ways(self, typed: Typed) -> None:
        """Make two circuits: the input of each port to the output of the other."""
        self._connect(typed)
        there, here = int(typed.match["output"]), int(typed.match["source"])
        self._frame.connect((self._frame.source(there), self._frame.output(here)), typed.user)

    def _unallocate(self, typed: Typed) -> None:
        for port in self._find_ports(typed):
            self._frame.unallocate(port, typed.user)

    def _find_ports(self, typed: Typed) -> tuple[int, ...]:
        """Return the inputs and outputs that a command names: one direction of a port, or both."""
        source, output = self._frame.sides(int(typed.match["port"]))
        return {"in": (source,), "out": (output,)}.get(typed.match["side"] or "", (source, output))
