"""A small SCPI instrument: a table of commands, an error queue, and sessions with clients.

Commands that set something answer nothing; what is wrong with them goes to the error queue, which all
clients share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sim.twins.frontends.scpi_errors import ErrorQueue, ScpiError, error_of
from sim.twins.frontends.scpi_syntax import LineReader, Unit, header_pattern, units
from sim.twins.switch.matrix import Refused
from sim.twins.wire.line import Line

Handler = Callable[[Sequence[int], Sequence[str]], str | None]
"""Given the numbers in the header (1 where left out) and the parameters; gives the answer, if any."""


@dataclass(frozen=True, slots=True)
class Style:
    """Line endings and separators of an instrument.

    A command ends with any of the bytes `ends`, an answer with `answer_end`. Answers to chained queries are
    joined by `separator`. Where `remembers_path`, the path of the last header stands for the next line, too.
    """

    ends: bytes = b"\n"
    answer_end: str = "\r\n"
    separator: str = ";"
    remembers_path: bool = False


class Instrument:
    """Executes lines for all its clients on one table of commands."""

    def __init__(self, table: Mapping[str, Handler], style: Style, errors: ErrorQueue | None = None) -> None:
        self.errors = ErrorQueue() if errors is None else errors
        self.style = style
        self._table = {header_pattern(definition): handler for definition, handler in table.items()}

    async def serve(self, line: Line) -> None:
        """Serve one client until it leaves."""
        reader, session = LineReader(self.style.ends), _Session(self)
        while data := await line.read():
            for text in reader.feed(data):
                await line.respond(lambda text=text: session.execute(text))  # type: ignore[misc]

    def find(self, unit: Unit, path: str) -> tuple[Handler, tuple[int, ...], str]:
        """Return handler, numbers in the header, and the path that a following header may leave out.

        A header is looked up below the path, and failing that from the root. Raises `ScpiError`.
        """
        rooted = unit.header.removeprefix(":")
        relative = not unit.header.startswith((":", "*"))
        for candidate in [path + rooted, rooted] if relative else [rooted]:
            for pattern, handler in self._table.items():
                match = pattern.fullmatch(candidate)
                if match:
                    numbers = tuple(int(text or 1) for text in match.groups())
                    return handler, numbers, candidate.rpartition(":")[0] + ":"
        raise ScpiError(-113, unit.header[:40])


class _Session:
    """One client: remembers the path of its last header."""

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._path = ""

    async def execute(self, line: str) -> bytes:
        """Execute one line and give the bytes that answer it, none for a line of set commands."""
        style = self._instrument.style
        if not style.remembers_path:
            self._path = ""
        answers = [answer for unit in units(line) if (answer := self._run(unit)) is not None]
        return (style.separator.join(answers) + style.answer_end).encode() if answers else b""

    def _run(self, unit: Unit) -> str | None:
        errors = self._instrument.errors
        try:
            handler, numbers, path = self._instrument.find(unit, self._path)
            if not unit.header.startswith("*"):
                self._path = path
            return handler(numbers, unit.parameters)
        except Refused as refusal:
            errors.push(error_of(refusal))
        except ScpiError as error:
            errors.push(error)
        return None


def whole_numbers(texts: Sequence[str], count: int) -> list[int]:
    """Exactly `count` parameters that are whole numbers. Raises `ScpiError`."""
    if len(texts) != count:
        raise ScpiError(-109 if len(texts) < count else -108)
    for text in texts:
        if not (text.isascii() and text.isdecimal() and len(text) <= 6):
            raise ScpiError(-224, text[:40])
    return [int(text) for text in texts]
