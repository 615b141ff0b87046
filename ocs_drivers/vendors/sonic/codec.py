"""Decoders of the output of SONiC: tables with a row of dashes under the header, answers of `config`, port names.

`1A` is an input, `2B` an output, `1A-2B` a cross-connect. Our numbers: inputs 1..N, outputs N+1..N+M; so 2B of a 64x64
switch is port 66.

Source of the columns: the design document of OCS in SONiC, revision 0.4 of March 2026, sections 9.1 and 9.2, and the
module `ocs_cross_connect` of sonic-mgmt. Of the texts of refusals, only the words "Invalid" and "Error" are published.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ocs_drivers.errors import DeviceError, PermissionDenied, ProtocolDesync
from ocs_drivers.model import Identity, PortState

Pair = tuple[int, int]

MAX_LIST_LENGTH = 700
"""Maximum length of the pairs in one command, in characters; the shell's line editor would wrap longer lines."""

_PORT = re.compile(r"([1-9][0-9]{0,8})([AB])")
_SHORTEST_RANGE = 3


Lines = tuple[str, ...]

SUCCESS_TEXT = "succeeded"

CONFIG_COLUMNS = ("id", "a_side", "b_side")
STATUS_COLUMNS = (*CONFIG_COLUMNS, "a_side_status", "b_side_status")
PORT_CONFIG_COLUMNS = ("id", "label", "state")
PORT_STATUS_COLUMNS = ("id", "connector_type", "connector_pin", "target_simplex_port_id", "status")

TUNED, FAILED = "tuned", "failed"
_PORT_STATUS = frozenset({"powered_off", "powered-off", "blocked", "tuning", TUNED, "connected", FAILED})
_OVERRIDE_STATES: Mapping[str, PortState] = {
    "normal": PortState.ENABLED,
    "force_blocked": PortState.DISABLED,
    "powered_off": PortState.DISABLED,
}
_DASHES = re.compile(r"-+(?:  -+)*")


@dataclass(frozen=True, slots=True)
class PortNames:
    """Numbers and names of one switch with `input_count` ports on its A side.

    >>> names = PortNames(input_count=64)
    >>> names.name_port(1), names.name_port(66), names.name_pair((1, 66))
    ('1A', '2B', '1A-2B')
    >>> names.parse_pair("1A-2B")
    (1, 66)
    """

    input_count: int

    def name_port(self, port: int) -> str:
        """Return the name of a port."""
        return f"{port}A" if port <= self.input_count else f"{port - self.input_count}B"

    def name_pair(self, pair: Pair) -> str:
        """Return the name of a cross-connect."""
        return f"{self.name_port(pair[0])}-{self.name_port(pair[1])}"

    def parse_port(self, name: str) -> int:
        """Return the number of a port. Raise `ProtocolDesync` for an invalid name."""
        match = _PORT.fullmatch(name)
        if match is None:
            raise ProtocolDesync(f"{name[:40]!r} is not the name of a port like 1A")
        return int(match[1]) + (self.input_count if match[2] == "B" else 0)

    def parse_pair(self, name: str) -> Pair:
        """Return the ports of a cross-connect. Raise `ProtocolDesync` unless it leads from an A port to a B port."""
        source, _, output = name.partition("-")
        if not source.endswith("A") or not output.endswith("B"):
            raise ProtocolDesync(f"{name[:40]!r} is not the name of a cross-connect like 1A-2B")
        return self.parse_port(source), self.parse_port(output)

    def format_pair_lists(self, pairs: Iterable[Pair]) -> Iterator[str]:
        """Yield the arguments of as few commands as possible: lists of pairs, with consecutive pairs as ranges.

        >>> list(PortNames(64).format_pair_lists([(10, 75), (12, 76), (13, 77), (14, 78)]))
        ['10A-11B,12A..14A-12B..14B']
        """
        line = ""
        for item in self._format_pair_ranges(sorted(pairs)):
            if line and len(line) + 1 + len(item) > MAX_LIST_LENGTH:
                yield line
                line = ""
            line += f",{item}" if line else item
        if line:
            yield line

    def _format_pair_ranges(self, pairs: list[Pair]) -> Iterator[str]:
        start = 0
        for end in range(1, len(pairs) + 1):
            if end < len(pairs) and pairs[end] == (pairs[end - 1][0] + 1, pairs[end - 1][1] + 1):
                continue
            run = pairs[start:end]
            if len(run) >= _SHORTEST_RANGE:
                sides = zip(run[0], run[-1], strict=True)
                yield "-".join(
                    f"{self.name_port(first_port)}..{self.name_port(last_port)}"
                    for first_port, last_port in sides
                )
            else:
                yield from map(self.name_pair, run)
            start = end


def parse_rows(lines: Lines, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the rows of a table with these columns, each as its cells. Raise `ProtocolDesync` for any other text.

    Cells are aligned with the dashes, so a cell may be empty. A row with text between two columns is invalid.
    """
    if len(lines) < 2 or tuple(lines[0].split()) != columns or not _DASHES.fullmatch(lines[1]):
        raise ProtocolDesync(
            f"the reply is not a table with the columns {', '.join(columns)}", received="\n".join(lines[:3])
        )
    spans = [match.span() for match in re.finditer("-+", lines[1])]
    if len(spans) != len(columns):
        raise ProtocolDesync(
            f"the table has {len(spans)} columns of dashes for the {len(columns)} columns of its header",
            received=lines[1],
        )
    return [_split_cells(line, spans) for line in lines[2:]]


def _split_cells(line: str, spans: list[tuple[int, int]]) -> tuple[str, ...]:
    gaps = [line[end:start] for (_, end), (start, _) in pairwise(spans)]
    if line.startswith(" ") or any(gap.strip() for gap in gaps):
        raise ProtocolDesync("a row of the table has text between two columns", received=line)
    cell_ends = [end for _, end in spans[:-1]] + [None]  # the last cell may be longer, as in the document
    return tuple(line[start:end].strip() for (start, _), end in zip(spans, cell_ends, strict=True))


@dataclass(frozen=True, slots=True)
class CrossConnectTables:
    """Configured circuits, and the state (A, B) of each circuit in the hardware.

    A ghost is a circuit that the hardware kept when its configuration was removed.
    """

    configured_circuits: frozenset[Pair]
    hardware_states: Mapping[Pair, tuple[str, str]]

    @property
    def hardware_circuits(self) -> frozenset[Pair]:
        """The circuits of the hardware, including ghosts."""
        return frozenset(self.hardware_states)

    @property
    def ghost_circuits(self) -> frozenset[Pair]:
        """Circuits without configuration. They must be added before they can be deleted."""
        return self.hardware_circuits - self.configured_circuits

    @property
    def unrealised_circuits(self) -> frozenset[Pair]:
        """Configured circuits that the hardware has not made, or has not made yet."""
        return self.configured_circuits - self.hardware_circuits

    @property
    def tuned_circuits(self) -> frozenset[Pair]:
        """Healthy circuits: both sides tuned."""
        return frozenset(pair for pair, states in self.hardware_states.items() if set(states) == {TUNED})

    @property
    def failed_circuits(self) -> frozenset[Pair]:
        """Circuits with a broken side."""
        return frozenset(pair for pair, states in self.hardware_states.items() if FAILED in states)


def parse_configured_pairs(lines: Lines, port_names: PortNames) -> frozenset[Pair]:
    """Return the pairs of `show ocs cross-connect config`."""
    return frozenset(_decode_pair(row, port_names) for row in parse_rows(lines, CONFIG_COLUMNS))


def parse_hardware_states(lines: Lines, port_names: PortNames) -> dict[Pair, tuple[str, str]]:
    """Return the pairs of `show ocs cross-connect status` with the states of both sides."""
    return {
        _decode_pair(row, port_names): (
            _check_known(row[3], _PORT_STATUS),
            _check_known(row[4], _PORT_STATUS),
        )
        for row in parse_rows(lines, STATUS_COLUMNS)
    }


def _decode_pair(row: tuple[str, ...], port_names: PortNames) -> Pair:
    if row[0] != f"{row[1]}-{row[2]}":
        raise ProtocolDesync(
            f"the row of cross-connect {row[0][:40]!r} names other sides than its id", received=" ".join(row)
        )
    return port_names.parse_pair(row[0])


def count_ports(lines: Lines) -> tuple[int, int]:
    """Return how many A and B ports `show ocs port config` lists. Raise `ProtocolDesync` if a port is missing."""
    names = {row[0] for row in parse_rows(lines, PORT_CONFIG_COLUMNS)}
    input_count = sum(name.endswith("A") for name in names)
    output_count = len(names) - input_count
    expected_names = {f"{number}A" for number in range(1, input_count + 1)}
    expected_names |= {f"{number}B" for number in range(1, output_count + 1)}
    if names != expected_names or not input_count or not output_count:
        raise ProtocolDesync(
            "some ports are missing from the table", received=" ".join(sorted(names ^ expected_names))
        )
    return input_count, output_count


def decode_port_config(lines: Lines, port_names: PortNames) -> dict[int, tuple[str, PortState]]:
    """Decode label and configured state of every port of `show ocs port config`."""
    count_ports(lines)
    return {
        port_names.parse_port(name): (
            label,
            _OVERRIDE_STATES[_check_known(state, frozenset(_OVERRIDE_STATES))],
        )
        for name, label, state in parse_rows(lines, PORT_CONFIG_COLUMNS)
    }


def parse_broken_ports(lines: Lines, port_names: PortNames) -> frozenset[int]:
    """Return the ports that `show ocs port status` reports as failed."""
    table = [(row[0], _check_known(row[-1], _PORT_STATUS)) for row in parse_rows(lines, PORT_STATUS_COLUMNS)]
    return frozenset(port_names.parse_port(name) for name, state in table if state == FAILED)


def _check_known(value: str, known_values: frozenset[str]) -> str:
    if value not in known_values:
        raise ProtocolDesync(f"state {value[:40]!r} is not one of {', '.join(sorted(known_values))}")
    return value


def decode_identity(lines: Lines) -> Identity:
    """Return the identity in `show version`. Raise `ProtocolDesync` if the output is not SONiC's or is incomplete.

    Every version of SONiC prints the line for the serial number, even if there is no number.
    """
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "SONiC Software Version" not in fields:
        raise ProtocolDesync("the device does not run SONiC", received="\n".join(lines[:3]))
    if "Serial Number" not in fields:
        raise ProtocolDesync("the version was cut off before the serial number", received="\n".join(lines))
    return Identity(
        "SONiC",
        fields.get("HwSKU", "").strip(),
        fields.get("Serial Number", "").strip(),
        fields["SONiC Software Version"].strip(),
    )


def check_success(lines: Lines) -> None:
    """Raise `PermissionDenied` or `DeviceError`, with the device's text, unless a `config` command succeeded."""
    text = " ".join(lines)
    if "Root privileges are required" in text:
        raise PermissionDenied(
            "this account may not change the configuration",
            received=text,
            hint="Use an account with sudo rights, and remove the option sudo=no.",
        )
    if not any(line.rstrip(".").endswith(SUCCESS_TEXT) for line in lines):
        match = re.match(r"\w+", text)
        raise DeviceError(f"the device refused: {text}", device_code=match[0] if match else "silence")


def check_silent(lines: Lines) -> None:
    """Raise as `check_success` does, unless a command printed nothing or reported success."""
    if lines:
        check_success(lines)
