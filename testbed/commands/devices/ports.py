"""Ports as operators write them: numbers, or the device's own names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ocs_drivers.errors import PortError, UnknownPort
from ocs_drivers.model import PortInfo, Side

_NUMBER = re.compile("[0-9]{1,9}")
"""A number as people write it: digits of other alphabets are a name, and so is what no switch has."""

LONGEST_SHOWN = 40


def _quote(text: str) -> str:
    """Return what was written, quoted; a long one cut."""
    return (
        repr(text) if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]!r}... ({len(text)} characters)"
    )


class PortNames:
    """Finds the ports of one switch. A name may stand on both sides (`1.1.1`): then the place decides."""

    def __init__(self, ports: Mapping[int, PortInfo]) -> None:
        self._ports = ports

    def name(self, port: int) -> str:
        """Return what the device calls a port."""
        return self._ports[port].name

    def number(self, text: str, side: Side | None) -> int:
        """Return the port that `text` means; on `side` when it says which. Raises `UnknownPort`.

        A number that is a port's number is that port; anything else, and whatever follows `=`, is a name.
        """
        name = text.removeprefix("=").strip()
        if name == text.strip() and _NUMBER.fullmatch(name) and int(name) in self._ports:
            return int(name)
        matches = [
            number
            for number, info in self._ports.items()
            if info.name == name and (side is None or info.side is side)
        ]
        if not matches:
            where = f" on the {side.value}put side" if side else ""
            raise UnknownPort(
                f"the switch has no port {_quote(text)}{where}",
                hint="`testbed switch ADDRESS ports` lists them.",
            )
        if len(matches) > 1:
            raise UnknownPort(
                f"{_quote(text)} names both an input and an output", ports=matches, hint="Use the number."
            )
        return matches[0]

    def inputs(self, text: str) -> list[int]:
        """Return the inputs of a scope, comma between. Raises `UnknownPort`, also for none at all."""
        if not text.strip():
            raise UnknownPort(
                "the scope is empty", hint="Name its inputs, or leave out --scope to include all."
            )
        return [self.number(each, Side.IN) for each in text.split(",")]

    def pairs(self, texts: Iterable[str]) -> dict[int, int]:
        """Return pairs written `INPUT:OUTPUT`. Raises `PortError` for another form or an input named twice."""
        pairs: dict[int, int] = {}
        for text in texts:
            source, colon, output = text.partition(":")
            if not colon:
                raise PortError(
                    f"{_quote(text)} is not a pair", hint="Write INPUT:OUTPUT, such as 1:49 or E3:W4."
                )
            number = self.number(source, Side.IN)
            if number in pairs:
                raise PortError(f"input {_quote(source)} is named twice", ports=(number,))
            pairs[number] = self.number(output, Side.OUT)
        outputs = list(pairs.values())
        twice = sorted({port for port in outputs if outputs.count(port) > 1})
        if twice:
            raise PortError("an output is named twice", ports=twice)
        return pairs


def pairs_in_file(path: Path) -> list[str]:
    """Return the pairs of a file, one or more a line; `#` begins a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise PortError(
            f"{path} is not text in UTF-8: {error}", hint="Write INPUT:OUTPUT, one pair per line."
        ) from None
    return [word for line in lines for word in line.partition("#")[0].replace(",", " ").split()]
