"""The state machine that executes one step: send, settle, read until the step is complete or its time is up.

`TRANSITIONS` lists every transition. `StepExecution` has one action per state, which returns an event; the table
gives the next state. Once a byte has been sent, the outcome depends only on the configuration that
the driver reads back; nothing is sent twice.
The logger `ocs_drivers.progress` reports a long wait: one line every `LOG_INTERVAL_S` seconds.

    connect 1->10: 15 s so far; 2 moves in the device's queue
    connect 1->10: 20 s so far; no answer for 6 s, asking again
    connect 1->10: 25 s so far; no answer yet
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from ocs_drivers.contract import Guard
from ocs_drivers.engine.reports import describe_pairs
from ocs_drivers.engine.transaction import judge_step
from ocs_drivers.errors import Conflict, OcsError, Timeout, TransportError
from ocs_drivers.model import Outcome, Snapshot, Status, Step
from ocs_drivers.timing import Clock, Deadline, Silence

logger = logging.getLogger("ocs_drivers.progress")

LOG_INTERVAL_S = 5.0
"""Seconds between two progress lines of one wait."""

LOG_TIME_TOLERANCE_S = 0.001
"""Seconds by which a progress line may be early, because sums of floating-point seconds are not exact."""

_VERB_BY_STEP_KIND = {"add": "connect", "remove": "disconnect", "replace": "replace"}


class State(Enum):
    """State of a step after the guard has allowed it."""

    SENDING = auto()
    """The vendor's commands are sent; the guard is called before each command but the first."""
    SETTLING = auto()
    """The connection broke during a command: wait for the mirrors to settle."""
    READING = auto()
    """The device is read, and the configuration that it reports decides about the step."""
    WAITING = auto()
    """The device is still moving: a pause before the next read."""
    FINISHED = auto()


class StepEvent(Enum):
    """Event that ends the action of a state."""

    ACCEPTED = auto()
    REFUSED = auto()  # by the device, or by the caller's guard after the first command
    CONNECTION_LOST = auto()
    SETTLED = auto()
    COMPLETE = auto()
    UNREADABLE = auto()
    MOVING = auto()
    STOPPED = auto()  # not complete, and nothing moves any more
    FAULT = auto()  # the driver knows that the step cannot complete
    PAUSE_OVER = auto()
    OVERDUE = auto()


TRANSITIONS: Mapping[tuple[State, StepEvent], State] = {
    (State.SENDING, StepEvent.ACCEPTED): State.READING,
    (State.SENDING, StepEvent.REFUSED): State.READING,
    (State.SENDING, StepEvent.CONNECTION_LOST): State.SETTLING,
    (State.SETTLING, StepEvent.SETTLED): State.READING,
    (State.READING, StepEvent.COMPLETE): State.FINISHED,
    (State.READING, StepEvent.UNREADABLE): State.FINISHED,
    (State.READING, StepEvent.STOPPED): State.FINISHED,
    (State.READING, StepEvent.FAULT): State.FINISHED,
    (State.READING, StepEvent.MOVING): State.WAITING,
    (State.WAITING, StepEvent.PAUSE_OVER): State.READING,
    (State.WAITING, StepEvent.FAULT): State.FINISHED,
    (State.WAITING, StepEvent.OVERDUE): State.FINISHED,
}
"""All transitions; an event without an entry for the state is a bug."""


@dataclass(frozen=True, slots=True)
class StepHooks:
    """The vendor's part of a step: methods of `SwitchDriver`, and times.

    `settling_time_s` is the time that mirrors need to settle after the connection broke; 0 if reads show movement.
    With `watches_after_failure`, the driver reads until the device stops, even after a failed command. The wait ends
    when the device has not answered for the limit of `silence`; `progress` logs long waits. `explain_error` adds what
    the driver knows about an error; `find_timeout_s` returns the longest time that the step may take.
    """

    send_step: Callable[[Step, Guard], None]
    read_configuration: Callable[[Step], tuple[Snapshot | None, OcsError | None]]
    read_after_step: Callable[[Step], Snapshot]
    is_moving: Callable[[Step, Snapshot], bool]
    explain_error: Callable[[OcsError, Step], OcsError]
    find_timeout_s: Callable[[Snapshot], float]
    poll_intervals_s: Iterator[float]
    settling_time_s: float
    watches_after_failure: bool
    silence: Silence
    progress: ProgressLog


class _RecordingGuard:
    """Wrapper of the caller's guard that records the exception of the guard as `refusal`."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.refusal: Exception | None = None

    def __call__(self) -> None:
        try:
            self._guard()
        except Exception as refusal:
            self.refusal = refusal
            raise


class StepExecution:
    """Execution of one step; call `run` once."""

    def __init__(self, step: Step, guard: Guard, hooks: StepHooks, *, device: str, clock: Clock) -> None:
        self._step = step
        self._guard = _RecordingGuard(guard)
        self._hooks = hooks
        self._device = device
        self._clock = clock
        self._started_s = clock.now()
        self._last_read_s = 0.0
        self._failure: OcsError | None = None
        self._last_snapshot: Snapshot | None = None
        self._deadline: Deadline | None = None
        self._outcome: Outcome | None = None
        self._actions = {
            State.SENDING: self._send,
            State.SETTLING: self._settle,
            State.READING: self._read,
            State.WAITING: self._wait,
        }

    def run(self) -> Outcome:
        """Execute the step and return its outcome.

        Raise `Conflict` if the device refused because its circuits had changed; then nothing was done.
        """
        state = State.SENDING
        with self._hooks.silence.limit_waits(self._hooks.progress.log_query):
            while state is not State.FINISHED:
                state = self._advance(state)
        assert self._outcome is not None  # every transition to FINISHED follows a read or its failure
        return self._outcome

    def _advance(self, state: State) -> State:
        return TRANSITIONS[state, self._actions[state]()]

    def _send(self) -> StepEvent:
        try:
            self._hooks.send_step(self._step, self._guard)
        except Exception as failure:
            if failure is self._guard.refusal:
                self._failure = self._make_stop_error(failure)
            elif isinstance(failure, OcsError) and not isinstance(failure, Conflict):
                self._failure = failure
            else:
                raise
            return (
                StepEvent.CONNECTION_LOST if isinstance(self._failure, TransportError) else StepEvent.REFUSED
            )
        return StepEvent.ACCEPTED

    def _make_stop_error(self, guard_error: Exception) -> OcsError:
        if isinstance(guard_error, OcsError):
            return guard_error
        stop_error = OcsError(
            (
                "the caller stopped the step before its next command: "
                f"{str(guard_error) or type(guard_error).__name__}"
            ),
            device=self._device,
            hint="Read the switch and plan again from its state.",
        )
        stop_error.__cause__ = guard_error
        return stop_error

    def _settle(self) -> StepEvent:
        if self._hooks.settling_time_s:
            settled_s = self._started_s + self._hooks.settling_time_s
            self._clock.sleep(max(settled_s - self._clock.now(), 0.0))
        return StepEvent.SETTLED

    def _read(self) -> StepEvent:
        self._last_read_s = self._clock.now() - self._started_s
        self._last_snapshot = self._read_configuration()
        error = self._failure and self._hooks.explain_error(self._failure, self._step)
        outcome = self._judge(error)
        if self._last_snapshot is None:
            return StepEvent.UNREADABLE
        self._hooks.silence.record_answer()  # for third-party sessions that do not note answers themselves
        if outcome.status is Status.DONE:
            return StepEvent.COMPLETE
        self._deadline = self._deadline or Deadline(
            self._hooks.find_timeout_s(self._last_snapshot), self._clock
        )
        if self._failure is not None and not self._hooks.watches_after_failure:
            return StepEvent.STOPPED
        try:
            is_moving = self._hooks.is_moving(self._step, self._last_snapshot)
        except OcsError as fault:
            return self._judge_fault(fault)
        return StepEvent.MOVING if is_moving else StepEvent.STOPPED

    def _read_configuration(self) -> Snapshot | None:
        """Return the configuration of the device, or None if it no longer answers. Record the error as the failure."""
        if not isinstance(self._failure, TransportError):
            try:
                snapshot, step_error = self._hooks.read_configuration(self._step)
            except OcsError as error:
                self._failure = self._failure or error
            else:
                self._failure = self._failure or step_error
                return snapshot
        try:
            return self._hooks.read_after_step(self._step)
        except OcsError as second_error:
            second_error.__context__ = self._failure
            if isinstance(self._failure, Timeout) and isinstance(second_error, Timeout):
                # The device was silent during both reads. Only the second error holds the length of this silence.
                second_error.sent = self._failure.sent or second_error.sent
                self._failure = second_error.locate(device=self._device)
            return None

    def _wait(self) -> StepEvent:
        assert self._deadline is not None  # set by the read before this wait
        try:
            pause_s = next(self._hooks.poll_intervals_s)
        except OcsError as fault:
            return self._judge_fault(fault)
        if self._deadline.is_over:
            timeout = Timeout(
                f"the device is still moving after {self._deadline.timeout_s:.3g} s",
                device=self._device,
                hint="Look at the device; then read, and plan again from what it holds.",
            )
            self._judge(timeout)
            return StepEvent.OVERDUE
        pending_count = len(self._last_snapshot.pending) if self._last_snapshot else 0
        remaining_s = min(self._deadline.remaining_s(), self._hooks.silence.remaining_s())
        self._hooks.progress.sleep(min(pause_s, max(remaining_s, 0.001)), pending_count)
        return StepEvent.PAUSE_OVER

    def _judge_fault(self, fault: OcsError) -> StepEvent:
        """Judge the step with the more informative error: a timeout, or else the first failure."""
        self._judge(fault if self._failure is None or isinstance(fault, Timeout) else self._failure)
        return StepEvent.FAULT

    def _judge(self, error: OcsError | None) -> Outcome:
        self._outcome = judge_step(self._step, self._last_snapshot, device_s=self._last_read_s, error=error)
        return self._outcome


class ProgressLog:
    """Log of the wait for one step, and the pauses of that wait."""

    def __init__(self, step: Step | None, device: str, clock: Clock, silence: Silence) -> None:
        self._step = step
        self._device = device
        self._clock = clock
        self._silence = silence
        self._start_s = self._logged_s = clock.now()

    def log_wait(self, pending_count: int = 0) -> None:
        """Log a line if one is due; `pending_count` is the number of moves in the device's queue."""
        if self._silence.duration_s:
            self._log(f"no answer for {self._silence.duration_s:.0f} s, asking again")
        else:
            self._log(_describe_queue(pending_count))

    def log_query(self) -> float:
        """Log a line if one is due while an answer is awaited; return the seconds until the next line."""
        self._log("no answer yet")
        return self._compute_wait_s()

    def sleep(self, seconds: float, pending_count: int = 0) -> None:
        """Wait between two queries; log a line whenever one is due."""
        while (wait_s := self._compute_wait_s()) < seconds:
            self._clock.sleep(wait_s)
            seconds -= wait_s
            self._log(_describe_queue(pending_count))
        self._clock.sleep(seconds)

    def _compute_wait_s(self) -> float:
        wait_s = self._logged_s + LOG_INTERVAL_S - self._clock.now()
        return wait_s if wait_s > LOG_TIME_TOLERANCE_S else 0.0

    def _log(self, detail: str) -> None:
        if self._compute_wait_s():
            return
        self._logged_s = now_s = self._clock.now()
        if self._step is not None:
            action = f"{_VERB_BY_STEP_KIND[self._step.kind]} {describe_pairs(self._step.pairs.items())}"
            text = f"{action}: {now_s - self._start_s:.0f} s so far"
            logger.info("%s: %s", self._device, "; ".join(filter(None, (text, detail))))


def _describe_queue(pending_count: int) -> str:
    return (
        f"{pending_count} move{'' if pending_count == 1 else 's'} in the device's queue"
        if pending_count
        else ""
    )
