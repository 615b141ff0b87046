"""Admission of moves, and their progress: judged from the queue and from unsolicited lines. Pure.

in the queue                         wait, as long as the moves ahead of it and itself may take
in the queue of a robot that stopped RobotFault while the robot has it, Timeout (unknown) while it only waits
not in the queue any more            over; DeviceError when the device said that it failed
never in the queue, line broken      Timeout after a while: perhaps it was not received
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ocs_drivers.errors import Conflict, DeviceError, OcsError, RobotFault, Timeout, TransportError
from ocs_drivers.model import PendingMove, Snapshot, Step
from ocs_drivers.vendors.rome import codec
from ocs_drivers.vendors.rome.codec import Queue, Request
from ocs_drivers.vendors.rome.ports import Layout, Pair

POLLS_WHEN_LOST = 5
"""For how many polls the queue is looked at for a request of which nobody knows whether it was received."""


@dataclass(slots=True)
class Move:
    """One request under way: since when, and what was seen of it.

    `events_before` is the number of the last event before it was sent.
    """

    began_s: float
    events_before: int
    lost: TransportError | None = field(default=None)
    seen: bool = False
    absent_since_s: float | None = None
    allowed_s: float = 0.0
    halted: Request | None = None
    halted_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """State at one read: the time, the queue, and the unsolicited lines since the request.

    `names` are those by which the device may name the request, or a circuit of it.
    """

    now_s: float
    queue: Queue
    names: Collection[tuple[str, str]]
    command: str
    pending: tuple[PendingMove, ...]
    pairs: Collection[Pair]
    lines: Sequence[str]
    tells_queue: bool = True

    @property
    def ahead(self) -> int | None:
        """Number of moves that come before its last one; None when it is not in the queue."""
        turns: dict[Pair | None, int] = {}
        for turn, move in enumerate(self.pending):
            if move.kind == self.command and move.pair in self.pairs:
                turns.setdefault(move.pair, turn)
        return max(turns.values(), default=None)

    @property
    def is_running(self) -> bool:
        """True if the robot has it in its hand."""
        running = self.queue.running
        return (
            running is not None
            and running.command == self.command
            and any({running.one, running.other} == set(names) for names in self.names)
        )


def why_standing(queue: Queue, lines: Sequence[str]) -> str:
    """Return why a robot would not even begin, from the queue and all lines so far; empty when it would."""
    if queue.is_disabled or (queue.needs_homing and queue.running is None):
        return f"the robot executes nothing: {queue.status}"
    reported = [line for line in lines if codec.STOPPED.search(line) or codec.RECOVERED.search(line)]
    return reported[-1] if queue.needs_homing and reported and codec.STOPPED.search(reported[-1]) else ""


def claim_on(step: Step, seen: Snapshot, layout: Layout) -> Conflict | None:
    """Return the conflict with a waiting move of the same ports by somebody else; None when there is none."""
    ports = {port for pair in step.pairs.items() for port in pair}
    for move in seen.pending:
        if move.pair and ports & set(move.pair):
            by = (f" by {move.user}" if move.user else "") + (f" ({move.source})" if move.source else "")
            return Conflict(
                f"a request to {move.kind} {'-'.join(layout.names(move.pair))}{by} waits in the robot's queue",
                expected=step.before,
                found=seen.connections,
                ports=sorted(ports & set(move.pair)),
                hint="Wait until it is done, then read, and plan again from what is there.",
            )
    return None


def judge_progress(
    move: Move, progress: Progress, *, longest_s: float, grace_s: float, poll_s: float
) -> bool:
    """Return True to read again; the move was not made so far. Notes in `move` what was seen.

    Raises `RobotFault`, `DeviceError` and `Timeout` as the table above says.
    """
    ahead = progress.ahead
    move.seen = move.seen or ahead is not None
    if why := _why_stopped(move, progress, grace_s):
        raise _make_stopped(why, move, progress)
    if ahead is None and (failure := codec.failure_of(progress.lines, progress.names, progress.command)):
        raise DeviceError("the device reports that the request failed", received=failure)
    if ahead is None and progress.tells_queue:
        return _may_come(move, progress.now_s, poll_s)
    move.absent_since_s = None
    moves = len(progress.pairs) if ahead is None else 1 + ahead
    move.allowed_s = max(move.allowed_s, longest_s * moves)
    if progress.now_s - move.began_s < move.allowed_s:
        return True
    asks = ", and the device asks for a homing run" if progress.queue.needs_homing else ""
    raise _make_stopped(
        f"the robot has not finished the move within {move.allowed_s:.3g} s{asks}", move, progress
    )


def _may_come(move: Move, now_s: float, poll_s: float) -> bool:
    """Return True if a request that is not in the queue may still be made.

    One that is between the queue and the arm may be in neither for a moment, so one read is not enough.
    """
    if move.absent_since_s is None:
        move.absent_since_s = now_s
    absent_s = now_s - move.absent_since_s
    if move.seen or not move.lost:
        return absent_s < poll_s
    if absent_s < POLLS_WHEN_LOST * poll_s:
        return True
    raise Timeout(
        (
            f"the connection broke ({move.lost.what}) before the device acknowledged the request, and the "
            f"request was absent from the queue for {absent_s:.3g} s"
        ),
        hint="The move may still happen: check the device, then read and plan again.",
    )


def _why_stopped(move: Move, progress: Progress, grace_s: float) -> str:
    """Return why the robot will not go on; empty when it may."""
    stop = next((line for line in progress.lines if codec.STOPPED.search(line)), "")
    if stop:
        return stop
    if progress.queue.is_disabled:
        return f"the robot executes nothing: {progress.queue.status}"
    if not progress.queue.needs_homing:
        move.halted_since_s = None
        return ""
    if move.halted_since_s is None or move.halted != progress.queue.running:
        move.halted, move.halted_since_s = progress.queue.running, progress.now_s
    if progress.queue.running is None or progress.now_s - move.halted_since_s >= grace_s:
        return 'the device asks for a homing run: Perform "homing run"'
    return ""


def _make_stopped(why: str, move: Move, progress: Progress) -> OcsError:
    """Return the error for a robot that stands: with our fibre in its hand, or with our request in its queue."""
    if progress.ahead is not None and not progress.is_running:
        return Timeout(
            f"{why}; the request waits in the queue, and will be executed when the robot goes on",
            hint=codec.HOMING_HINT,
        )
    if move.lost and not move.seen:
        return Timeout(f"{why}; nobody knows whether the request was received", hint=codec.HOMING_HINT)
    return RobotFault(why, hint=codec.HOMING_HINT)
