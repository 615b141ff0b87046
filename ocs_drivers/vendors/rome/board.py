"""Replies to `show board`: who the device is and how many ports its table must have. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import Identity
from ocs_drivers.vendors.rome.dialect import Dialect

_SERIAL = re.compile(r"^BOARD\b.*S/N\((?P<serial>[^)]*)\)", re.MULTILINE)
_FIRMWARE = re.compile(r"^ACTIVE SW VER\s+(?P<version>\S+)", re.MULTILINE)
_PAIRED = re.compile(r"^PAIRED PORT\s+Enabled\b", re.MULTILINE | re.IGNORECASE)
_LAST_LINE = "AUTHENTICATION"


@dataclass(frozen=True, slots=True)
class Board:
    """Identity of the device; `east` and `west` are the rows that its table of ports has on each side.

    `paired` is True where the device says that its ports are paired: a circuit may go with its mirrored one.
    """

    identity: Identity
    east: int
    west: int
    paired: bool = False


def decode_board(lines: Sequence[str], dialect: Dialect) -> Board:
    """Decode the board from the lines of `show board`.

    Raises `ProtocolDesync` when it is another family's, or not whole.
    """
    text = "\n".join(lines)
    kind = re.search(rf"^{dialect.kind} TYPE\s+(?P<type>\S.*)$", text, re.MULTILINE)
    sizes = _sizes(text, dialect)
    if kind is None or not all(sizes.values()) or _LAST_LINE not in text:
        raise ProtocolDesync(
            f"this is not the whole board of a device of kind {dialect.kind}",
            received=text,
            hint="Check the address: rome+... is for ROME, afm+... for AFM.",
        )
    name = kind["type"].rstrip()
    model = name if name.startswith(dialect.kind) else f"{dialect.kind} type {name}"
    identity = Identity(dialect.vendor, model, _found(_SERIAL, text), _found(_FIRMWARE, text))
    return Board(identity, sizes["east"], sizes["west"], _PAIRED.search(text) is not None)


def _sizes(text: str, dialect: Dialect) -> dict[str, int]:
    """Return the rows of each side, summed over all matrices."""
    sizes = {"east": 0, "west": 0}
    for match in dialect.size.finditer(text):
        sizes[match["side"].lower()] += int(match["last"])
    return sizes


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""
