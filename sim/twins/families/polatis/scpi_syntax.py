"""The grammar of the switch's SCPI, seen from the instrument: bytes to commands, values to replies.

Sans I/O. A line ends with LF or CRLF; `;` chains commands. Source of the rules: SCPI-99 volume 1, chapter 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sim.twins.frontends.scpi_errors import ScpiError
from sim.twins.frontends.scpi_syntax import Unit

MAX_LINE_BYTES = 1 << 16

_LIST = re.compile(r"\(@([^()]*)\)")
_RANGE = re.compile(r"\s*(\d{1,9})\s*(?::\s*(\d{1,9})\s*)?")
_MAX_LIST = 4096


class LineReader:
    """Cuts a stream of bytes into lines, however it was split on its way."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes, without their endings.

        Raises `ScpiError` (-363) when a line grows beyond all reason; what was kept of it is dropped.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
            raise ScpiError(-363)
        return [line.removesuffix(b"\r").decode("latin-1") for line in lines]


def units(line: str) -> list[Unit]:
    """Return the commands of one line.

    >>> units(":oxc:swit:conn:only (@1,2),(@49,50);*OPC?")
    [Unit(header=':oxc:swit:conn:only', parameters=('(@1,2)', '(@49,50)')), Unit(header='*OPC?', parameters=())]
    """
    return [_unit(text.strip()) for text in _split(line, ";") if text.strip()]


def _unit(text: str) -> Unit:
    header, _, rest = text.partition(" ") if " " in text else text.partition("\t")
    return Unit(header, tuple(part.strip() for part in _split(rest, ",")) if rest.strip() else ())


def _split(text: str, separator: str) -> list[str]:
    """Split at separators that stand outside parentheses and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == separator and depth <= 0:
            parts.append("")
            continue
        parts[-1] += character
    return parts


def port_list(text: str) -> list[int]:
    """Return the ports of a channel list.

    >>> port_list("(@1,2,5:7)"), port_list("(@)")
    ([1, 2, 5, 6, 7], [])

    Raises `ScpiError`: -102 when it is no list, -223 when it is absurdly long.
    """
    found = _LIST.fullmatch(text)
    if not found:
        raise ScpiError(-102, text[:40])
    ports = [port for item in found[1].split(",") if found[1].strip() for port in _range(item)]
    if len(ports) > _MAX_LIST:
        raise ScpiError(-223)
    return ports


def _range(item: str) -> Iterable[int]:
    found = _RANGE.fullmatch(item)
    if not found:
        raise ScpiError(-102, item[:40])
    first, last = int(found[1]), int(found[2] or found[1])
    return range(first, min(last, first + _MAX_LIST) + 1)


def show_ports(ports: Iterable[int]) -> str:
    """Return a channel list as the device writes it.

    >>> show_ports([1, 2]), show_ports([])
    ('(@1,2)', '(@)')
    """
    return f"(@{','.join(map(str, ports))})"


def show_values(values: Sequence[str]) -> str:
    """Return values in parentheses, as port states and powers are written.

    >>> show_values(["D", "E"])
    '(D,E)'
    """
    return f"({','.join(values)})"
