"""Output of the device: the table of all outputs, the state of one input, refusals.

Known: the rows `R<row>#<letter>` with 12 entries of letters and digits, of which `A...` are allocated and
`U...` are not; the label C12 in the heading; `STATE = ALLOCATED_AND_LOCKED`, `OUTPUT = 321 `; the frame of `====`.
Assumptions: the second letter of an entry (locked or unlocked), the letter of a row, what stands for a free
output (its own number), F for an output that has failed, C and D for what the arm has yet to make and to clear.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.twins.families.telescent.frame import Frame

COLUMNS = 12

_GREEN, _YELLOW, _PLAIN = "\x1b[32m", "\x1b[33m", "\x1b[0m"
_WIDTH = 8


@dataclass(frozen=True, slots=True)
class Printer:
    """Formats of one device: in colour, with the arm's work shown or hidden, refusals framed or not."""

    colour: bool
    shows_motion: bool
    frames_errors: bool

    def table(self, frame: Frame) -> str:
        """Return all outputs, twelve to a row; the last row is short where the size is no multiple of twelve."""
        heading = "".join(f"C{column + 1}".ljust(_WIDTH) for column in range(COLUMNS))
        rows = [" " * _WIDTH + heading.rstrip()]
        for first in range(0, frame.size, COLUMNS):
            cells = [self._cell(frame, n) for n in range(first, min(first + COLUMNS, frame.size))]
            rows.append(f"R{first // COLUMNS}#N".ljust(_WIDTH) + " ".join(cells))
        return "\n".join(rows)

    def input_state(self, frame: Frame, number: int) -> str:
        """Return the state of one input. Raises `CommandError` when there is no such port."""
        port = frame.source(number)
        peer = frame.device.matrix.peer(port)
        allocated = "UNALLOCATED" if peer is None else "ALLOCATED"
        locked = "LOCKED" if frame.is_locked(port) else "UNLOCKED"
        lines = [f"INPUT {number}", f"STATE = {allocated}_AND_{locked}"]
        return "\n".join(lines if peer is None else [*lines, f"OUTPUT = {frame.number(peer)} "])

    def error(self, text: str) -> str:
        """Return a refusal."""
        if self.frames_errors:
            return f"==== ERROR ====\n{text}\n===="
        return f"com.ntm.CommandException: {text}"

    def _cell(self, frame: Frame, number: int) -> str:
        output = frame.output(number)
        letter, belongs_to = self._status(frame, output)
        text = f"{letter}{'L' if frame.is_locked(output) else 'U'}{belongs_to}"
        if not self.colour:
            return text.ljust(_WIDTH - 1)
        return f"{_GREEN if letter == 'U' else _YELLOW}{text}{_PLAIN}".ljust(_WIDTH + 8)

    def _status(self, frame: Frame, output: int) -> tuple[str, int]:
        """Return the first letter of an entry, and the number after its letters."""
        job = frame.job_for(output) if self.shows_motion else None
        if job is not None:
            return ("C" if job.kind == "connect" else "D"), frame.number(job.pair[0])
        peer = frame.device.matrix.peer(output)
        if peer is not None:
            return "A", frame.number(peer)
        return ("F" if output in frame.device.matrix.failed else "U"), frame.number(output)
