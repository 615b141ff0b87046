"""A homing run: said only when an operator asks for it, and waited for until the device says how it ended."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ocs_drivers.errors import RobotFault, Timeout
from ocs_drivers.protocols.cli_session import CliSession
from ocs_drivers.timing import Clock, Deadline
from ocs_drivers.vendors.rome import codec
from ocs_drivers.vendors.rome.options import Timeouts


def recover(session: CliSession, timeouts: Timeouts, clock: Clock, *, timeout_s: float) -> None:
    """Home the robot. Raises `RobotFault` when it does not recover, `Timeout` when it does not say so."""
    deadline = Deadline(max(timeouts.homing_s, timeout_s), clock)
    _say_until(session, codec.HOMING_RUN, codec.RECOVERED, deadline, clock=clock, poll_s=timeouts.poll_s)


def enable(session: CliSession, timeouts: Timeouts, clock: Clock, *, timeout_s: float) -> None:
    """Make the robot execute requests again. Raises `Timeout` when the device does not say that it does."""
    deadline = Deadline(timeout_s, clock)
    _say_until(session, codec.ENABLE, codec.ENABLED, deadline, clock=clock, poll_s=timeouts.poll_s)


def _say_until(
    session: CliSession,
    command: str,
    wanted: re.Pattern[str],
    deadline: Deadline,
    *,
    clock: Clock,
    poll_s: float,
) -> None:
    """Send a command, and wait until the device says `wanted`, in its reply or unsolicited afterwards."""
    before = session.event_count
    reply = session.ask(command, _unless_refused, timeout_s=deadline.timeout_s)
    while True:
        lines = [*reply, *(line for event in session.events(before) for line in event.lines)]
        if any(wanted.search(line) for line in lines):
            return
        _check_can_recover(lines, command, deadline)
        clock.sleep(min(poll_s, max(deadline.remaining_s(), 0.001)))
        session.ready()


def _unless_refused(lines: tuple[str, ...]) -> tuple[str, ...]:
    codec.check_accepted(lines)
    return lines


def _check_can_recover(lines: Sequence[str], command: str, deadline: Deadline) -> None:
    failed = next((line for line in lines if codec.NOT_RECOVERED.search(line)), None)
    if failed is not None:
        raise RobotFault(
            "the robot did not recover", sent=command, received=failed, hint="Call the vendor's service."
        )
    if deadline.passed:
        raise Timeout(
            f"the device did not say that it was done within {deadline.timeout_s:.3g} s",
            sent=command,
            hint="Look at the device; nothing else was sent.",
        )
