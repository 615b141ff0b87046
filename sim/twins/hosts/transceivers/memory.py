"""The memory of an optical module: pages of 128 bytes at one or two I2C addresses, with measurements in memory units.

All standards use the same units, but at different offsets. A measurement has two bytes: power in 0.1 uW, bias current
in 2 uA, voltage in 0.1 mV, temperature in 1/256 degree Celsius.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.models.light import convert_dbm_to_milliwatt

PAGE_BYTES = 128
FIRST_ADDRESS, SECOND_ADDRESS = 0x50, 0x51
LOWER_PAGE = -1
"""Page number of the lower half of the memory, which does not depend on the selected page."""

PageAddress = tuple[int, int, int]
"""I2C address, bank, page."""

VENDOR, DATE_CODE = "SIMULATED", "260101"
TEMPERATURE_C = 38.5
VOLTAGE_V = 3.3
BIAS_MA = 45.0
_MAX_WORD = 0xFFFF
# Thresholds (high and low alarm, high and low warning) relative to the laser power of the lab. A healthy lab crosses
# none of them. As in long-reach modules, a receiver accepts up to 3 dB more and 14 dB less than the laser power.
_TRANSMIT_LIMITS_DB = (3.0, -4.0, 2.0, -3.0)
_RECEIVE_LIMITS_DB = (3.0, -14.0, 2.0, -11.0)


class NoSuchPageError(LookupError):
    """An address, bank or page that the module does not have, or a range beyond its end."""


@dataclass(frozen=True, slots=True)
class ModuleMemory:
    """The pages of one module. `dump_order` lists the pages of a complete dump, in order."""

    pages: Mapping[PageAddress, bytes]
    dump_order: tuple[PageAddress, ...]

    def read(
        self, *, address: int = FIRST_ADDRESS, bank: int = 0, page: int = 0, offset: int, length: int
    ) -> bytes:
        """Return `length` bytes from `offset` on, as a host reads them while a page is selected.

        The host sees 256 bytes: the lower half of the memory, then the page. Raise `NoSuchPageError` if the page does
        not exist or the range exceeds 256 bytes.
        """
        lower, upper = self.pages.get((address, 0, LOWER_PAGE)), self.pages.get((address, bank, page))
        if lower is None or upper is None or offset < 0 or length < 1 or offset + length > 2 * PAGE_BYTES:
            raise NoSuchPageError
        return (lower + upper)[offset : offset + length]

    def read_dump(self) -> bytes:
        """Return the bytes of a complete dump."""
        return b"".join(self.pages[page] for page in self.dump_order)

    def read_byte(self, offset: int, page: int = 0, *, address: int = FIRST_ADDRESS) -> int:
        """Return one byte as a number. Raise `NoSuchPageError`."""
        return self.read(address=address, page=page, offset=offset, length=1)[0]

    def read_word(self, offset: int, page: int = 0, *, address: int = FIRST_ADDRESS) -> int:
        """Return two bytes as an unsigned number, most significant byte first. Raise `NoSuchPageError`."""
        return int.from_bytes(self.read(address=address, page=page, offset=offset, length=2), "big")

    def read_text(self, first: int, length: int, page: int = 0) -> str:
        """Return a text field without trailing spaces. Characters that are not printable ASCII become `_`."""
        data = self.read(page=page, offset=first, length=length).rstrip(b" ")
        return "".join(chr(value) if 32 <= value <= 126 else "_" for value in data)


def make_page(fields: Mapping[int, bytes | int], *, base: int = PAGE_BYTES) -> bytearray:
    """Return a page with the bytes of `fields` at their offsets. Offsets begin at `base`. All other bytes are 0."""
    page = bytearray(PAGE_BYTES)
    for offset, content in fields.items():
        data = bytes([content]) if isinstance(content, int) else content
        page[offset - base : offset - base + len(data)] = data
    return page


def encode_ascii(text: str, length: int) -> bytes:
    """Return an ASCII field, truncated or filled with spaces to `length` bytes."""
    return text[:length].ljust(length).encode("ascii")


def make_serial_number(nic: str) -> str:
    """Return a serial number that depends only on the label of the NIC."""
    return f"SIM{zlib.crc32(nic.encode()):08X}"


@dataclass(frozen=True, slots=True)
class VendorOffsets:
    """Offsets of the vendor fields, which QSFP and QSFP-DD modules have in the same order."""

    name: int
    oui: int
    part: int
    revision: int
    serial: int
    date: int

    def make_content(self, part: str, nic: str) -> dict[int, bytes | int]:
        """Return the vendor fields of the simulated module in a NIC, for `make_page`."""
        return {
            self.name: encode_ascii(VENDOR, 16),
            self.part: encode_ascii(part, 16),
            self.revision: encode_ascii("1", 2),
            self.serial: encode_ascii(make_serial_number(nic), 16),
            self.date: encode_ascii(DATE_CODE, 8),
        }


def compute_checksum(data: bytes | bytearray) -> int:
    """Return the checksum of the standards: the low byte of the sum of all bytes."""
    return sum(data) & 0xFF


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of a quantity in the order of all standards: high and low alarm, high and low warning."""

    values: tuple[int, int, int, int]

    @property
    def encoded_bytes(self) -> bytes:
        """The thresholds as eight bytes."""
        return b"".join(encode_word(value) for value in self.values)

    def compute_flags(self, value: int) -> tuple[bool, bool, bool, bool]:
        """Return whether a value crosses each threshold, in the order of `values`."""
        high_alarm, low_alarm, high_warning, low_warning = self.values
        return value > high_alarm, value < low_alarm, value > high_warning, value < low_warning


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured quantity with its thresholds. It has a single value, or one value for each lane."""

    values: tuple[int, ...]
    limits: Limits

    @property
    def encoded_bytes(self) -> bytes:
        """The values as two bytes each."""
        return b"".join(encode_word(value) for value in self.values)

    @property
    def flags(self) -> tuple[tuple[bool, bool, bool, bool], ...]:
        """The flags of each value, as `Limits.compute_flags` returns them."""
        return tuple(self.limits.compute_flags(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """All measurements of a module. Bias current and powers have one value for each lane."""

    temperature: Quantity
    voltage: Quantity
    bias: Quantity
    transmit: Quantity
    receive: Quantity


def compute_diagnostics(
    lane_count: int, laser_dbm: float, transmitted_dbm: float, received_dbm: float
) -> Diagnostics:
    """Return the measurements of a module.

    Lanes are wavelengths on one fibre, with equal shares of its power. `laser_dbm` is the nominal laser power of the
    lab, to which thresholds are relative. `transmitted_dbm` is the current power of this laser, or minus infinity if it
    is off.
    """
    lane_split_db = 10 * math.log10(lane_count)
    lane_dbm = laser_dbm - lane_split_db
    bias = scale_to_memory(BIAS_MA, 500) if transmitted_dbm > -math.inf else 0
    return Diagnostics(
        temperature=_make_quantity([TEMPERATURE_C], (75, -5, 70, 0), 256),
        voltage=_make_quantity([VOLTAGE_V], (3.63, 2.97, 3.465, 3.135), 10_000),
        bias=Quantity((bias,) * lane_count, _make_limits((100, 10, 90, 15), 500)),
        transmit=_make_power(transmitted_dbm - lane_split_db, lane_count, lane_dbm, _TRANSMIT_LIMITS_DB),
        receive=_make_power(received_dbm - lane_split_db, lane_count, lane_dbm, _RECEIVE_LIMITS_DB),
    )


def _make_quantity(values: Sequence[float], limits: Sequence[float], scale: float) -> Quantity:
    return Quantity(tuple(scale_to_memory(value, scale) for value in values), _make_limits(limits, scale))


def _make_limits(limits: Sequence[float], scale: float) -> Limits:
    high_alarm, low_alarm, high_warning, low_warning = (scale_to_memory(value, scale) for value in limits)
    return Limits((high_alarm, low_alarm, high_warning, low_warning))


def _make_power(dbm: float, lane_count: int, lane_laser_dbm: float, limits_db: Sequence[float]) -> Quantity:
    limits = [convert_dbm_to_milliwatt(lane_laser_dbm + difference) for difference in limits_db]
    return Quantity(
        (scale_to_memory(convert_dbm_to_milliwatt(dbm), 10_000),) * lane_count, _make_limits(limits, 10_000)
    )


def scale_to_memory(value: float, scale: float) -> int:
    """Return a value in memory units, limited to the maximum of two bytes. One unit of `value` is `scale` memory units.

    >>> (
    ...     scale_to_memory(convert_dbm_to_milliwatt(-3.0), 10_000),
    ...     scale_to_memory(convert_dbm_to_milliwatt(float("-inf")), 10_000),
    ... )
    (5012, 0)
    """
    return min(round(value * scale), _MAX_WORD)


def encode_word(value: int) -> bytes:
    """Return a value as two bytes, most significant byte first. Negative values are in two's complement.

    >>> encode_word(-1280).hex()
    'fb00'
    """
    return (value & _MAX_WORD).to_bytes(2, "big")
