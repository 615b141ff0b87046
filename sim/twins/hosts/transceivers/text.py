"""Lines of `ethtool -m`, as version 6.1 prints them: a name, padded, and a value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

IDENTIFIERS = {
    0x03: "SFP",
    0x11: "QSFP28",
    0x18: "QSFP-DD Double Density 8X Pluggable Transceiver (INF-8628)",
}
CONNECTORS = {0x07: "LC"}
LEVELS = ("high alarm", "low alarm", "high warning", "low warning")
_UNKNOWN = "reserved or unknown"


def line(name: str, value: str) -> str:
    r"""Return one line.

    >>> line("Vendor rev", "A")
    '\tVendor rev                                : A'
    """
    return f"\t{name:<41} : {value}"


def coded(name: str, value: int, meanings: Mapping[int, str]) -> str:
    """Return a line with a code and what it means."""
    return line(name, f"0x{value:02x} ({meanings.get(value, _UNKNOWN)})")


def oui(data: bytes) -> str:
    """Return the line of the vendor's number."""
    return line("Vendor OUI", data.hex(":"))


def power(name: str, value: int) -> str:
    """Return a line with a power.

    >>> power("Laser output power", 5012).split(" : ")[1]
    '0.5012 mW / -3.00 dBm'
    """
    milliwatts = value / 10_000
    dbm = f"{10 * math.log10(milliwatts):.2f}" if value else "-inf"
    return line(name, f"{milliwatts:.4f} mW / {dbm} dBm")


def bias(name: str, value: int) -> str:
    """Return a line with a current."""
    return line(name, f"{value / 500:.3f} mA")


def temperature(name: str, value: int) -> str:
    """Return a line with a temperature, of a number without sign.

    >>> temperature("Module temperature", 0xFB00).split(" : ")[1]
    '-5.00 degrees C / 23.00 degrees F'
    """
    celsius = (value - 0x10000 if value & 0x8000 else value) / 256
    return line(name, f"{celsius:.2f} degrees C / {celsius * 1.8 + 32:.2f} degrees F")


def voltage(name: str, value: int) -> str:
    """Return a line with a voltage."""
    return line(name, f"{value / 10_000:.4f} V")


def flag(name: str, level: str, *, on: bool, lane: str = "") -> str:
    r"""Return a line of an alarm or warning; those of a lane are aligned.

    >>> flag("Laser rx power", "low alarm", on=True, lane="Channel 2")
    '\tLaser rx power low alarm    (Channel 2)   : On'
    """
    return line(f"{name} {level:<12} ({lane})" if lane else f"{name} {level}", "On" if on else "Off")


def thresholds(
    *, bias_at: bytes, transmit_at: bytes, temperature_at: bytes, voltage_at: bytes, receive_at: bytes
) -> Iterable[str]:
    """Return the lines of all thresholds, each given as its eight bytes."""
    quantities = (
        ("Laser bias current", bias, bias_at),
        ("Laser output power", power, transmit_at),
        ("Module temperature", temperature, temperature_at),
        ("Module voltage", voltage, voltage_at),
        ("Laser rx power", power, receive_at),
    )
    for name, formatted, data in quantities:
        for at, level in enumerate(LEVELS):
            yield formatted(f"{name} {level} threshold", int.from_bytes(data[2 * at : 2 * at + 2], "big"))
