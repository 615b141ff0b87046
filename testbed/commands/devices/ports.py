"""Parser of ports as operators write them: numbers, or the device's own names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ocs_drivers.errors import PortError, UnknownPort
from ocs_drivers.model import PortInfo, Side

_NUMBER_PATTERN = re.compile("[0-9]{1,9}")
"""A port number: only ASCII digits. Anything else is a name."""

MAX_QUOTED_LENGTH = 40


def _quote(text: str) -> str:
    """Return a quoted text, shortened if it is long."""
    return (
        repr(text)
        if len(text) <= MAX_QUOTED_LENGTH
        else f"{text[:MAX_QUOTED_LENGTH]!r}... ({len(text)} characters)"
    )


class PortNames:
    """The ports of one switch by number and name. A name such as `1.1.1` may exist as input and as output."""

    def __init__(self, ports: Mapping[int, PortInfo]) -> None:
        self._ports = ports

    def get_name(self, port: int) -> str:
        """Return the device's name of a port."""
        return self._ports[port].name

    def find_number(self, text: str, side: Side | None) -> int:
        """Return the number of the port that `text` names. Raises `UnknownPort` if none or several match.

        The text is a port's number or a name. Text that begins with `=` is always a name. Only names on `side` match,
        or names on both sides if it is None.
        """
        name = text.removeprefix("=").strip()
        if name == text.strip() and _NUMBER_PATTERN.fullmatch(name) and int(name) in self._ports:
            return int(name)
        numbers = [
            number
            for number, info in self._ports.items()
            if info.name == name and (side is None or info.side is side)
        ]
        if not numbers:
            side_text = f" on the {side.value}put side" if side else ""
            raise UnknownPort(
                f"the switch has no port {_quote(text)}{side_text}",
                hint="`testbed switch ADDRESS ports` lists them.",
            )
        if len(numbers) > 1:
            raise UnknownPort(
                f"{_quote(text)} names both an input and an output", ports=numbers, hint="Use the number."
            )
        return numbers[0]

    def parse_inputs(self, text: str) -> list[int]:
        """Parse the inputs of a scope, separated by commas. Raises `UnknownPort`, also for an empty scope."""
        if not text.strip():
            raise UnknownPort(
                "the scope is empty", hint="Name its inputs, or leave out --scope to include all."
            )
        return [self.find_number(port, Side.IN) for port in text.split(",")]

    def parse_pairs(self, texts: Iterable[str]) -> dict[int, int]:
        """Parse pairs written `INPUT:OUTPUT`. Raises `PortError` for another form or a port named twice."""
        output_by_input: dict[int, int] = {}
        for text in texts:
            source_text, colon, output_text = text.partition(":")
            if not colon:
                raise PortError(
                    f"{_quote(text)} is not a pair", hint="Write INPUT:OUTPUT, such as 1:49 or E3:W4."
                )
            number = self.find_number(source_text, Side.IN)
            if number in output_by_input:
                raise PortError(f"input {_quote(source_text)} is named twice", ports=(number,))
            output_by_input[number] = self.find_number(output_text, Side.OUT)
        outputs = list(output_by_input.values())
        duplicates = sorted({port for port in outputs if outputs.count(port) > 1})
        if duplicates:
            raise PortError("an output is named twice", ports=duplicates)
        return output_by_input


def read_pairs(path: Path) -> list[str]:
    """Return the pairs in a file, as text. White space or commas separate them, `#` begins a comment.

    Raises `PortError` if the file is not text in UTF-8.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise PortError(
            f"{path} is not text in UTF-8: {error}", hint="Write INPUT:OUTPUT, one pair per line."
        ) from None
    return [pair for line in lines for pair in line.partition("#")[0].replace(",", " ").split()]
