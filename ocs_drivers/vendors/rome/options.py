"""Timeouts of the driver, and the options of an address that set them."""

from __future__ import annotations

from dataclasses import dataclass

from ocs_drivers.address import Address
from ocs_drivers.errors import AddressError

MOVE_TIME_S = (60.0, 120.0)
"""One move: typically (an assumption), and the longest that the public driver waits."""

POLL_S = 3.0
IDLE_LIMIT_S = 180.0
HOMING_S = 900.0

OPTIONS = ("move_s", "longest_s", "poll_s", "idle_s", "homing_s", "grace_s", "one_way")
"""Options of an address that `timeouts_in` reads."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Times that the driver waits.

    `move_time_s` is (typical, longest) for one move. `homing_grace_s`: the device shows `Perform "homing run"` in a
    capture of a move that went on, so a robot is taken as stopped when it shows that for so long with the same
    command in process; at once when none is. With `removes_one_way`, one direction of a two-way circuit may be removed
    from a device that says that its ports are paired.
    """

    move_time_s: tuple[float, float] = MOVE_TIME_S
    poll_s: float = POLL_S
    idle_limit_s: float = IDLE_LIMIT_S
    homing_s: float = HOMING_S
    homing_grace_s: float = MOVE_TIME_S[1]
    removes_one_way: bool = False


def timeouts_in(address: Address) -> Timeouts:
    """Return the timeouts that the options of an address give."""
    typical_s = _seconds(address, "move_s", MOVE_TIME_S[0])
    longest_s = max(typical_s, _seconds(address, "longest_s", MOVE_TIME_S[1]))
    return Timeouts(
        (typical_s, longest_s),
        poll_s=_seconds(address, "poll_s", POLL_S),
        idle_limit_s=_seconds(address, "idle_s", IDLE_LIMIT_S),
        homing_s=_seconds(address, "homing_s", HOMING_S),
        homing_grace_s=_seconds(address, "grace_s", longest_s),
        removes_one_way=_agrees(address, "one_way"),
    )


def _agrees(address: Address, option: str) -> bool:
    text = address.options.get(option, "no")
    if text not in {"yes", "no"}:
        raise AddressError(f"option {option} is yes or no, not {text!r}", device=str(address))
    return text == "yes"


def _seconds(address: Address, option: str, default_s: float) -> float:
    text = address.options.get(option)
    if text is None:
        return default_s
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise AddressError(f"option {option} is a number of seconds, not {text!r}", device=str(address))
    return seconds
