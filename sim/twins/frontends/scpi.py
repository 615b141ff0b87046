"""A small SCPI instrument: command grammar, error queue, command table and client sessions.

A keyword is accepted in short form (the capitals of `SWITch`) or in full, in upper or lower case. Some keywords have a
numeric suffix (`ROUT6`). A `;` separates commands of a line. A command that sets a value sends no answer; its errors go
to the error queue, which all clients share. Sources: SCPI-99 volume 1, chapter 6 (grammar), and volume 2, chapter 21
(error queue).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sim.twins.switch.matrix import MatrixRefusal, Reason
from sim.twins.wire.line import Line

MAX_LINE_BYTES = 1 << 16
NO_ERROR = '0, "No error"'

_PIECE_PATTERN = re.compile(r"[A-Za-z]+|\W")
_SYMBOL_PATTERNS = {"[": "(?:", "]": ")?", "#": r"(\d{0,4})"}
_QUEUE_LENGTH = 16
_ERROR_NUMBERS: Mapping[Reason, int] = {
    Reason.NO_SUCH_PORT: -222,
    Reason.WRONG_SIDE: -222,
    Reason.REPEATED: -224,
    Reason.UNEQUAL: -224,
    Reason.FAILED: -240,
}
"""SCPI error numbers, by reason of a refusal. The number of any other reason is -221, settings conflict."""


class ScpiError(Exception):
    """An error for the queue: SCPI-99 number and text, with optional details (`details`)."""

    TEXTS: Mapping[int, str] = {
        -102: "Syntax error",
        -108: "Parameter not allowed",
        -109: "Missing parameter",
        -113: "Undefined header",
        -221: "Settings conflict",
        -222: "Data out of range",
        -223: "Too much data",
        -224: "Illegal parameter value",
        -240: "Hardware error",
        -350: "Queue overflow",
        -363: "Input buffer overrun",
    }

    def __init__(self, number: int, details: str = "") -> None:
        self.number = number
        self.details = details
        super().__init__(str(self))

    def __str__(self) -> str:
        text = self.TEXTS[self.number]
        quoted_text = f"{text};{self.details}" if self.details else text
        return f'{self.number}, "{quoted_text}"'


def make_error(refusal: MatrixRefusal) -> ScpiError:
    """Return the SCPI error for a command that the switch refuses."""
    return ScpiError(_ERROR_NUMBERS.get(refusal.reason, -221), str(refusal))


class ErrorQueue:
    """First-in, first-out queue of errors. If the queue is full, a new error changes the last entry to -350."""

    def __init__(self, length: int = _QUEUE_LENGTH) -> None:
        self._length = length
        self._errors: deque[ScpiError] = deque()

    def __len__(self) -> int:
        return len(self._errors)

    def push(self, error: ScpiError) -> None:
        """Append an error, or record the overflow if the queue is full."""
        if len(self._errors) < self._length:
            self._errors.append(error)
        else:
            self._errors[-1] = ScpiError(-350)

    def pop(self) -> str:
        """Remove the oldest error and return its text, or return "No error" if there is none."""
        return str(self._errors.popleft()) if self._errors else NO_ERROR

    def pop_all(self) -> str:
        """Remove all errors and return their texts, separated by commas, or return "No error" if there are none."""
        texts = [self.pop() for _ in range(max(1, len(self._errors)))]
        return ",".join(texts)

    def clear(self) -> None:
        """Remove all errors."""
        self._errors.clear()


class LineReader:
    """Splits a byte stream into lines. Any of `line_end_bytes` ends a line. Chunks of the stream may have any size."""

    def __init__(self, line_end_bytes: bytes) -> None:
        self._line_end_pattern = re.compile(b"[" + re.escape(line_end_bytes) + b"]")
        self._incomplete_line = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the nonempty lines that `data` completes, stripped of white space.

        Drop an unfinished line of more than `MAX_LINE_BYTES`.
        """
        *lines, self._incomplete_line = self._line_end_pattern.split(self._incomplete_line + data)
        if len(self._incomplete_line) > MAX_LINE_BYTES:
            self._incomplete_line = b""
        return [text for line in lines if (text := line.decode("latin-1").strip())]


@dataclass(frozen=True, slots=True)
class MessageUnit:
    """One command of a line: the header as received, and the parameters as text."""

    header: str
    parameters: tuple[str, ...]


def split_units(line: str) -> list[MessageUnit]:
    """Return the commands of one line.

    >>> split_units("ROUT6:SCAN 2;SCAN?")
    [MessageUnit(header='ROUT6:SCAN', parameters=('2',)), MessageUnit(header='SCAN?', parameters=())]
    """
    return [_parse_unit(text.strip()) for text in line.split(";") if text.strip()]


def _parse_unit(text: str) -> MessageUnit:
    header, *rest = text.split(None, 1)
    return MessageUnit(header, tuple(part.strip() for part in rest[0].split(",")) if rest else ())


@lru_cache(maxsize=256)
def compile_header(definition: str) -> re.Pattern[str]:
    """Return the regular expression of a header. A `#` in `definition` matches an optional number as a group.

    >>> compile_header("ROUTe#:SCAN?").fullmatch("rout6:scan?")[1]
    '6'
    >>> compile_header("ROUTe#:SCAN?").fullmatch("ROUT6:SCA?") is None
    True
    >>> bool(compile_header("OXC:SWITch:SIZE?").fullmatch("oxc:SWIT:size?"))
    True
    """
    pieces = _PIECE_PATTERN.findall(definition)
    pattern = "".join(_SYMBOL_PATTERNS.get(piece) or _make_form_pattern(piece) for piece in pieces)
    return re.compile(pattern, re.IGNORECASE)


def _make_form_pattern(piece: str) -> str:
    short_piece = piece.rstrip("abcdefghijklmnopqrstuvwxyz")
    rest = piece[len(short_piece) :]
    return f"{re.escape(short_piece)}(?:{rest})?" if rest else re.escape(piece)


Handler = Callable[[Sequence[int], Sequence[str]], str | None]
"""Executes a command and returns its answer or None. Arguments: numbers in the header (default 1), and parameters."""


@dataclass(frozen=True, slots=True)
class Style:
    """Line endings and separators of an instrument.

    Any of the bytes `line_end_bytes` ends a line of commands, and `answer_end` ends an answer. `separator` joins the
    answers to several queries of one line. With `remembers_path`, the path of the last header also applies to the next
    line.
    """

    line_end_bytes: bytes = b"\n"
    answer_end: str = "\r\n"
    separator: str = ";"
    remembers_path: bool = False


class Instrument:
    """An SCPI instrument with one command table and one error queue for all clients."""

    def __init__(self, table: Mapping[str, Handler], style: Style, errors: ErrorQueue | None = None) -> None:
        self.errors = ErrorQueue() if errors is None else errors
        self.style = style
        self._table = {compile_header(definition): handler for definition, handler in table.items()}

    async def serve(self, client: Line) -> None:
        """Serve one client until it disconnects."""
        reader, session = LineReader(self.style.line_end_bytes), _Session(self)
        while data := await client.read():
            for text in reader.feed(data):
                await client.respond(lambda text=text: session.execute(text))  # type: ignore[misc]

    def find_handler(self, unit: MessageUnit, path: str) -> tuple[Handler, tuple[int, ...], str]:
        """Return the handler, the numbers in the header, and the path that the next header may omit.

        Look a header up below `path` first, then from the root. Raise `ScpiError` (-113) if the header is unknown.
        """
        absolute_header = unit.header.removeprefix(":")
        is_relative = not unit.header.startswith((":", "*"))
        for candidate in [path + absolute_header, absolute_header] if is_relative else [absolute_header]:
            for pattern, handler in self._table.items():
                match = pattern.fullmatch(candidate)
                if match:
                    numbers = tuple(int(text or 1) for text in match.groups())
                    return handler, numbers, candidate.rpartition(":")[0] + ":"
        raise ScpiError(-113, unit.header[:40])


class _Session:
    """The session of one client, with the path of its last header."""

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._header_path = ""

    async def execute(self, line: str) -> bytes:
        """Execute one line, and return its encoded answer. The answer is empty if no command of the line has one."""
        style = self._instrument.style
        if not style.remembers_path:
            self._header_path = ""
        answers = [answer for unit in split_units(line) if (answer := self._run_command(unit)) is not None]
        return (style.separator.join(answers) + style.answer_end).encode() if answers else b""

    def _run_command(self, unit: MessageUnit) -> str | None:
        errors = self._instrument.errors
        try:
            handler, numbers, path = self._instrument.find_handler(unit, self._header_path)
            if not unit.header.startswith(
                "*"
            ):  # common commands leave the path unchanged (SCPI-99, chapter 6)
                self._header_path = path
            return handler(numbers, unit.parameters)
        except MatrixRefusal as refusal:
            errors.push(make_error(refusal))
        except ScpiError as error:
            errors.push(error)
        return None


def parse_whole_numbers(parameters: Sequence[str], count: int) -> list[int]:
    """Return `count` parameters as nonnegative integers of up to six digits. Raise `ScpiError` if they are invalid."""
    if len(parameters) != count:
        raise ScpiError(-109 if len(parameters) < count else -108)
    for text in parameters:
        if not (text.isascii() and text.isdecimal() and len(text) <= 6):
            raise ScpiError(-224, text[:40])
    return [int(text) for text in parameters]
