"""Checks before a move, and its progress, judged from the queue and from unsolicited lines. Pure.

request                              result
in the queue                         wait, up to the longest time of this move and the moves ahead of it
in the queue of a stopped robot      RobotFault if it is in process, Timeout (unknown) if it waits
no longer in the queue               over; DeviceError if the device reported a failure
never in the queue, connection lost  Timeout after `MAX_POLLS_WHEN_LOST` polls: the device may not have received it
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ocs_drivers.errors import Conflict, DeviceError, OcsError, RobotFault, Timeout, TransportError
from ocs_drivers.model import PendingMove, Snapshot, Step
from ocs_drivers.vendors.rome import codec
from ocs_drivers.vendors.rome.codec import Queue, Request
from ocs_drivers.vendors.rome.ports import Layout, Pair

MAX_POLLS_WHEN_LOST = 5
"""Number of polls that wait for a request to appear in the queue if the connection broke while it was sent."""


@dataclass(slots=True)
class MoveState:
    """State of one request, from its start.

    `last_event_number` is the number of the last event before the request. `was_queued` is True once the request was
    in the queue. `connection_error` is the error of a connection that broke during the request. `halted_request` is
    the command in process since `halted_since_s`, while the device asks for a homing run.
    """

    start_s: float
    last_event_number: int
    connection_error: TransportError | None = field(default=None)
    was_queued: bool = False
    absent_since_s: float | None = None
    time_limit_s: float = 0.0
    halted_request: Request | None = None
    halted_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """State at one read: the time, the queue, and the unsolicited lines since the request.

    `names` are the pairs of names under which the device may list the request or one of its circuits.
    """

    now_s: float
    queue: Queue
    names: Collection[tuple[str, str]]
    command: str
    pending: tuple[PendingMove, ...]
    pairs: Collection[Pair]
    lines: Sequence[str]
    reports_queue: bool = True

    @property
    def moves_ahead(self) -> int | None:
        """Number of moves before the last one of this request; None if it is not in the queue."""
        queue_positions: dict[Pair | None, int] = {}
        for position, move in enumerate(self.pending):
            if move.kind == self.command and move.pair in self.pairs:
                queue_positions.setdefault(move.pair, position)
        return max(queue_positions.values(), default=None)

    @property
    def is_running(self) -> bool:
        """True if the request is in process."""
        running_request = self.queue.running_request
        return (
            running_request is not None
            and running_request.command == self.command
            and any({running_request.port_a, running_request.port_b} == set(names) for names in self.names)
        )


def explain_standstill(queue: Queue, lines: Sequence[str]) -> str:
    """Return why the robot would not start a request, or "" if it would. `lines` are all unsolicited lines so far."""
    if queue.is_disabled or (queue.needs_homing and queue.running_request is None):
        return f"the robot executes nothing: {queue.status}"
    reported_lines = [
        line for line in lines if codec.STOPPED_PATTERN.search(line) or codec.RECOVERED_PATTERN.search(line)
    ]
    return (
        reported_lines[-1]
        if queue.needs_homing and reported_lines and codec.STOPPED_PATTERN.search(reported_lines[-1])
        else ""
    )


def find_conflict(step: Step, snapshot: Snapshot, layout: Layout) -> Conflict | None:
    """Return the conflict with another request that waits for the same ports, or None."""
    ports = {port for pair in step.pairs.items() for port in pair}
    for move in snapshot.pending:
        if move.pair and ports & set(move.pair):
            requester = (f" by {move.user}" if move.user else "") + (
                f" ({move.source})" if move.source else ""
            )
            return Conflict(
                f"a request to {move.kind} {'-'.join(layout.get_names(move.pair))}{requester} "
                "waits in the robot's queue",
                expected=step.before,
                actual=snapshot.connections,
                ports=sorted(ports & set(move.pair)),
                hint="Wait until it is done, then read, and plan again from what is there.",
            )
    return None


def judge_progress(
    move: MoveState, observation: Progress, *, longest_s: float, grace_s: float, poll_s: float
) -> bool:
    """Return True while the move may continue, False if it is over. Update `move`.

    Raises `RobotFault`, `DeviceError` and `Timeout` as in the table in the module docstring.
    """
    moves_ahead_count = observation.moves_ahead
    move.was_queued = move.was_queued or moves_ahead_count is not None
    if reason := _explain_stop(move, observation, grace_s):
        raise _make_stop_error(reason, move, observation)
    if moves_ahead_count is None and (
        failure := codec.find_failure(observation.lines, observation.names, observation.command)
    ):
        raise DeviceError("the device reports that the request failed", received=failure)
    if moves_ahead_count is None and observation.reports_queue:
        return _may_still_execute(move, observation.now_s, poll_s)
    move.absent_since_s = None
    move_count = len(observation.pairs) if moves_ahead_count is None else 1 + moves_ahead_count
    move.time_limit_s = max(move.time_limit_s, longest_s * move_count)
    if observation.now_s - move.start_s < move.time_limit_s:
        return True
    homing_note = ", and the device asks for a homing run" if observation.queue.needs_homing else ""
    raise _make_stop_error(
        f"the robot has not finished the move within {move.time_limit_s:.3g} s{homing_note}",
        move,
        observation,
    )


def _may_still_execute(move: MoveState, now_s: float, poll_s: float) -> bool:
    """Return True if a request that is not in the queue may still be executed.

    A request may be neither in the queue nor in process for a moment, so one read is not enough.
    """
    if move.absent_since_s is None:
        move.absent_since_s = now_s
    absent_s = now_s - move.absent_since_s
    if move.was_queued or not move.connection_error:
        return absent_s < poll_s
    if absent_s < MAX_POLLS_WHEN_LOST * poll_s:
        return True
    raise Timeout(
        (
            f"the connection broke ({move.connection_error.problem}) before the device acknowledged the request, "
            f"and the request was absent from the queue for {absent_s:.3g} s"
        ),
        hint="The move may still happen: check the device, then read and plan again.",
    )


def _explain_stop(move: MoveState, observation: Progress, grace_s: float) -> str:
    """Return why the robot has stopped; empty if it may continue."""
    stop_line = next((line for line in observation.lines if codec.STOPPED_PATTERN.search(line)), "")
    if stop_line:
        return stop_line
    if observation.queue.is_disabled:
        return f"the robot executes nothing: {observation.queue.status}"
    if not observation.queue.needs_homing:
        move.halted_since_s = None
        return ""
    if move.halted_since_s is None or move.halted_request != observation.queue.running_request:
        move.halted_request, move.halted_since_s = observation.queue.running_request, observation.now_s
    if observation.queue.running_request is None or observation.now_s - move.halted_since_s >= grace_s:
        return 'the device asks for a homing run: Perform "homing run"'
    return ""


def _make_stop_error(reason: str, move: MoveState, observation: Progress) -> OcsError:
    """Return the error for a stopped robot: `RobotFault`, or `Timeout` if our request waits or may not have arrived."""
    if observation.moves_ahead is not None and not observation.is_running:
        return Timeout(
            f"{reason}; the request waits in the queue, and will be executed when the robot goes on",
            hint=codec.HOMING_HINT,
        )
    if move.connection_error and not move.was_queued:
        return Timeout(f"{reason}; nobody knows whether the request was received", hint=codec.HOMING_HINT)
    return RobotFault(reason, hint=codec.HOMING_HINT)
