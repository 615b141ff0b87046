"""Output lines of `ethtool -m` in the format of version 6.1. A line has a padded name and a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from sim.twins.hosts.transceivers.memory import FIRST_ADDRESS, ModuleMemory, VendorOffsets

IDENTIFIERS = {
    0x03: "SFP",
    0x11: "QSFP28",
    0x18: "QSFP-DD Double Density 8X Pluggable Transceiver (INF-8628)",
}
CONNECTORS = {0x07: "LC"}
LEVELS = ("high alarm", "low alarm", "high warning", "low warning")
_UNKNOWN = "reserved or unknown"


def format_line(name: str, value: str) -> str:
    r"""Return one output line.

    >>> format_line("Vendor rev", "A")
    '\tVendor rev                                : A'
    """
    return f"\t{name:<41} : {value}"


def format_code(name: str, value: int, meanings: Mapping[int, str]) -> str:
    """Return a line with a code and its meaning."""
    return format_line(name, f"0x{value:02x} ({meanings.get(value, _UNKNOWN)})")


def format_oui(data: bytes) -> str:
    """Return the line of the vendor OUI. `data` has three bytes."""
    return format_line("Vendor OUI", data.hex(":"))


def format_vendor(module: ModuleMemory, offsets: VendorOffsets) -> Iterator[str]:
    """Yield the lines of vendor, part, revision, serial number and date."""
    yield format_line("Vendor name", module.read_text(offsets.name, 16))
    yield format_oui(module.read(offset=offsets.oui, length=3))
    yield format_line("Vendor PN", module.read_text(offsets.part, 16))
    yield format_line("Vendor rev", module.read_text(offsets.revision, 2))
    yield format_line("Vendor SN", module.read_text(offsets.serial, 16))
    yield format_line("Date code", module.read_text(offsets.date, 8))


def format_wavelength(module: ModuleMemory, offset: int, page: int = 0) -> Iterator[str]:
    """Yield the lines of wavelength (0.05 nm units, at `offset`) and tolerance (0.005 nm units, two bytes later)."""
    yield format_line("Laser wavelength", f"{module.read_word(offset, page) * 0.05:.3f}nm")
    yield format_line("Laser wavelength tolerance", f"{module.read_word(offset + 2, page) * 0.005:.3f}nm")


def format_power(name: str, value: int) -> str:
    """Return a line with a power, from a value in units of 0.1 uW.

    >>> format_power("Laser output power", 5012).split(" : ")[1]
    '0.5012 mW / -3.00 dBm'
    """
    milliwatts = value / 10_000
    dbm = f"{10 * math.log10(milliwatts):.2f}" if value else "-inf"
    return format_line(name, f"{milliwatts:.4f} mW / {dbm} dBm")


def format_bias(name: str, value: int) -> str:
    """Return a line with a bias current, from a value in units of 2 uA."""
    return format_line(name, f"{value / 500:.3f} mA")


def format_temperature(name: str, value: int) -> str:
    """Return a line with a temperature, from a word in two's complement, in units of 1/256 degree Celsius.

    >>> format_temperature("Module temperature", 0xFB00).split(" : ")[1]
    '-5.00 degrees C / 23.00 degrees F'
    """
    celsius = (value - 0x10000 if value & 0x8000 else value) / 256
    return format_line(name, f"{celsius:.2f} degrees C / {celsius * 1.8 + 32:.2f} degrees F")


def format_voltage(name: str, value: int) -> str:
    """Return a line with a voltage, from a value in units of 0.1 mV."""
    return format_line(name, f"{value / 10_000:.4f} V")


def format_flag(name: str, threshold_name: str, *, is_on: bool, lane_text: str = "") -> str:
    r"""Return the line of an alarm or warning flag. `lane_text` is a text in parentheses; an empty text is left out.

    >>> format_flag("Laser rx power", "low alarm", is_on=True, lane_text="Channel 2")
    '\tLaser rx power low alarm    (Channel 2)   : On'
    """
    return format_line(
        f"{name} {threshold_name:<12} ({lane_text})" if lane_text else f"{name} {threshold_name}",
        "On" if is_on else "Off",
    )


def format_lanes(
    module: ModuleMemory,
    name: str,
    format_value: Callable[[str, int], str],
    offset: int,
    count: int,
    page: int = 0,
) -> Iterator[str]:
    """Yield one line for each of `count` lanes. The words of the lanes are adjacent and start at `offset`."""
    for lane in range(count):
        yield format_value(f"{name}(Channel {lane + 1})", module.read_word(offset + 2 * lane, page))


def format_thresholds(
    module: ModuleMemory,
    *,
    bias_at: int,
    transmit_at: int,
    temperature_at: int,
    voltage_at: int,
    receive_at: int,
    page: int = 0,
    address: int = FIRST_ADDRESS,
) -> Iterable[str]:
    """Yield the lines of all thresholds. The thresholds of a quantity are eight bytes at its offset."""
    quantities = (
        ("Laser bias current", format_bias, bias_at),
        ("Laser output power", format_power, transmit_at),
        ("Module temperature", format_temperature, temperature_at),
        ("Module voltage", format_voltage, voltage_at),
        ("Laser rx power", format_power, receive_at),
    )
    for name, format_value, offset in quantities:
        for index, threshold_name in enumerate(LEVELS):
            value = module.read_word(offset + 2 * index, page, address=address)
            yield format_value(f"{name} {threshold_name} threshold", value)
