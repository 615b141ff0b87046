"""A simulated Telescent robotic patch panel: a command line over SSH, and one arm that moves fibres.

The only published document is a third-party driver. Options select behaviour that the driver does not show:

    motion=hidden|shown          whether the table shows only plugged fibres, or also pending moves (letters C and D)
    simplex_unlock=fails|works   whether `unallocate` needs both directions of a port unlocked, or only one
    unallocate_queued=reject|after  whether `unallocate` is refused while the connect is queued, or executed after it
    when_occupied=reject|replace whether `connect` refuses or replaces the circuit of a port in use
    errors=frame|exception       whether refusals are in a frame of `====`, or on one line with `Exception`
    colour=yes|no                whether prompt and table are coloured
    sessions=many|one            whether an SSH connection accepts many shells and commands, or ends with the first
    idle_s=180, homing_s=60      idle timeout of a session, and duration of a homing run, in seconds

A move takes 60 s unless `--switch-time-ms` is set. With `--speed 1000`, these 60 s pass in 60 ms of real time.
The account is admin, admin (an assumption, as none is published).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sim.twins.frontends.cli import CliFaults, CliFrontend, CliStyle, CommandError, Handler, TypedCommand
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import MatrixRefusal, Pair
from sim.twins.switch.robot import Event, Job, Robot
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin
from sim.twins.wire.control import Reply, Request, Verb

MOVE_TIME_S = 60.0
HOMING_TIME_S = 60.0
IDLE_TIMEOUT_S = 180.0

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

COLUMN_COUNT = 12

_GREEN, _YELLOW, _RESET = "\x1b[32m", "\x1b[33m", "\x1b[0m"
_CELL_WIDTH = 8


def make_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Telescent. Raise `SettingError` for an invalid option, or unequal inputs and outputs."""
    settings.check_options(*_OPTIONS)
    if settings.input_count != settings.output_count:
        raise SettingError(
            "every port of this frame has an input and an output; "
            f"size it {settings.input_count}x{settings.input_count}"
        )
    device = settings.make_patch_panel()
    if settings.read_choice("when_occupied", "reject", "replace") == "replace":
        device.matrix.occupied_policy = "replace"
    robot = Robot(
        device,
        move_s=settings.get_switch_time_s(MOVE_TIME_S),
        homing_s=settings.read_number("homing_s", HOMING_TIME_S),
    )
    panel = Frame(
        device,
        robot,
        allows_simplex_unlock=settings.read_choice("simplex_unlock", "fails", "works") == "works",
        unallocates_queued_circuits=settings.read_choice("unallocate_queued", "reject", "after") == "after",
    )
    faults = CliFaults(device.faults)
    cli = _make_command_line(settings, panel, faults)
    frontend = Frontend(
        "telescent+cli",
        cli.serve,
        cli.execute,
        wire="ssh",
        is_single_session=settings.is_single_session,
        account=(cli.style.user, settings.password or "admin"),
    )
    return SwitchTwin(
        device,
        {"cli": frontend},
        expire_logins=cli.expire_sessions,
        verbs={**robot.make_verbs(), **_make_verbs(robot)},
        faults={**robot.list_faults(), **faults.list_faults()},
        on_boot=panel.unlocked_ports.clear,
    )


def _make_command_line(settings: TwinSettings, panel: Frame, faults: CliFaults) -> CliFrontend:
    has_colour = settings.read_choice("colour", "yes", "no") == "yes"
    printer = Printer(
        has_colour=has_colour,
        shows_motion=settings.read_choice("motion", "hidden", "shown") == "shown",
        frames_errors=settings.read_choice("errors", "frame", "exception") == "frame",
    )
    user = settings.user or "admin"
    host = re.sub(r"[^0-9a-zA-Z]", "", settings.name) or "ntm"
    style = CliStyle(
        f"{user}@{host}> ",
        user=user,
        greeting="Network Topology Manager (SIMULATED)",
        has_colour=has_colour,
        unknown_command_text=printer.format_error("unknown command"),
    )
    return CliFrontend(
        Commands(panel, printer).make_handlers(),
        style,
        clock=settings.clock,
        faults=faults,
        idle_timeout_s=settings.read_number("idle_s", IDLE_TIMEOUT_S),
    )


def _make_verbs(robot: Robot) -> Mapping[str, Verb]:
    """Return verbs for a technician at the robot. The published driver has no commands for homing and enabling."""

    def home(_: Request) -> Reply:
        robot.start_homing()
        return {"homing": True}

    def enable(_: Request) -> Reply:
        robot.enable_jobs()
        return {"enabled": robot.is_enabled}

    return {"home_robot": home, "enable_robot": enable}


class Frame:
    """A frame with one arm: its locks and its requests to the arm.

    A port of the device has a number from 0, an input and an output. `find_input_and_output` converts the number to
    port numbers of the simulator (inputs 1..N, outputs N+1..2N).

    Both ends of a circuit are locked. `unlock` unlocks them until the next circuit on them is finished, even if that is
    the same circuit. The public driver relies on this: it connects without checking the current circuit, and waits
    until the circuit is allocated and locked. A port without a circuit is locked only by the fault `lock_port`.

    With `allows_simplex_unlock`, `queue_removal` needs only one direction of a port unlocked. With
    `unallocates_queued_circuits`, it accepts a circuit that is still queued: the arm first makes the circuit, then
    removes it.
    """

    def __init__(
        self,
        device: SwitchDevice,
        robot: Robot,
        *,
        allows_simplex_unlock: bool,
        unallocates_queued_circuits: bool = False,
    ) -> None:
        self.device = device
        self.robot = robot
        self.unlocked_ports: set[int] = set()
        self._allows_simplex_unlock = allows_simplex_unlock
        self._unallocates_queued_circuits = unallocates_queued_circuits
        device.add_listener(self._relock_changed_ports)
        robot.add_listener(self._relock_skipped_circuit)

    @property
    def port_count(self) -> int:
        """Number of ports."""
        return self.device.matrix.input_count

    def find_input(self, number: int) -> int:
        """Return the input of port `number`. Raise `CommandError` if the port does not exist."""
        if number >= self.port_count:
            raise CommandError(f"port {number} does not exist; ports are 0 to {self.port_count - 1}")
        return number + 1

    def find_output(self, number: int) -> int:
        """Return the output of port `number`. Raise `CommandError` if the port does not exist."""
        return self.find_input(number) + self.port_count

    def find_input_and_output(self, number: int) -> tuple[int, int]:
        """Return input and output of port `number`. Raise `CommandError` if the port does not exist."""
        return self.find_input(number), self.find_output(number)

    def find_number(self, port: int) -> int:
        """Return the number of the port that an input or output belongs to."""
        return (port - 1) % self.port_count

    def is_locked(self, port: int) -> bool:
        """Return True if an input or output is locked now."""
        if self.device.matrix.find_peer(port) is None:
            return port in self.device.matrix.locked_ports
        return port not in self.unlocked_ports

    def find_job(self, output: int) -> Job | None:
        """Return the first queued or running job of an output, or None."""
        return next((job for job in self.robot.queue if job.pair[1] == output), None)

    # -- commands

    def unlock(self, *ports: int) -> None:
        """Unlock inputs or outputs, even if the fault `lock_port` locks them."""
        self.device.matrix.locked_ports.difference_update(ports)
        self.unlocked_ports.update(ports)

    def queue_connection(self, pair: Pair, user: str) -> None:
        """Queue a move that makes a circuit. Raise `CommandError` for a locked or unusable port, or a stopped arm."""
        self._check_arm_is_running()
        for port in pair:
            if self.is_locked(port):
                raise CommandError(f"port {self.find_number(port)} is locked")
        try:
            self.device.matrix.plan_connections([pair[0]], [pair[1]])
        except MatrixRefusal as refusal:
            raise CommandError(f"{refusal.reason.name}: port {self.find_number(refusal.port)}") from None
        self.robot.submit_job("connect", pair, user=user, source="CLI")

    def queue_removal(self, port: int, user: str) -> None:
        """Queue a move that removes the circuit of an input or output, if it has one.

        Raise `CommandError` if the port is locked, or the arm is jammed or disabled. Without
        `unallocates_queued_circuits`, also raise it if the connect is still queued.
        """
        pair = self._find_circuit(port)
        if pair is None:
            return
        self._check_arm_is_running()
        required_ports = (
            (port,) if self._allows_simplex_unlock else self.find_input_and_output(self.find_number(port))
        )
        if not self.unlocked_ports.issuperset(required_ports):
            raise CommandError(f"port {self.find_number(port)} is not unlocked")
        self.robot.submit_job("disconnect", pair, user=user, source="CLI")

    def _find_circuit(self, port: int) -> Pair | None:
        """Return the circuit that an input or output will have after all queued jobs, or None.

        Without `unallocates_queued_circuits`, raise `CommandError` if that circuit is still queued.
        """
        jobs = [job for job in self.robot.queue if port in job.pair]
        if not jobs:
            peer = self.device.matrix.find_peer(port)
            return None if peer is None else (min(port, peer), max(port, peer))
        if jobs[-1].kind == "disconnect":
            return None
        if not self._unallocates_queued_circuits:
            raise CommandError(f"port {self.find_number(port)} has a connect in the queue of the robot")
        return jobs[-1].pair

    def _check_arm_is_running(self) -> None:
        if self.robot.is_jammed or not self.robot.is_enabled:
            raise CommandError("robot fault: homing required before the next move")

    def _relock_changed_ports(self, change: Change) -> None:
        for pair in (*change.removed_pairs, *change.added_pairs):
            self.unlocked_ports.difference_update(pair)

    def _relock_skipped_circuit(self, event: Event, job: Job | None) -> None:
        """Lock a circuit again if its job was skipped because the circuit exists already."""
        if event == "skipped" and job is not None and job.kind == "connect":
            self.unlocked_ports.difference_update(job.pair)


@dataclass(frozen=True, slots=True)
class Printer:
    """Output formats of one device.

    The published driver shows:

    - rows `R<row>#<letter>` with 12 entries of letters and digits: `A...` if allocated, `U...` if not
    - the label C12 in the heading
    - `STATE = ALLOCATED_AND_LOCKED` and `OUTPUT = 321 `
    - the frame of `====`

    Assumptions:

    - the second letter of an entry is L (locked) or U (unlocked)
    - every row has the letter N
    - the entry of a free output has the output's own number
    - the first letter is F for a failed output, and C or D for an output with a queued connect or disconnect
    """

    has_colour: bool
    shows_motion: bool
    frames_errors: bool

    def format_table(self, panel: Frame) -> str:
        """Return the table of all outputs, with twelve outputs in a row."""
        heading = "".join(f"C{column + 1}".ljust(_CELL_WIDTH) for column in range(COLUMN_COUNT))
        rows = [" " * _CELL_WIDTH + heading.rstrip()]
        for first_number in range(0, panel.port_count, COLUMN_COUNT):
            cells = [
                self._format_cell(panel, n)
                for n in range(first_number, min(first_number + COLUMN_COUNT, panel.port_count))
            ]
            rows.append(f"R{first_number // COLUMN_COUNT}#N".ljust(_CELL_WIDTH) + " ".join(cells))
        return "\n".join(rows)

    def format_input_state(self, panel: Frame, number: int) -> str:
        """Return the state of an input. Raise `CommandError` if the port does not exist."""
        port = panel.find_input(number)
        peer = panel.device.matrix.find_peer(port)
        allocation_text = "UNALLOCATED" if peer is None else "ALLOCATED"
        lock_text = "LOCKED" if panel.is_locked(port) else "UNLOCKED"
        lines = [f"INPUT {number}", f"STATE = {allocation_text}_AND_{lock_text}"]
        return "\n".join(lines if peer is None else [*lines, f"OUTPUT = {panel.find_number(peer)} "])

    def format_error(self, text: str) -> str:
        """Return the text of a refusal."""
        if self.frames_errors:
            return f"==== ERROR ====\n{text}\n===="
        return f"com.ntm.CommandException: {text}"

    def _format_cell(self, panel: Frame, number: int) -> str:
        output = panel.find_output(number)
        letter, target = self._find_entry(panel, output)
        text = f"{letter}{'L' if panel.is_locked(output) else 'U'}{target}"
        if not self.has_colour:
            return text.ljust(_CELL_WIDTH - 1)
        return f"{_GREEN if letter == 'U' else _YELLOW}{text}{_RESET}".ljust(_CELL_WIDTH + 8)

    def _find_entry(self, panel: Frame, output: int) -> tuple[str, int]:
        """Return the first letter and the number of an output's table entry."""
        job = panel.find_job(output) if self.shows_motion else None
        if job is not None:
            return ("C" if job.kind == "connect" else "D"), panel.find_number(job.pair[0])
        peer = panel.device.matrix.find_peer(output)
        if peer is not None:
            return "A", panel.find_number(peer)
        return ("F" if output in panel.device.matrix.failed_ports else "U"), panel.find_number(output)


class Commands:
    """Command handlers of one frame."""

    def __init__(self, panel: Frame, printer: Printer) -> None:
        self._frame = panel
        self._printer = printer

    def make_handlers(self) -> Mapping[str, Handler]:
        """Return the command handlers by regular expression."""
        force = r"(?:\s+--force)?"
        side = r"(?:\s+-(?P<side>in|out))?"
        return {
            r"switchstate": self._make_query_handler(lambda _: self._printer.format_table(self._frame)),
            r"switchstate\s+input\s+(?P<port>\d+)": self._make_query_handler(
                lambda typed: self._printer.format_input_state(self._frame, int(typed.match["port"]))
            ),
            rf"unlock{force}{side}\s+(?P<port>\d+)": self._make_change_handler(
                lambda typed: self._frame.unlock(*self._find_ports(typed)), self._names_locked_port
            ),
            rf"connect{force}\s+-in\s+(?P<source>\d+)\s+-out\s+(?P<output>\d+)": self._make_change_handler(
                self._connect
            ),
            rf"connect{force}\s+(?P<source>\d+)\s+(?P<output>\d+)": self._make_change_handler(
                self._connect_both_ways
            ),
            rf"unallocate{force}{side}\s+(?P<port>\d+)": self._make_change_handler(self._unallocate),
        }

    def _make_query_handler(self, make_answer: Callable[[TypedCommand], str]) -> Handler:
        """Return the handler of a query. It returns a refusal in the device's format."""

        def handler(command: TypedCommand) -> str:
            try:
                return make_answer(command)
            except CommandError as error:
                return self._printer.format_error(str(error))

        return handler

    def _make_change_handler(
        self,
        execute_change: Callable[[TypedCommand], None],
        has_effect: Callable[[TypedCommand], bool] = lambda _: True,
    ) -> Handler:
        """Return the handler of a change. The fault `drop_command` discards the change if `has_effect` is true."""

        def answer(command: TypedCommand) -> str:
            if has_effect(command) and self._frame.device.faults.must_drop_command():
                return ""
            execute_change(command)
            return "OK"

        return self._make_query_handler(answer)

    def _names_locked_port(self, command: TypedCommand) -> bool:
        """Return True if an unlock command names a locked input or output."""
        return any(map(self._frame.is_locked, self._find_ports(command)))

    def _connect(self, command: TypedCommand) -> None:
        pair = (
            self._frame.find_input(int(command.match["source"])),
            self._frame.find_output(int(command.match["output"])),
        )
        self._frame.queue_connection(pair, command.user)

    def _connect_both_ways(self, command: TypedCommand) -> None:
        """Queue two circuits: from the input of each port to the output of the other."""
        self._connect(command)
        target_number, source_number = int(command.match["output"]), int(command.match["source"])
        self._frame.queue_connection(
            (self._frame.find_input(target_number), self._frame.find_output(source_number)), command.user
        )

    def _unallocate(self, command: TypedCommand) -> None:
        for port in self._find_ports(command):
            self._frame.queue_removal(port, command.user)

    def _find_ports(self, command: TypedCommand) -> tuple[int, ...]:
        """Return the input, the output, or both, of the port that a command names."""
        source, output = self._frame.find_input_and_output(int(command.match["port"]))
        return {"in": (source,), "out": (output,)}.get(command.match["side"] or "", (source, output))
