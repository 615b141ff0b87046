"""Options of a Telescent's driver: how long it waits, and what it may do with locked ports."""

from __future__ import annotations

from dataclasses import dataclass

IDLE_LIMIT_S = 180.0
"""The device leaves a connection to die that was idle for so long."""

MOVE_TIME_S = (60.0, 1800.0)
"""One move of the robot: typically, and the longest that the public driver waits."""

POLL_S = 5.0
"""Between two reads of the table, as the public driver does."""


@dataclass(frozen=True, slots=True)
class Options:
    """Times to wait and liberties to take, of one driver.

    `move_time_s` is (typical, longest) for one move. With `force`, ports that somebody else has locked are
    unlocked and used. A device that does not repeat what is typed is asked with `echoes` False.
    """

    move_time_s: tuple[float, float] = MOVE_TIME_S
    poll_s: float = POLL_S
    idle_limit_s: float = IDLE_LIMIT_S
    force: bool = False
    echoes: bool = True
