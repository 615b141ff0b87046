"""A Wave2Wave ROME or a FiberZone AFM over its command line.

One arm makes one move after another. A command only appends a request to the robot's queue, which also holds the
requests of other users and of the graphical interface. So the driver polls the queue and the port table until a step is
complete. An unsolicited line that reports the request as failed or invalid ends the wait. Only `homing_run`, called by
an operator, homes the robot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ocs_drivers.address import Address
from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.engine import transaction
from ocs_drivers.engine.driver import SwitchDriver
from ocs_drivers.errors import (
    AddressError,
    DeviceError,
    OcsError,
    PortBusy,
    ProtocolDesync,
    RobotFault,
    Timeout,
    TransportError,
)
from ocs_drivers.model import (
    Capabilities,
    CrossConnects,
    Identity,
    PortInfo,
    Side,
    Snapshot,
    Step,
)
from ocs_drivers.protocols.cli_session import CliSession, Login
from ocs_drivers.timing import SYSTEM_CLOCK, Clock, Deadline
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.rome import codec
from ocs_drivers.vendors.rome.codec import ROME, Board, Dialect, Queue, decode_board, decode_queue
from ocs_drivers.vendors.rome.port_table import PortTable, decode_ports
from ocs_drivers.vendors.rome.ports import (
    Layout,
    add_tie_hint,
    check_one_matrix,
    decode_logical_ports,
    find_two_way_circuits,
    join_mirrored_steps,
)
from ocs_drivers.vendors.rome.wait import (
    MoveState,
    Progress,
    explain_standstill,
    find_conflict,
    judge_progress,
)

_T = TypeVar("_T")

MOVE_TIME_S = (60.0, 120.0)
"""Duration of one move: typical (an assumption), and the longest wait of the public driver."""

POLL_S = 3.0
IDLE_LIMIT_S = 180.0
HOMING_S = 900.0

OPTIONS = ("move_s", "longest_s", "poll_s", "idle_s", "homing_s", "grace_s", "one_way")
"""Options of an address that `read_timeouts` reads."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of the driver.

    `move_time_s` is (typical, longest) for one move. A device that shows `Perform "homing run"` counts as stopped if
    no command is in process, or after `homing_grace_s` with the same command in process: in one capture a move
    continued in spite of this line. With `allow_one_way_removal`, one direction of a two-way circuit may be removed
    from a device with paired ports.
    """

    move_time_s: tuple[float, float] = MOVE_TIME_S
    poll_s: float = POLL_S
    idle_limit_s: float = IDLE_LIMIT_S
    homing_s: float = HOMING_S
    homing_grace_s: float = MOVE_TIME_S[1]
    allow_one_way_removal: bool = False


def read_timeouts(address: Address) -> Timeouts:
    """Return the timeouts from the options of an address. Raise `AddressError` for an invalid option."""
    typical_s = address.read_seconds("move_s", MOVE_TIME_S[0])
    longest_s = max(typical_s, address.read_seconds("longest_s", MOVE_TIME_S[1]))
    return Timeouts(
        (typical_s, longest_s),
        poll_s=address.read_seconds("poll_s", POLL_S),
        idle_limit_s=address.read_seconds("idle_s", IDLE_LIMIT_S),
        homing_s=address.read_seconds("homing_s", HOMING_S),
        homing_grace_s=address.read_seconds("grace_s", longest_s),
        allow_one_way_removal=_parse_flag(address, "one_way"),
    )


def _parse_flag(address: Address, option: str) -> bool:
    text = address.options.get(option, "no")
    if text not in {"yes", "no"}:
        raise AddressError(f"option {option} must be yes or no, not {text!r}", device=str(address))
    return text == "yes"


class RomeCli(SwitchDriver):
    """Driver of one ROME or AFM, on any transport. Call `open` first.

    `timeout_s` bounds every wait for an answer. A move may take `timeouts.move_time_s[1]`, plus the same time for every
    move ahead of it in the queue. `login` is for connections on which the device asks for a login (telnet).
    """

    _session: CliSession

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        timeout_s: float,
        dialect: Dialect = ROME,
        clock: Clock = SYSTEM_CLOCK,
        login: Login | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._dialect = dialect
        self._timeouts = timeouts or Timeouts()
        self._session = CliSession(
            transport,
            device=address,
            timeout_s=timeout_s,
            clock=clock,
            prompt=codec.PROMPT,
            unsolicited_pattern=codec.UNSOLICITED_PATTERN,
            login=login,
            idle_limit_s=self._timeouts.idle_limit_s,
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)
        self.poll_s = self._timeouts.poll_s
        self._board = Board(Identity("", "", "", ""), 0, 0)
        self._layout = Layout((), ())
        self._reports_queue = True
        self._queue = Queue()
        self._move = MoveState(clock.now(), 0)

    # -- reading

    def _discover(self) -> tuple[Identity, Capabilities]:
        """Read the size from the board, and the names from the port table."""
        self._board = self._retry(
            lambda: self._query(codec.SHOW_BOARD, lambda lines: decode_board(lines, self._dialect))
        )
        self._layout = self._retry(lambda: self._query(codec.SHOW_PORTS, self._decode_port_table)).layout
        if self._dialect.has_logical_ports:
            logical_ports = self._query_optional(codec.SHOW_LOGICAL, decode_logical_ports)
            self._layout = replace(self._layout, ports_by_logical_name=logical_ports or {})
        self._reports_queue = self._query_optional(codec.SHOW_QUEUE, decode_queue) is not None
        return self._board.identity, Capabilities(
            len(self._layout.east_ports),
            len(self._layout.west_ports),
            serial_robot=True,
            wear_counter=True,
            async_events=True,
            login=True,
            session_timeout_s=self._timeouts.idle_limit_s,
            switch_time_s=self._timeouts.move_time_s,
        )

    def _query_optional(self, command: str, decode: Callable[[tuple[str, ...]], _T]) -> _T | None:
        """Return the answer, or None from a device without the command, as an AFM may be (an assumption)."""
        try:
            return self._retry(lambda: self._query(command, decode))
        except DeviceError:
            return None

    def _query(self, command: str, decode: Callable[[tuple[str, ...]], _T]) -> _T:
        """Return the answer to a query. Send it again after a timeout, because a garbled prompt also causes one."""

        def decode_accepted(lines: tuple[str, ...]) -> _T:
            codec.check_accepted(lines[:1])
            return decode(lines)

        try:
            return self._session.ask_with_retry(command, decode_accepted)
        except Timeout:
            return self._session.ask_with_retry(command, decode_accepted)

    def _decode_port_table(self, lines: tuple[str, ...]) -> PortTable:
        return decode_ports(lines, self._dialect, self._board)

    def _decode_ports(self, lines: tuple[str, ...]) -> PortTable:
        table = self._decode_port_table(lines)
        if (table.layout.east_ports, table.layout.west_ports) != (
            self._layout.east_ports,
            self._layout.west_ports,
        ):
            raise ProtocolDesync(
                "the device has other ports than when it was opened", hint="Open the switch again."
            )
        return table

    def _read_queue(self) -> Queue:
        return self._query(codec.SHOW_QUEUE, decode_queue)

    def _read(self) -> Snapshot:
        """Read the queue, then the port table. In this order, a move that has left the queue shows its result."""
        with self._session.lock():
            self._queue = self._read_queue() if self._reports_queue else Queue()
            pending_moves = self._queue.list_moves(self._layout)
            table = self._query(codec.SHOW_PORTS, self._decode_ports)
        pending_pairs = {move.pair for move in pending_moves if move.kind == "connect" and move.pair}
        connections = table.find_connections(pending_pairs)
        is_removal_paired = self._board.is_paired and not self._timeouts.allow_one_way_removal
        two_way_circuits = (
            find_two_way_circuits(connections.pairs, self._layout) if is_removal_paired else frozenset()
        )
        return Snapshot(
            connections,
            self._clock.now(),
            unfit=table.find_unfit_ports(),
            tied=two_way_circuits,
            pending=pending_moves,
        )

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with their current state and number of moves; the label is the logical name."""
        table = self._retry(lambda: self._query(codec.SHOW_PORTS, self._decode_ports))
        return {
            port: PortInfo(
                port,
                Side.IN if row.side == "E" else Side.OUT,
                row.state,
                label=row.logical_name,
                name=row.name,
                moves=row.move_count,
            )
            for port, row in enumerate(table.ports, 1)
        }

    # -- planning

    def plan(
        self,
        target: CrossConnects,
        current: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Plan as every driver does, but join both directions of an AFM in one step.

        Raises also `PortError` for a circuit between two matrices.
        """
        try:
            steps = super().plan(target, current, scope)
        except PortBusy as busy:
            raise add_tie_hint(busy, current) from None
        check_one_matrix(steps, self._layout, device=self._address)
        return join_mirrored_steps(steps, self._layout) if self._dialect.has_logical_ports else steps

    # -- moving

    def _prepare_step(self, step: Step, guard: Guard) -> None:
        """Read again before the first write, because the last read may be old.

        Raises `RobotFault` for a stopped robot, and `Conflict` if another request waits for the same ports.
        """
        self._session.make_ready()
        snapshot = self.read()
        transaction.check_ports_unmoved(step, snapshot.connections, device=self._address)
        lines = [line for event in self.events() for line in event.lines]
        if reason := explain_standstill(self._queue, lines):  # a request would wait, and move fibres later
            raise RobotFault(reason, device=self._address, hint=codec.HOMING_HINT)
        conflict = find_conflict(step, snapshot, self._layout)
        if conflict is not None:
            raise conflict.locate(device=self._address)
        super()._prepare_step(step, guard)

    def _perform(self, step: Step, guard: Guard) -> None:
        """Send one request. The device answers before the robot starts.

        A broken connection does not end the step: the queue will show whether the device received the request.
        """
        del guard
        names = self._layout.find_request_names(step.pairs.pairs)
        if step.kind == "replace" or names is None:
            raise self._make_unsupported("several circuits at once")
        command = codec.format_connect if step.kind == "add" else codec.format_disconnect
        self._move = MoveState(self._clock.now(), self._session.event_count)
        try:
            self._session.ask(command(*names), codec.check_accepted)
        except TransportError as error:
            self._move.connection_error = error

    def _read_back(self, _step: Step) -> tuple[Snapshot | None, OcsError | None]:
        return self._read_after_outage(), None

    def _compute_timeout_s(self, snapshot: Snapshot) -> float:
        """Return a time above the limit of `_is_moving`, which raises a more specific error."""
        return self._timeout_s + self._timeouts.move_time_s[1] * (3 + len(snapshot.pending))

    def _is_moving(self, step: Step, snapshot: Snapshot) -> bool:
        """Return True while the move may continue. Raise the error that prevents it; see `wait.judge_progress`."""
        del snapshot  # `_is_step_pending` uses the queue of the same read
        try:
            is_pending = self._is_step_pending(step)
        except DeviceError as refusal:
            raise self._explain(refusal, step) from None
        except OcsError as fault:
            raise fault.locate(device=self._address) from None
        self._watch_queue(step)
        return is_pending

    def _is_step_pending(self, step: Step) -> bool:
        """Return True if the moves of a step are pending, according to the queue and the unsolicited lines."""
        pairs = step.pairs.pairs
        observation = Progress(
            self._clock.now(),
            self._queue,
            [*filter(None, [self._layout.find_request_names(pairs)]), *map(self._layout.get_names, pairs)],
            "connect" if step.kind == "add" else "disconnect",
            pending=self._queue.list_moves(self._layout),
            pairs=pairs,
            lines=[line for event in self.events(self._move.last_event_number) for line in event.lines],
            reports_queue=self._reports_queue,
        )
        return judge_progress(
            self._move,
            observation,
            longest_s=self._timeouts.move_time_s[1],
            grace_s=self._timeouts.homing_grace_s,
            poll_s=self.poll_s,
        )

    def _watch_queue(self, step: Step) -> None:
        """Poll only the queue, which is short, until the move leaves it or an error needs a full read."""
        try:
            while self._reports_queue and self._is_step_pending(step) and self._move.absent_since_s is None:
                self._progress.sleep(self.poll_s, len(self._queue.list_moves(self._layout)))
                self._queue = self._read_queue()
                self._record_disconnecting_pairs(self._queue.list_moves(self._layout))
        except OcsError:  # the next full read raises it again
            return

    # -- decisions of an operator

    def homing_run(self, guard: Guard = allow_all) -> None:
        """Home the robot, wait until it has recovered, and enable the execution of requests.

        Call it only after a person has inspected the robot: fibres move, and waiting requests are executed
        afterwards. Raises `RobotFault` if it does not recover, `Timeout` if it does not report recovery within
        `timeouts.homing_s`.
        """
        homing_s = max(self._timeouts.homing_s, self._timeout_s)
        with self._write_lock, self._session.lock():
            self._session.make_ready()
            try:
                guard()
                self._send_and_await(codec.HOMING_RUN, codec.RECOVERED_PATTERN, homing_s)
                guard()
                self._send_and_await(codec.ENABLE_COMMAND, codec.ENABLED_PATTERN, self._timeout_s)
            except OcsError as failure:
                raise failure.locate(device=self._address) from None

    def _send_and_await(self, command: str, pattern: re.Pattern[str], timeout_s: float) -> None:
        """Send a command, and wait until a line of the reply or an unsolicited line matches `pattern`."""
        deadline = Deadline(timeout_s, self._clock)
        last_event_number = self._session.event_count

        def decode_accepted(lines: tuple[str, ...]) -> tuple[str, ...]:
            codec.check_accepted(lines)
            return lines

        reply = self._session.ask(command, decode_accepted, timeout_s=timeout_s)
        while True:
            lines = [
                *reply,
                *(line for event in self._session.events(last_event_number) for line in event.lines),
            ]
            if any(pattern.search(line) for line in lines):
                return
            if failure := next((line for line in lines if codec.NOT_RECOVERED_PATTERN.search(line)), None):
                raise RobotFault(
                    "the robot did not recover",
                    sent=command,
                    received=failure,
                    hint="Call the vendor's service.",
                )
            if deadline.is_over:
                raise Timeout(
                    f"the device did not report completion within {timeout_s:.3g} s",
                    sent=command,
                    hint="Check the device; nothing else was sent.",
                )
            self._clock.sleep(min(self._timeouts.poll_s, max(deadline.remaining_s(), 0.001)))
            self._session.make_ready()
