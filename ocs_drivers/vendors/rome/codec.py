"""Commands, unsolicited lines and refusals of ROME and AFM. Pure.

OK - request added to pending queue (E3-W4)                                        accepted; the prompt is back
08-05-2019 09:20 CONNECTING...                                                     unsolicited, from here on
08-05-2019 09:20 CONNECTION OPERATION SUCCEEDED:E3[1AE3]<->W4[1AW4] OP:connect
08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect
Multiple Cross Connect Severe Failure                                              the robot has stopped
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from ocs_drivers.errors import DeviceError, PortError, RobotFault

SHOW_BOARD = "show board"
SHOW_PORTS = "port show"
SHOW_LOGICAL = "port show logic table"
SHOW_QUEUE = "connection show pending"
HOMING_RUN = "homing run"
ENABLE = "connection set command-execution enable"

PROMPT = re.compile(r"[\w.-]+\[\w+\]#")

UNSOLICITED = re.compile(
    r"(?=\d{1,2}-\d{1,2}-\d{2,4} \d{1,2}:\d{2}\b|Multiple Cross Connect|RECOVERY (?:FINISHED|FAILED|STARTED)"
    r"|Ports details:|\[[EW]\d+\[)"
    r"(?:[\d-]+ [\d:]+\s*)?(?P<kind>[A-Za-z]{2,}(?: [A-Za-z]{2,})*)?"
)
"""Lines that come at any time, most of them with the date before them; `kind` is the text before any port."""

RECOVERED = re.compile(r"RECOVERY FINISHED SUCCESSFULLY", re.IGNORECASE)
NOT_RECOVERED = re.compile(r"RECOVERY (?:FINISHED (?!SUCCESSFULLY)|FAILED)", re.IGNORECASE)
ENABLED = re.compile(r"connection execution is enabled", re.IGNORECASE)
STOPPED = re.compile(r"Cross Connect Severe Failure", re.IGNORECASE)

_FAILED = re.compile(
    r"OPERATION (?:VALIDATION )?FAILED:\s*(?P<one>[EW]?\d+)(?:\[\w+\])?(?:-|<->)(?P<other>[EW]?\d+)(?:\[\w+\])?"
    r".*?(?:requestType=|OP:)(?P<command>\w+)",
    re.IGNORECASE,
)
_OTHER_MATRIX = re.compile(r"ports\s+are\s+not\s+of\s+the\s+same\s+matrix", re.IGNORECASE)
_REFUSAL = re.compile(r"\berror\b|\binvalid\b|unknown command", re.IGNORECASE)

HOMING_HINT = (
    "Have somebody look at the robot, then home it: `testbed switch ADDRESS home`, or `homing_run()` in Python; "
    "this driver never does that by itself."
)


def connecting(source: str, output: str) -> str:
    """Return the command that asks for one circuit in one direction.

    >>> connecting("E3", "W4")
    'connection create E3 to W4'
    """
    return f"connection create {source} to {output}"


def disconnecting(source: str, output: str) -> str:
    """Return the command that asks for one circuit to be taken down."""
    return f"connection disconnect {source} from {output}"


def check_accepted(lines: Sequence[str]) -> None:
    """Raise what a reply objects: `PortError`, `RobotFault` or `DeviceError`.

    >>> check_accepted(["Ports are not of the same matrix"])
    Traceback (most recent call last):
    ...
    ocs_drivers.errors.PortError: Ports are not of the same matrix. Choose two ports of one matrix.
    """
    for line in lines:
        if _OTHER_MATRIX.search(line):
            raise PortError(line.strip(), hint="Choose two ports of one matrix.")
        if STOPPED.search(line):
            raise RobotFault(line.strip(), hint=HOMING_HINT)
        if _REFUSAL.search(line):
            raise DeviceError(line.strip(), device_code="ERROR")


def failure_of(lines: Iterable[str], names: Collection[tuple[str, str]], command: str) -> str | None:
    """Return the line that says that this very request has failed, or was not even valid, by any of its names.

    >>> failure_of(
    ...     ["08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect"],
    ...     [("E6", "W4")],
    ...     "connect",
    ... )
    '08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect'
    """
    for line in lines:
        match = _FAILED.search(line)
        if match is None or match["command"].lower() != command:
            continue
        typed = {match["one"].upper(), match["other"].upper()}  # as somebody typed them
        if any(typed == set(pair) for pair in names):
            return line
    return None
