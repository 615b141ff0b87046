"""A Telescent robotic patch panel over its command line.

One arm makes one move after another, each of about a minute. The device answers a command before the robot has moved,
so the driver polls the table until a step is complete. This driver never homes the robot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TypeVar

from ocs_drivers.contract import Guard
from ocs_drivers.engine import planning, transaction
from ocs_drivers.engine.driver import SwitchDriver
from ocs_drivers.errors import DeviceError, OcsError, ProtocolDesync, RobotFault, Timeout, TransportError
from ocs_drivers.model import (
    Capabilities,
    CrossConnects,
    Identity,
    PortInfo,
    PortState,
    Side,
    Snapshot,
    Step,
)
from ocs_drivers.protocols.cli_session import CliSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transports.transport import Transport, make_connection_lost
from ocs_drivers.vendors.telescent import codec
from ocs_drivers.vendors.telescent.codec import CommandSet, InputReading, Numbering, OutputTable

_T = TypeVar("_T")

IDLE_LIMIT_S = 180.0
"""Idle time after which the device silently drops a connection."""

MOVE_TIME_S = (60.0, 1800.0)
"""Duration of one move: typical, and the longest wait of the public driver."""

POLL_S = 5.0
"""Pause between two reads of the table, as in the public driver."""


@dataclass(frozen=True, slots=True)
class Options:
    """Timeouts and flags of one driver.

    `move_time_s` is (typical, longest) for one move. With `allow_locked`, ports that somebody else has locked are
    unlocked and used. Set `has_echo` to False for a device that does not echo commands.
    """

    move_time_s: tuple[float, float] = MOVE_TIME_S
    poll_s: float = POLL_S
    idle_limit_s: float = IDLE_LIMIT_S
    allow_locked: bool = False
    has_echo: bool = True


@dataclass(slots=True)
class _MoveState:
    """State of one step: its start, and its longest time.

    `was_commanded` is True once the robot was commanded to move, `was_pending` once the table showed it as pending.
    `uncertain_move_error` is an error after which it is uncertain whether the robot moves.
    """

    start_s: float
    time_limit_s: float = 0.0
    was_commanded: bool = False
    was_pending: bool = False
    uncertain_move_error: OcsError | None = None


class TelescentCli(SwitchDriver):
    """Driver of one Telescent frame over any transport. Call `open` first.

    `timeout_s` bounds every wait for an answer. A move may take `options.move_time_s[1]`, plus the same time for every
    pending move of the device.
    """

    _session: CliSession

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        timeout_s: float,
        clock: Clock = SYSTEM_CLOCK,
        commands: CommandSet | None = None,
        options: Options | None = None,
    ) -> None:
        self._commands = commands or CommandSet()
        self._options = options or Options()
        self._session = CliSession(
            transport,
            device=address,
            timeout_s=timeout_s,
            clock=clock,
            prompt=re.compile(self._commands.prompt),
            idle_limit_s=self._options.idle_limit_s,
            has_echo=self._options.has_echo,
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)
        self.poll_s = self._options.poll_s
        self._numbering = Numbering(0)
        self._move = _MoveState(clock.now())

    # -- reading

    def _discover(self) -> tuple[Identity, Capabilities]:
        """Read the size from the table, and check that the table is complete.

        No command for model, serial number or firmware is published. The serial number of a twin is `SIMULATED`, from
        its banner.
        """
        size = len(self._session.ask(self._commands.table, self._decode_table).cells)
        if self._has_input(size):
            self._session.disconnect()
            raise ProtocolDesync(
                f"the table ends before port {size}, which the device has", device=self._address
            )
        self._numbering = Numbering(size)
        banner = [line for event in self._session.events(0) for line in event.lines]
        return Identity("Telescent", "NTM", codec.decode_serial(banner), ""), Capabilities(
            size,
            size,
            serial_robot=True,
            login=True,
            session_timeout_s=self._options.idle_limit_s,
            switch_time_s=self._options.move_time_s,
        )

    def _has_input(self, number: int) -> bool:
        try:
            self._session.ask(f"{self._commands.input_state} {number}", self._decode_input)
        except (DeviceError, ProtocolDesync):  # refused, or invalid
            return False
        return True

    def _decode_table(self, lines: tuple[str, ...]) -> OutputTable:
        return OutputTable(codec.decode_cells(lines, self._commands), self._commands)

    def _decode_input(self, lines: tuple[str, ...]) -> InputReading:
        return codec.decode_input(lines, self._commands)

    def _read(self) -> Snapshot:
        table = self._read_table()
        unfit_ports = table.find_unfit_ports(allow_locked=self._options.allow_locked)
        return Snapshot(table.connections, self._clock.now(), unfit=unfit_ports, pending=table.pending_moves)

    def _read_table(self) -> OutputTable:
        return self._ask_twice(self._commands.table, self._decode_complete_table)

    def _ask_twice(self, command: str, decode: Callable[[tuple[str, ...]], _T]) -> _T:
        """Return the answer to a query. Send it again after a timeout, because a garbled prompt also causes one."""
        try:
            return self._session.ask_with_retry(command, decode)
        except Timeout:
            return self._session.ask_with_retry(command, decode)

    def _decode_complete_table(self, lines: tuple[str, ...]) -> OutputTable:
        table, size = self._decode_table(lines), self._numbering.port_count
        if len(table.cells) != size:
            raise ProtocolDesync(
                f"the table shows {len(table.cells)} of {size} outputs", received=" ".join(lines)
            )
        _ = table.connections  # raises for an inconsistent table
        return table

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with their current state.

        The table lists only outputs. Each input without a circuit needs a query, which is slow on a large frame.
        """
        with self._session.lock():
            table = self._retry(self._read_table)
            connections = table.connections
            input_states = {
                port: self._read_input_state(port, connections) for port in range(1, len(table.cells) + 1)
            }
        return {
            port: PortInfo(port, side, state, name=self._numbering.get_name(port))
            for side, states in ((Side.IN, input_states), (Side.OUT, table.output_states))
            for port, state in states.items()
        }

    def _read_input_state(self, port: int, connections: CrossConnects) -> PortState:
        if port in connections or not self._retry(lambda: self._read_input(port)).is_reserved:
            return PortState.ENABLED
        return PortState.LOCKED

    def _read_input(self, port: int) -> InputReading:
        return self._ask_twice(
            f"{self._commands.input_state} {self._numbering.get_name(port)}", self._decode_input
        )

    # -- moving

    def _prepare_step(self, step: Step, guard: Guard) -> None:
        """Read the inputs of the step again before the first write, because the last read may be minutes old."""
        self._session.make_ready()
        for source, output in step.pairs.items():
            self._check_input(step, source, output)
        super()._prepare_step(step, guard)

    def _check_input(self, step: Step, source: int, output: int) -> None:
        reading = self._retry(lambda: self._read_input(source))
        expected_output = (
            self._numbering.convert_to_device_pair((source, output))[1] if step.kind == "remove" else None
        )
        actual_output = reading.output if reading.is_allocated else None
        if actual_output != expected_output:
            raise transaction.make_conflict(step.before, self.read().connections, device=self._address)
        if reading.is_reserved and not self._options.allow_locked:
            raise planning.make_unfit_error(
                PortState.LOCKED, (source,), device=self._address, received=reading.state
            )

    def _perform(self, step: Step, guard: Guard) -> None:
        """Send the commands of one move. The device answers them before the robot starts."""
        if step.kind == "replace" or len(step.pairs) != 1:
            raise self._make_unsupported("several circuits at once")
        (pair,) = step.pairs.items()
        source, output = self._numbering.convert_to_device_pair(pair)
        make_commands = (
            self._commands.make_connect_commands
            if step.kind == "add"
            else self._commands.make_disconnect_commands
        )
        self._move = _MoveState(self._clock.now())
        for number, (command, moves_robot) in enumerate(make_commands(source, output)):
            if number and not self._move.was_commanded:  # once the robot moves, it is too late to stop
                guard()
            self._send_command(command, moves_robot=moves_robot)
            if self._move.uncertain_move_error:
                return

    def _send_command(self, command: str, *, moves_robot: bool) -> None:
        """Send one command.

        If the connection breaks during a command that moves the robot, the device may have received the command. If the
        device refuses the second move of a removal, the first move has started. In both cases this sets
        `uncertain_move_error`. Raise `ConnectionLost` if the connection breaks before a command that moves the robot.
        """
        move = self._move
        try:
            self._session.ask(command, self._check_accepted)
        except TransportError as error:
            if not moves_robot:
                raise make_connection_lost(
                    self._address, f"before the robot was commanded to move: {error.problem}"
                ) from error
            move.uncertain_move_error = error
        except (DeviceError, RobotFault) as refusal:
            if not move.was_commanded:
                raise
            move.uncertain_move_error = refusal
        move.was_commanded = move.was_commanded or moves_robot

    def _check_accepted(self, lines: tuple[str, ...]) -> None:
        codec.check_accepted(lines, self._commands)

    def _read_back(self, step: Step) -> tuple[Snapshot | None, OcsError | None]:
        del step
        return self._read_after_outage(), None

    def _yield_pauses(self) -> Iterator[float]:
        """Yield equal pauses between reads, because a robot is always slow."""
        return repeat(self.poll_s)

    def _is_moving(self, step: Step, snapshot: Snapshot) -> bool:
        """Return True if the robot may still make the move, so that the caller reads again.

        Return False once the move was pending and no longer is. After the longest time, raise the refusal of the second
        move of a removal, `Timeout` if the connection broke and the move was never pending, or else `RobotFault`.
        """
        move, pending = self._move, snapshot.pending
        is_at_work = any(pending_move.pair in step.pairs.pairs for pending_move in pending)
        if move.was_pending and not is_at_work:
            return False
        move.was_pending = move.was_pending or is_at_work
        typical_s, longest_s = self._options.move_time_s
        move_s = 2 * typical_s if move.uncertain_move_error and not move.was_pending else longest_s
        move.time_limit_s = max(move.time_limit_s, move_s * (1 + len(pending)))
        if self._clock.now() - move.start_s < move.time_limit_s:
            return True
        raise self._make_overdue_error(move)

    def _make_overdue_error(self, move: _MoveState) -> OcsError:
        # The device refused the second move of a removal, and the time of the first move is up.
        if isinstance(move.uncertain_move_error, DeviceError | RobotFault):
            return move.uncertain_move_error
        if move.uncertain_move_error and not move.was_pending:
            return Timeout(
                f"the move was not made within {move.time_limit_s:.3g} s, and it is not certain that the device"
                " received "
                f"it: {move.uncertain_move_error.problem}",
                device=self._address,
                sent=move.uncertain_move_error.sent,
                hint="The move may still happen: check the device, then read and plan again.",
            )
        return RobotFault(
            f"the robot has not made the move within {move.time_limit_s:.3g} s",
            device=self._address,
            hint="Have the robot inspected and homed from its console; this driver never homes it. Then run "
            "`testbed switch ADDRESS read`.",
        )
