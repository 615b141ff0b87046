"""Output lines of `ethtool -m`, in the format of version 6.1: a padded name and a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from sim.twins.hosts.transceivers.memory import FIRST_ADDRESS, ModuleMemory, VendorFields

IDENTIFIERS = {
    0x03: "SFP",
    0x11: "QSFP28",
    0x18: "QSFP-DD Double Density 8X Pluggable Transceiver (INF-8628)",
}
CONNECTORS = {0x07: "LC"}
LEVELS = ("high alarm", "low alarm", "high warning", "low warning")
_UNKNOWN = "reserved or unknown"


def line(name: str, value: str) -> str:
    r"""Return one output line.

    >>> line("Vendor rev", "A")
    '\tVendor rev                                : A'
    """
    return f"\t{name:<41} : {value}"


def format_code(name: str, value: int, meanings: Mapping[int, str]) -> str:
    """Return a line with a code and its meaning."""
    return line(name, f"0x{value:02x} ({meanings.get(value, _UNKNOWN)})")


def oui(data: bytes) -> str:
    """Return the line of the vendor OUI, from three bytes."""
    return line("Vendor OUI", data.hex(":"))


def vendor(module: ModuleMemory, fields: VendorFields) -> Iterator[str]:
    """Yield the lines of vendor, part, revision, serial number and date."""
    yield line("Vendor name", module.text(fields.name, 16))
    yield oui(module.read(offset=fields.oui, length=3))
    yield line("Vendor PN", module.text(fields.part, 16))
    yield line("Vendor rev", module.text(fields.revision, 2))
    yield line("Vendor SN", module.text(fields.serial, 16))
    yield line("Date code", module.text(fields.date, 8))


def wavelength(module: ModuleMemory, at: int, page: int = 0) -> Iterator[str]:
    """Yield the lines of the wavelength (0.05 nm units at offset `at`) and its tolerance (0.005 nm units, at + 2)."""
    yield line("Laser wavelength", f"{module.word(at, page) * 0.05:.3f}nm")
    yield line("Laser wavelength tolerance", f"{module.word(at + 2, page) * 0.005:.3f}nm")


def power(name: str, value: int) -> str:
    """Return a line with a power, from a value in units of 0.1 uW.

    >>> power("Laser output power", 5012).split(" : ")[1]
    '0.5012 mW / -3.00 dBm'
    """
    milliwatts = value / 10_000
    dbm = f"{10 * math.log10(milliwatts):.2f}" if value else "-inf"
    return line(name, f"{milliwatts:.4f} mW / {dbm} dBm")


def bias(name: str, value: int) -> str:
    """Return a line with a bias current, from a value in units of 2 uA."""
    return line(name, f"{value / 500:.3f} mA")


def temperature(name: str, value: int) -> str:
    """Return a line with a temperature, from an unsigned word in units of 1/256 degree Celsius, two's complement.

    >>> temperature("Module temperature", 0xFB00).split(" : ")[1]
    '-5.00 degrees C / 23.00 degrees F'
    """
    celsius = (value - 0x10000 if value & 0x8000 else value) / 256
    return line(name, f"{celsius:.2f} degrees C / {celsius * 1.8 + 32:.2f} degrees F")


def voltage(name: str, value: int) -> str:
    """Return a line with a voltage, from a value in units of 0.1 mV."""
    return line(name, f"{value / 10_000:.4f} V")


def flag(name: str, level: str, *, on: bool, lane: str = "") -> str:
    r"""Return the line of an alarm or warning flag; `lane` is the text in parentheses, empty for none.

    >>> flag("Laser rx power", "low alarm", on=True, lane="Channel 2")
    '\tLaser rx power low alarm    (Channel 2)   : On'
    """
    return line(f"{name} {level:<12} ({lane})" if lane else f"{name} {level}", "On" if on else "Off")


def lanes(
    module: ModuleMemory,
    name: str,
    format_value: Callable[[str, int], str],
    at: int,
    count: int,
    page: int = 0,
) -> Iterator[str]:
    """Yield one line for each of `count` lanes, whose words are adjacent from offset `at`."""
    for lane in range(count):
        yield format_value(f"{name}(Channel {lane + 1})", module.word(at + 2 * lane, page))


def thresholds(
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
    """Yield the lines of all thresholds; each quantity has eight bytes from its offset."""
    quantities = (
        ("Laser bias current", bias, bias_at),
        ("Laser output power", power, transmit_at),
        ("Module temperature", temperature, temperature_at),
        ("Module voltage", voltage, voltage_at),
        ("Laser rx power", power, receive_at),
    )
    for name, format_value, offset in quantities:
        for at, level in enumerate(LEVELS):
            value = module.word(offset + 2 * at, page, address=address)
            yield format_value(f"{name} {level} threshold", value)
