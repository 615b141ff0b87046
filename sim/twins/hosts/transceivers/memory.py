"""The memory of a module: pages of 128 bytes, at one or two I2C addresses."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

PAGE_BYTES = 128
FIRST_ADDRESS, SECOND_ADDRESS = 0x50, 0x51
LOWER = -1
"""Number of the lower half, which is the same whatever page is selected."""

Place = tuple[int, int, int]
"""I2C address, bank, page."""

VENDOR, DATE_CODE = "SIMULATED", "260101"


class NoSuchPageError(LookupError):
    """The module has no such address, bank or page, or the range leaves it."""


@dataclass(frozen=True, slots=True)
class ModuleMemory:
    """The pages of one module; `dump` names those of a complete dump, in its order."""

    pages: Mapping[Place, bytes]
    dump: tuple[Place, ...]

    def read(
        self, *, address: int = FIRST_ADDRESS, bank: int = 0, page: int = 0, offset: int, length: int
    ) -> bytes:
        """Return bytes of the 256 that are seen while a page is selected. Raises `NoSuchPageError`."""
        lower, upper = self.pages.get((address, 0, LOWER)), self.pages.get((address, bank, page))
        if lower is None or upper is None or offset < 0 or length < 1 or offset + length > 2 * PAGE_BYTES:
            raise NoSuchPageError
        return (lower + upper)[offset : offset + length]

    def complete(self) -> bytes:
        """Return all pages of a complete dump."""
        return b"".join(self.pages[place] for place in self.dump)

    def byte(self, offset: int, page: int = 0, *, address: int = FIRST_ADDRESS) -> int:
        """Return one byte."""
        return self.read(address=address, page=page, offset=offset, length=1)[0]

    def word(self, offset: int, page: int = 0, *, address: int = FIRST_ADDRESS) -> int:
        """Return two bytes as a number without sign."""
        return int.from_bytes(self.read(address=address, page=page, offset=offset, length=2), "big")

    def text(self, first: int, length: int, page: int = 0) -> str:
        """Return characters, without the blanks that fill the field."""
        data = self.read(page=page, offset=first, length=length).rstrip(b" ")
        return "".join(chr(value) if 32 <= value <= 126 else "_" for value in data)


def page(fields: Mapping[int, bytes | int], *, base: int = PAGE_BYTES) -> bytearray:
    """Return a page with bytes at the offsets of the standard, which begin at `base`; the others are 0."""
    memory = bytearray(PAGE_BYTES)
    for offset, content in fields.items():
        data = bytes([content]) if isinstance(content, int) else content
        memory[offset - base : offset - base + len(data)] = data
    return memory


def ascii_field(text: str, length: int) -> bytes:
    """Return characters, filled up with blanks."""
    return text[:length].ljust(length).encode("ascii")


def serial_number(nic: str) -> str:
    """Return a serial number that is the NIC's in every start of every lab."""
    return f"SIM{zlib.crc32(nic.encode()):08X}"


@dataclass(frozen=True, slots=True)
class VendorFields:
    """Offsets of what a module says of its maker, which QSFP and QSFP-DD modules say in the same order."""

    name: int
    oui: int
    part: int
    revision: int
    serial: int
    date: int

    def content(self, part: str, nic: str) -> dict[int, bytes | int]:
        """Return the fields of a module of ours in a NIC, for `page`."""
        return {
            self.name: ascii_field(VENDOR, 16),
            self.part: ascii_field(part, 16),
            self.revision: ascii_field("1", 2),
            self.serial: ascii_field(serial_number(nic), 16),
            self.date: ascii_field(DATE_CODE, 8),
        }


def check_sum(data: bytes | bytearray) -> int:
    """Return the low byte of a sum, as the standards have it."""
    return sum(data) & 0xFF
