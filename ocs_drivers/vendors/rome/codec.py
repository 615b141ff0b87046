"""Codec of ROME and AFM: commands, refusals, unsolicited lines, `show board` and the robot's queue. Pure.

OK - request added to pending queue (E3-W4)                                        accepted; the prompt is back
08-05-2019 09:20 CONNECTING...                                                     unsolicited, from here on
08-05-2019 09:20 CONNECTION OPERATION SUCCEEDED:E3[1AE3]<->W4[1AW4] OP:connect
08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect
Multiple Cross Connect Severe Failure                                              the robot has stopped

The queue also holds the requests of other users:

Connection execution status: enabled
Command in process:
connect, ports: E3-W4, status: in process with payload
======= ========= ========= ================== ======= ===================
Request Port1     Port2     Command            Source  User
======= ========= ========= ================== ======= ===================
772     A1        A2        connect            CLI     admin

The two families differ in the heading of `show board`, its sizes, and the columns of `port show` (a `Dialect`).
Published captures show these columns:

E249[1BE121]     Unlocked     Enabled     Connected     13      W253[1BW125]   B249       ROME
1AE12            Unlocked     Enabled     Connected     17      W60[1AW60]     E12,A12    ROME, other releases
1AE129           Unlocked     Enabled     Disconnected  0                                 ROME, a spare place
E5      1      2      1      w5      W6               1      765                          AFM
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ocs_drivers.errors import DeviceError, PortError, ProtocolDesync, RobotFault
from ocs_drivers.model import Identity, PendingMove
from ocs_drivers.vendors.rome.ports import Layout, Pair

SHOW_BOARD = "show board"
SHOW_PORTS = "port show"
SHOW_LOGICAL = "port show logic table"
SHOW_QUEUE = "connection show pending"
HOMING_RUN = "homing run"
ENABLE_COMMAND = "connection set command-execution enable"

PROMPT = re.compile(r"[\w.-]+\[\w+\]#")

UNSOLICITED_PATTERN = re.compile(
    r"(?=\d{1,2}-\d{1,2}-\d{2,4} \d{1,2}:\d{2}\b|Multiple Cross Connect|RECOVERY (?:FINISHED|FAILED|STARTED)"
    r"|Ports details:|\[[EW]\d+\[)"
    r"(?:[\d-]+ [\d:]+\s*)?(?P<kind>[A-Za-z]{2,}(?: [A-Za-z]{2,})*)?"
)
"""Lines that may arrive at any time, most of them with a date; `kind` is the text before any port."""

RECOVERED_PATTERN = re.compile(r"RECOVERY FINISHED SUCCESSFULLY", re.IGNORECASE)
NOT_RECOVERED_PATTERN = re.compile(r"RECOVERY (?:FINISHED (?!SUCCESSFULLY)|FAILED)", re.IGNORECASE)
ENABLED_PATTERN = re.compile(r"connection execution is enabled", re.IGNORECASE)
STOPPED_PATTERN = re.compile(r"Cross Connect Severe Failure", re.IGNORECASE)

_FAILED_REQUEST = re.compile(
    r"OPERATION (?:VALIDATION )?FAILED:\s*(?P<one>[EW]?\d+)(?:\[\w+\])?(?:-|<->)(?P<other>[EW]?\d+)(?:\[\w+\])?"
    r".*?(?:requestType=|OP:)(?P<command>\w+)",
    re.IGNORECASE,
)
_OTHER_MATRIX = re.compile(r"ports\s+are\s+not\s+of\s+the\s+same\s+matrix", re.IGNORECASE)
_REFUSAL = re.compile(r"\berror\b|\binvalid\b|unknown command", re.IGNORECASE)

_SERIAL = re.compile(r"^BOARD\b.*S/N\((?P<serial>[^)]*)\)", re.MULTILINE)
_FIRMWARE = re.compile(r"^ACTIVE SW VER\s+(?P<version>\S+)", re.MULTILINE)
_PAIRED = re.compile(r"^PAIRED PORT\s+Enabled\b", re.MULTILINE | re.IGNORECASE)
_LAST_LINE = "AUTHENTICATION"

_STATUS = re.compile(r"Connection execution status:\s*(?P<status>.*)", re.IGNORECASE)
_HOMING = re.compile(r'Perform\s+"?homing run"?', re.IGNORECASE)
_RUNNING_REQUEST = re.compile(
    r"\s*(?P<command>(?:dis)?connect), ports: (?P<one>[A-Z]?\d+)-(?P<other>[A-Z]?\d+)\b.*", re.IGNORECASE
)
_RULE = re.compile(r"\s*=+(?:\s+=+)+\s*")
_REQUEST = re.compile(
    r"\s*(?P<number>\d+)\s+(?P<one>[A-Z]?\d+)\s+(?P<other>[A-Z]?\d+)\s+(?P<command>(?:dis)?connect)"
    r"(?:\s+(?P<source>\S+)(?:\s+(?P<user>\S.*))?)?",
    re.IGNORECASE,
)
_NUMBERED_LINE = re.compile(r"\s*\d+(?:\s|$)")

HOMING_HINT = (
    "Have somebody look at the robot, then home it: `testbed switch ADDRESS home`, or `homing_run()` in Python; "
    "this driver never does that by itself."
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One device family on this command line.

    `family` starts the heading of `show board`. `size_pattern` matches one entry of its MATRIX SIZE, with groups
    `side` and `last`. `row_pattern` matches one port of `port show`, with the groups that `port_table` reads; it must
    match in text without line ends. With `has_logical_ports`, the device has a table of logical ports, and one request
    makes or removes both circuits between two logical ports.
    """

    family: str
    vendor: str
    size_pattern: re.Pattern[str]
    row_pattern: re.Pattern[str]
    has_logical_ports: bool = False


ROME = Dialect(
    family="ROME",
    vendor="Wave2Wave",
    size_pattern=re.compile(r"(?:Male|Female)/(?P<side>West|East)\s+\d+\.\.(?P<last>\d{1,9})(?!\d)"),
    row_pattern=re.compile(
        r"(?<!\S)(?:(?P<port>[EW]\d{1,9})\[(?P<place>\w+)\]|(?P<bare>\d+[A-Z][EW]\d+))"
        r"\s+(?P<lock>Locked|Unlocked)\s+(?P<admin>Enabled|Disabled)"
        r"\s+(?P<state>Connected|Disconnected|In process)\s+(?P<counter>\d{1,9})(?!\S)"
        r"(?:\s+(?P<peer>[EW]\d+)\[\w+\](?!\s+(?:Un)?locked))?"
        r"(?:\s+(?:(?P<alias>[EW]\d{1,9})\s*,\s*)?(?P<logical>[A-Z]\d+)(?!\S))?",
        re.IGNORECASE,
    ),
)

AFM = Dialect(
    family="AFM",
    vendor="FiberZone",
    size_pattern=re.compile(r"MAX_PORT_(?P<side>EAST|WEST)\s+(?P<last>\d{1,9})(?!\d)"),
    row_pattern=re.compile(
        r"(?<!\S)(?P<port>[EW]\d{1,9})\s+(?P<lock>[12])\s+(?P<state>\d)\s+(?P<admin>[12])"
        r"(?:\s+(?P<paired>[ew]\d+))?(?:\s+(?P<peer>[EW]\d+)(?:\s+[^\s\d]\S*)?)?"
        r"\s+(?P<role>[1-5])\s+(?P<counter>\d{1,9})(?!\S)"
    ),
    has_logical_ports=True,
)


def format_connect(source: str, output: str) -> str:
    """Return the command that requests a circuit.

    >>> format_connect("E3", "W4")
    'connection create E3 to W4'
    """
    return f"connection create {source} to {output}"


def format_disconnect(source: str, output: str) -> str:
    """Return the command that requests the removal of a circuit."""
    return f"connection disconnect {source} from {output}"


def check_accepted(lines: Sequence[str]) -> None:
    """Raise `PortError`, `RobotFault` or `DeviceError` for a refusal among the lines of a reply.

    >>> check_accepted(["Ports are not of the same matrix"])
    Traceback (most recent call last):
    ...
    ocs_drivers.errors.PortError: Ports are not of the same matrix. Choose two ports of one matrix.
    """
    for line in lines:
        if _OTHER_MATRIX.search(line):
            raise PortError(line.strip(), hint="Choose two ports of one matrix.")
        if STOPPED_PATTERN.search(line):
            raise RobotFault(line.strip(), hint=HOMING_HINT)
        if _REFUSAL.search(line):
            raise DeviceError(line.strip(), device_code="ERROR")


def find_failure(lines: Iterable[str], name_pairs: Collection[tuple[str, str]], command: str) -> str | None:
    """Return the line that reports this request as failed or invalid, under any of its `name_pairs`, or None.

    >>> find_failure(
    ...     ["08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect"],
    ...     [("E6", "W4")],
    ...     "connect",
    ... )
    '08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect'
    """
    for line in lines:
        match = _FAILED_REQUEST.search(line)
        if match is None or match["command"].lower() != command:
            continue
        reported_ports = {
            match["one"].upper(),
            match["other"].upper(),
        }  # a set, because either port may come first
        if any(reported_ports == set(pair) for pair in name_pairs):
            return line
    return None


@dataclass(frozen=True, slots=True)
class Board:
    """Identity of the device; `east_count` and `west_count` are the numbers of rows in its port table for each side.

    `is_paired` is True if the device reports paired ports: removing a circuit may also remove its mirror.
    """

    identity: Identity
    east_count: int
    west_count: int
    is_paired: bool = False


def decode_board(lines: Sequence[str], dialect: Dialect) -> Board:
    """Decode the board from the lines of `show board`.

    Raises `ProtocolDesync` if the board belongs to another family or is incomplete.
    """
    text = "\n".join(lines)
    type_match = re.search(rf"^{dialect.family} TYPE\s+(?P<type>\S.*)$", text, re.MULTILINE)
    row_counts = _sum_row_counts(text, dialect)
    if type_match is None or not all(row_counts.values()) or _LAST_LINE not in text:
        raise ProtocolDesync(
            f"the reply does not describe the whole board of a {dialect.family} device",
            received=text,
            hint="Check the address: rome+... is for ROME, afm+... for AFM.",
        )
    type_name = type_match["type"].rstrip()
    model = type_name if type_name.startswith(dialect.family) else f"{dialect.family} type {type_name}"
    identity = Identity(dialect.vendor, model, _find_group(_SERIAL, text), _find_group(_FIRMWARE, text))
    return Board(identity, row_counts["east"], row_counts["west"], _PAIRED.search(text) is not None)


def _sum_row_counts(text: str, dialect: Dialect) -> dict[str, int]:
    """Return the number of rows on each side, summed over all matrices."""
    row_counts = {"east": 0, "west": 0}
    for match in dialect.size_pattern.finditer(text):
        row_counts[match["side"].lower()] += int(match["last"])
    return row_counts


def _find_group(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class Request:
    """A requested move. The device reports no user and no source for the request in process."""

    command: str
    port_a: str
    port_b: str
    number: str = ""
    source: str = ""
    user: str = ""

    def list_moves(self, layout: Layout) -> tuple[PendingMove, ...]:
        """Return the moves of this request: two moves for a request with logical ports."""
        kind: Literal["connect", "disconnect"] = "disconnect" if self.command == "disconnect" else "connect"
        pairs: tuple[Pair | None, ...] = layout.get_pairs(self.port_a, self.port_b) or (None,)
        return tuple(PendingMove(kind, pair, self.user, self.source, self.number) for pair in pairs)


@dataclass(frozen=True, slots=True)
class Queue:
    """The running and the waiting requests; `needs_homing` is True if the device requests a homing run."""

    status: str = "enabled"
    needs_homing: bool = False
    running_request: Request | None = None
    waiting_requests: tuple[Request, ...] = ()

    @property
    def is_disabled(self) -> bool:
        """True if the device executes nothing until somebody enables it."""
        return "disabled" in self.status

    def list_moves(self, layout: Layout) -> tuple[PendingMove, ...]:
        """Return all moves in the order of execution, the one in process first."""
        requests = (
            (self.running_request, *self.waiting_requests) if self.running_request else self.waiting_requests
        )
        return tuple(move for request in requests for move in request.list_moves(layout))


def decode_queue(lines: Sequence[str]) -> Queue:
    """Decode the queue. Raise `ProtocolDesync` if its status, its heading or part of a row is missing."""
    status = next((match["status"] for line in lines if (match := _STATUS.match(line))), None)
    rule_line_indices = [number for number, line in enumerate(lines) if _RULE.fullmatch(line)]
    if status is None or len(rule_line_indices) != 2:
        raise ProtocolDesync("the queue of the robot is incomplete", received=" ".join(lines))
    lines_above, lines_below = lines[: rule_line_indices[0]], lines[rule_line_indices[1] + 1 :]
    running_request = next(
        (_make_request(match) for line in lines_above if (match := _RUNNING_REQUEST.fullmatch(line))), None
    )
    if running_request is None and any(line.strip().lower() == "command in process:" for line in lines_above):
        raise ProtocolDesync(
            "the queue of the robot announces a command in process, but does not show it",
            received=" ".join(lines),
        )
    return Queue(
        status.strip().lower(),
        any(_HOMING.search(line) for line in lines_above),
        running_request,
        tuple(_decode_row(line) for line in lines_below if _NUMBERED_LINE.match(line)),
    )


def _decode_row(line: str) -> Request:
    match = _REQUEST.fullmatch(line)
    if match is None:
        raise ProtocolDesync("a row of the queue of the robot cannot be read", received=line)
    return _make_request(match)


def _make_request(match: re.Match[str]) -> Request:
    fields = match.groupdict(default="")
    return Request(
        fields["command"].lower(),
        fields["one"].upper(),
        fields["other"].upper(),
        fields.get("number", ""),
        fields.get("source", ""),
        fields.get("user", "").strip(),
    )
