"""The memory of a module: pages of 128 bytes, at one or two I2C addresses, and measurements in its units.

The standards share the units and differ in the places: power is in 0.1 uW, bias current in 2 uA, voltage in 0.1 mV,
temperature in 1/256 degree Celsius, each in two bytes.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.models.light import milliwatt

PAGE_BYTES = 128
FIRST_ADDRESS, SECOND_ADDRESS = 0x50, 0x51
LOWER = -1
"""Number of the lower half, which is the same whatever page is selected."""

Place = tuple[int, int, int]
"""I2C address, bank, page."""

VENDOR, DATE_CODE = "SIMULATED", "260101"
TEMPERATURE_C = 38.5
VOLTAGE_V = 3.3
BIAS_MA = 45.0
_LARGEST = 0xFFFF
# High and low alarm, high and low warning: of a module that fits the laser of the lab, so that a healthy lab raises
# none of them. A receiver bears 3 dB more than the laser sends, and needs some 14 dB less, as long-reach modules do.
_TRANSMIT_DB = (3.0, -4.0, 2.0, -3.0)
_RECEIVE_DB = (3.0, -14.0, 2.0, -11.0)


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


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of one quantity in the order of every standard: high and low alarm, high and low warning."""

    values: tuple[int, int, int, int]

    @property
    def memory(self) -> bytes:
        """The eight bytes of the thresholds."""
        return b"".join(word(value) for value in self.values)

    def flags(self, value: int) -> tuple[bool, bool, bool, bool]:
        """Return which thresholds a value crosses, in the same order."""
        high_alarm, low_alarm, high_warning, low_warning = self.values
        return value > high_alarm, value < low_alarm, value > high_warning, value < low_warning


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured quantity, one value or one a lane, with its thresholds."""

    values: tuple[int, ...]
    limits: Limits

    @property
    def memory(self) -> bytes:
        """The values, two bytes each."""
        return b"".join(word(value) for value in self.values)

    @property
    def flags(self) -> tuple[tuple[bool, bool, bool, bool], ...]:
        """The crossed thresholds, by value."""
        return tuple(self.limits.flags(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Everything that a module measures; bias and powers are by lane."""

    temperature: Quantity
    voltage: Quantity
    bias: Quantity
    transmit: Quantity
    receive: Quantity


def measure(lanes: int, laser_dbm: float, transmitted_dbm: float, received_dbm: float) -> Diagnostics:
    """Return what a module of so many lanes measures.

    The lanes are wavelengths on one fibre and share its light equally. `laser_dbm` is what the lab's lasers send,
    `transmitted_dbm` what this one does now: minus infinity where it is off.
    """
    share_db = 10 * math.log10(lanes)
    lane_dbm = laser_dbm - share_db
    bias = scale_to_memory(BIAS_MA, 500) if transmitted_dbm > -math.inf else 0
    return Diagnostics(
        temperature=_quantity([TEMPERATURE_C], (75, -5, 70, 0), 256),
        voltage=_quantity([VOLTAGE_V], (3.63, 2.97, 3.465, 3.135), 10_000),
        bias=Quantity((bias,) * lanes, _limits((100, 10, 90, 15), 500)),
        transmit=_power(transmitted_dbm - share_db, lanes, lane_dbm, _TRANSMIT_DB),
        receive=_power(received_dbm - share_db, lanes, lane_dbm, _RECEIVE_DB),
    )


def _quantity(values: Sequence[float], limits: Sequence[float], scale: float) -> Quantity:
    return Quantity(tuple(scale_to_memory(value, scale) for value in values), _limits(limits, scale))


def _limits(limits: Sequence[float], scale: float) -> Limits:
    high_alarm, low_alarm, high_warning, low_warning = (scale_to_memory(value, scale) for value in limits)
    return Limits((high_alarm, low_alarm, high_warning, low_warning))


def _power(dbm: float, lanes: int, laser_dbm: float, limits_db: Sequence[float]) -> Quantity:
    limits = [milliwatt(laser_dbm + difference) for difference in limits_db]
    return Quantity((scale_to_memory(milliwatt(dbm), 10_000),) * lanes, _limits(limits, 10_000))


def scale_to_memory(value: float, scale: float) -> int:
    """Return a value in units of the memory, as large as two bytes hold at most.

    >>> scale_to_memory(milliwatt(-3.0), 10_000), scale_to_memory(milliwatt(float("-inf")), 10_000)
    (5012, 0)
    """
    return min(round(value * scale), _LARGEST)


def word(value: int) -> bytes:
    """Return two bytes, the high one first; negative values are in two's complement.

    >>> word(-1280).hex()
    'fb00'
    """
    return (value & _LARGEST).to_bytes(2, "big")
