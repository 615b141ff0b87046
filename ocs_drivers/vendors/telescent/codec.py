"""Codec of a Telescent: commands, the table of all outputs, the state of one input, and refusals. It does no I/O.

    R0#N  AL3 UU1 UU2 ... x12        row 0: output 0 is allocated to input 3, outputs 1 and 2 are free
    STATE = ALLOCATED_AND_LOCKED     query of one input
    OUTPUT = 321
    ==== ERROR ====                  a refusal
    ...
    ====

Meaning of the states, as far as it is known:

- `ALLOCATED_AND_LOCKED`: a finished circuit. The lock protects it against mistakes, so a removal unlocks it first.
- `ALLOCATED_AND_UNLOCKED`: the circuit still exists.
- `UNALLOCATED_AND_LOCKED`: we assume that somebody has reserved the port, because no documented command leads to this
  state. The driver reports only this state as locked.

The device counts ports from 0. Each of its ports has an input and an output, which are independent. Input 3 of the
driver is the input of port 2 of the device, and the first output of the driver is the output of port 0.

The commands come from one public driver for the fourth generation of the frame. The commands of current firmware are
not published, so options of the address can replace every command (see the package docstring).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ocs_drivers.engine import planning
from ocs_drivers.errors import DeviceError, OcsError, ProtocolDesync, RobotFault
from ocs_drivers.model import Capabilities, CrossConnects, PendingMove, PortState

Command = tuple[str, bool]
"""A command, and True if it moves the robot."""


@dataclass(frozen=True, slots=True)
class CommandSet:
    """Commands to the device, and patterns of its answers.

    `prompt` and `robot_fault` are regular expressions. We assume that a refusal whose text matches `robot_fault` means
    that the robot has stopped. We also assume that the robot has not yet connected a circuit whose status begins with
    the letter `making`, and not yet removed a circuit whose status begins with the letter `clearing`. On a device
    without these letters, a circuit exists once it is allocated.

    >>> [command for command, _ in CommandSet().make_connect_commands(1, 2)]
    ['unlock --force -in 1', 'unlock --force -out 2', 'connect --force -in 1 -out 2']
    """

    prompt: str = r"[0-9a-zA-Z@]+>"
    table: str = "switchstate"
    input_state: str = "switchstate input"
    unlock: str = "unlock --force"
    connect: str = "connect --force"
    unallocate: str = "unallocate --force"
    robot_fault: str = r"(?i)\brobot\b|\bhoming\b"
    making: str = "C"
    clearing: str = "D"

    def make_connect_commands(self, source: int, output: int) -> tuple[Command, ...]:
        """Return the commands that connect the input of one port to the output of another."""
        return (
            (f"{self.unlock} -in {source}", False),
            (f"{self.unlock} -out {output}", False),
            (f"{self.connect} -in {source} -out {output}", True),
        )

    def make_disconnect_commands(self, source: int, output: int) -> tuple[Command, ...]:
        """Return the commands that remove a circuit.

        They unlock both directions of both ports: according to the public driver, some devices refuse to unallocate a
        port of which only one direction is unlocked.
        """
        return (
            (f"{self.unlock} {source}", False),
            (f"{self.unlock} {output}", False),
            (f"{self.unallocate} -in {source}", True),
            (f"{self.unallocate} -out {output}", True),
        )


COLUMN_COUNT = 12
"""Outputs per row; the number of an output is row * 12 + column."""

_ROW = re.compile(r"R\d+#")
_CELLS = re.compile(r"R(?P<row>\d{1,9})#[A-Za-z]*(?P<cells>(?:\s+[A-Za-z]+\d{1,9})+)")
_CELL = re.compile(r"(?P<status>[A-Za-z]+)(?P<number>\d+)")
_FIELD = re.compile(r"\s*(?P<name>[A-Z][A-Z_\s]*)=(?P<value>.*)")
_RULER = re.compile(r"=+\s*(?:ERROR\s*=+)?")
_REFUSAL = re.compile(r"Exception|ERROR")
_TWIN_MARK = "SIMULATED"


@dataclass(frozen=True, slots=True)
class Cell:
    """One output in the table: the letters of its status, and the number of its input (meaningless if it is free)."""

    status: str
    input_number: int

    @property
    def is_allocated(self) -> bool:
        """True if the output carries a circuit."""
        return self.status.startswith("A")

    @property
    def is_free(self) -> bool:
        """True if the output carries no circuit."""
        return self.status.startswith("U")

    @property
    def is_locked(self) -> bool:
        """True if the second letter is L (an assumption: it stands for LOCKED in the state)."""
        return self.status[1:2] == "L"


@dataclass(frozen=True, slots=True)
class InputReading:
    """Answer to the query of one input; `output` is None if it has no circuit."""

    state: str
    output: int | None

    @property
    def is_allocated(self) -> bool:
        """True if the input carries a circuit."""
        return self.state.startswith("ALLOCATED")

    @property
    def is_reserved(self) -> bool:
        """True if somebody has locked the input although it carries no circuit."""
        return not self.is_allocated and self.state.endswith("_LOCKED")


def decode_serial(banner: Sequence[str]) -> str:
    """Return `SIMULATED` for the banner of a twin, else "", because devices report no serial number.

    >>> decode_serial(["Network Topology Manager (SIMULATED)"])
    'SIMULATED'
    """
    return _TWIN_MARK if any(_TWIN_MARK in line for line in banner) else ""


def check_accepted(lines: Sequence[str], command_set: CommandSet) -> None:
    """Raise for a refusal: `RobotFault` if its text matches `robot_fault`, else `DeviceError`.

    >>> check_accepted(["==== ERROR ====", "port 9 does not exist", "===="], CommandSet())
    Traceback (most recent call last):
    ...
    ocs_drivers.errors.DeviceError: port 9 does not exist
    """
    if not any(_REFUSAL.search(line) for line in lines):
        return
    text = " ".join(_extract_error_text(lines))
    if re.search(command_set.robot_fault, text):
        raise RobotFault(text, hint="Have the robot inspected and homed; this driver never homes it.")
    raise DeviceError(text, device_code="ERROR")


def _extract_error_text(lines: Sequence[str]) -> list[str]:
    """Return the lines between two rulers of equals signs; without rulers, the lines with ERROR or Exception."""
    first_ruler = next((n for n, line in enumerate(lines) if _RULER.fullmatch(line)), None)
    if first_ruler is None:
        return [line for line in lines if _REFUSAL.search(line)]
    error_lines = lines[first_ruler + 1 :]
    last_ruler = next((n for n, line in enumerate(error_lines) if _RULER.fullmatch(line)), len(error_lines))
    return list(error_lines[:last_ruler]) or ["the device says ERROR and no more"]


def decode_cells(lines: Sequence[str], command_set: CommandSet) -> tuple[Cell, ...]:
    """Decode all outputs, in the order of their numbers, from the rows of the table; skip headings and log lines.

    Raises `ProtocolDesync` unless the rows are complete and numbered from 0 without gaps, and the errors of
    `check_accepted`.
    """
    check_accepted([line for line in lines if not _ROW.match(line)], command_set)
    rows = [line for line in lines if _ROW.match(line)]
    if not rows:
        raise ProtocolDesync("the reply has no row of the table of outputs", received=" ".join(lines))
    cells: list[Cell] = []
    for number, line in enumerate(rows):
        if len(cells) != number * COLUMN_COUNT:
            raise ProtocolDesync("a row of the table ends early", received=rows[number - 1])
        cells += _decode_row(line, number)
    return tuple(cells)


def _decode_row(line: str, number: int) -> list[Cell]:
    """Return the cells of row `number`; only the last row of a table may be short."""
    match = _CELLS.fullmatch(line.rstrip())
    if match is None or int(match["row"]) != number:
        raise ProtocolDesync(f"row {number} of the table is missing or damaged", received=line)
    cells = [Cell(cell["status"].upper(), int(cell["number"])) for cell in _CELL.finditer(match["cells"])]
    if len(cells) > COLUMN_COUNT:
        raise ProtocolDesync(
            f"row {number} of the table has {len(cells)} columns instead of {COLUMN_COUNT}", received=line
        )
    return cells


def decode_input(lines: Sequence[str], command_set: CommandSet) -> InputReading:
    """Decode the state of one input. Raise `ProtocolDesync` if it is missing, and the errors of `check_accepted`.

    >>> decode_input(["STATE = ALLOCATED_AND_LOCKED", "OUTPUT = 321 "], CommandSet())
    InputReading(state='ALLOCATED_AND_LOCKED', output=321)
    """
    check_accepted(lines, command_set)
    matches = filter(None, map(_FIELD.fullmatch, lines))
    fields = {match["name"].strip(): match["value"].strip() for match in matches}
    state, output = fields.get("STATE", ""), fields.get("OUTPUT", "")
    if not re.fullmatch(r"(UN)?ALLOCATED_AND_\w+", state):
        raise ProtocolDesync("the state of the port is missing", received=" ".join(lines))
    reading = InputReading(state, int(output) if re.fullmatch(r"\d{1,9}", output) else None)
    if reading.is_allocated and reading.output is None:
        raise ProtocolDesync(
            "the device reports an allocated input without an output", received=" ".join(lines)
        )
    return reading


@dataclass(frozen=True, slots=True)
class Numbering:
    """Conversion between our port numbers and the device's, for a frame with `port_count` ports.

    >>> Numbering(96).get_input_port(0), Numbering(96).get_output_port(0)
    (1, 97)
    >>> Numbering(96).convert_to_device_pair((3, 97))
    (2, 0)
    """

    port_count: int

    def get_input_port(self, number: int) -> int:
        """Return our number of the input of the device's port `number`."""
        return number + 1

    def get_output_port(self, number: int) -> int:
        """Return our number of the output of the device's port `number`."""
        return self.port_count + number + 1

    def convert_to_device_pair(self, pair: tuple[int, int]) -> tuple[int, int]:
        """Return the device's numbers of the two ports of a circuit."""
        return pair[0] - 1, pair[1] - self.port_count - 1

    def get_name(self, port: int) -> str:
        """Return the device's name of a port of the driver."""
        return str((port - 1) % self.port_count)


@dataclass(frozen=True, slots=True)
class OutputTable:
    """All outputs of a frame in one read.

    >>> cells = (Cell("AL", 1), Cell("CU", 0), Cell("UL", 2))
    >>> table = OutputTable(cells, CommandSet())
    >>> table.connections, table.pending_moves[0].pair, table.output_states[6]
    (CrossConnects({2: 4}), (1, 5), <PortState.LOCKED: 'locked'>)
    """

    cells: tuple[Cell, ...]
    commands: CommandSet

    @property
    def numbering(self) -> Numbering:
        """The numbering of a frame of this size."""
        return Numbering(len(self.cells))

    @property
    def connections(self) -> CrossConnects:
        """The circuits that are allocated, or that the robot has not cleared yet.

        Raises `ProtocolDesync` for an inconsistent table.
        """
        pairs = [
            self._make_pair(output)
            for output, cell in enumerate(self.cells)
            if cell.is_allocated or self._is_clearing(cell)
        ]
        try:
            connections = CrossConnects(pairs)
            planning.check_target(connections, None, Capabilities(len(self.cells), len(self.cells)))
        except (ValueError, OcsError) as error:
            raise ProtocolDesync(f"the table is inconsistent: {error}") from error
        return connections

    @property
    def pending_moves(self) -> tuple[PendingMove, ...]:
        """Moves that the robot has not made yet; the table does not show their users."""
        making_indices = [n for n, cell in enumerate(self.cells) if self._is_making(cell)]
        clearing_indices = [n for n, cell in enumerate(self.cells) if self._is_clearing(cell)]
        return (
            *(PendingMove("connect", self._make_pair(output)) for output in making_indices),
            *(PendingMove("disconnect", self._make_pair(output)) for output in clearing_indices),
        )

    @property
    def output_states(self) -> dict[int, PortState]:
        """The state of every output, by our numbers."""
        return {
            self.numbering.get_output_port(n): self._decode_state(cell) for n, cell in enumerate(self.cells)
        }

    def find_unfit_ports(self, *, allow_locked: bool) -> dict[int, PortState]:
        """Return the states of the outputs that cannot be used. With `allow_locked`, locked outputs can be used."""
        return {
            port: state
            for port, state in self.output_states.items()
            if state is not PortState.ENABLED and not (allow_locked and state is PortState.LOCKED)
        }

    def _decode_state(self, cell: Cell) -> PortState:
        """Return the state of a cell; an output with unknown letters counts as failed."""
        if cell.is_free and cell.is_locked:
            return PortState.LOCKED
        is_known = cell.is_free or cell.is_allocated or self._is_making(cell) or self._is_clearing(cell)
        return PortState.ENABLED if is_known else PortState.FAILED

    def _make_pair(self, output: int) -> tuple[int, int]:
        return self.numbering.get_input_port(self.cells[output].input_number), self.numbering.get_output_port(
            output
        )

    def _is_making(self, cell: Cell) -> bool:
        return cell.status.startswith(self.commands.making)

    def _is_clearing(self, cell: Cell) -> bool:
        return cell.status.startswith(self.commands.clearing)
