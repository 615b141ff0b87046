"""QSFP-DD modules (200 to 800 Gbit/s): CMIS 4.0, with pages 00h identity, 01h advertisement, 02h thresholds, 11h lanes.

Page 11h has eight lanes. Four of them carry light, as in FR4 modules: four wavelengths on one fibre.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.twins.hosts.transceivers import text
from sim.twins.hosts.transceivers.memory import (
    FIRST_ADDRESS,
    LOWER_PAGE,
    Diagnostics,
    ModuleMemory,
    Quantity,
    VendorOffsets,
    compute_checksum,
    encode_ascii,
    make_page,
)

LANE_COUNT = 4
_SHOWN_LANE_COUNT = 8
_TECHNOLOGIES = {0x06: "1310 nm EML"}
_VENDOR_OFFSETS = VendorOffsets(name=129, oui=145, part=148, revision=164, serial=166, date=182)
_STATES = {0x03: "ModuleReady"}
_ADVERTISEMENT_PAGE, _THRESHOLD_PAGE, _LANE_PAGE = 0x01, 0x02, 0x11
# Three offsets of each quantity: values on page 11h, the first of four flag bytes on page 11h, thresholds on page 02h.
_TRANSMIT, _BIAS, _RECEIVE = (154, 139, 176), (170, 143, 184), (186, 149, 192)
_TEMPERATURE_LIMITS, _VOLTAGE_LIMITS = 128, 136


def make_memory(nic: str, measurements: Diagnostics) -> ModuleMemory:
    """Return the memory of the module in a NIC."""
    lane_quantities = {
        _TRANSMIT: measurements.transmit,
        _BIAS: measurements.bias,
        _RECEIVE: measurements.receive,
    }
    lower = make_page(
        {0: bytes([0x18, 0x40, 0x00, 0x06]), 85: 0x02}, base=0
    )  # CMIS 4.0, paged, ModuleReady; single mode
    (temperature,), (voltage,) = measurements.temperature.flags, measurements.voltage.flags
    # Low four bits are the temperature flags, high four bits the voltage flags, each from high alarm to low warning.
    lower[9] = sum(is_on << index for index, is_on in enumerate((*temperature, *voltage)))
    lower[14:18] = measurements.temperature.encoded_bytes + measurements.voltage.encoded_bytes
    lane_page_fields = {
        value_at: quantity.encoded_bytes for (value_at, _, _), quantity in lane_quantities.items()
    }
    lane_page_fields |= {
        flags_at: _encode_lane_flags(quantity) for (_, flags_at, _), quantity in lane_quantities.items()
    }
    pages = {
        (FIRST_ADDRESS, 0, LOWER_PAGE): bytes(lower),
        (FIRST_ADDRESS, 0, 0): bytes(_make_identity(nic)),
        (FIRST_ADDRESS, 0, _ADVERTISEMENT_PAGE): bytes(_make_advertisement()),
        (FIRST_ADDRESS, 0, _THRESHOLD_PAGE): bytes(_make_thresholds(measurements)),
        (FIRST_ADDRESS, 0, 0x10): bytes(128),
        (FIRST_ADDRESS, 0, _LANE_PAGE): bytes(make_page(lane_page_fields)),
    }
    return ModuleMemory(pages, tuple(pages))


def _make_identity(nic: str) -> bytearray:
    identity = make_page(
        _VENDOR_OFFSETS.make_content("LB-400G-FR4", nic)
        | {
            128: 0x18,
            190: encode_ascii("", 10),
            200: bytes([0xA0, 48]),  # power class 6, 12 W
            203: 0x07,
            212: 0x06,
        }
    )
    identity[222 - 128] = compute_checksum(identity[: 222 - 128])
    return identity


def _make_advertisement() -> bytearray:
    content = make_page(
        {
            132: 0x42,  # 2 km
            138: (1311 * 20).to_bytes(2, "big"),
            140: (1300).to_bytes(2, "big"),
            151: 0x10,  # average power
            159: 0x03,
            160: 0x07,  # bias, transmit and receive power of lanes are measured
            161: bytes([0x01, 0x01]),
        }
    )
    content[-1] = compute_checksum(
        content[2:-1]
    )  # the sum excludes the first two bytes, the firmware version
    return content


def _make_thresholds(measurements: Diagnostics) -> bytearray:
    limits = {
        _TEMPERATURE_LIMITS: measurements.temperature.limits,
        _VOLTAGE_LIMITS: measurements.voltage.limits,
        _TRANSMIT[2]: measurements.transmit.limits,
        _BIAS[2]: measurements.bias.limits,
        _RECEIVE[2]: measurements.receive.limits,
    }
    content = make_page({offset: quantity_limits.encoded_bytes for offset, quantity_limits in limits.items()})
    content[-1] = compute_checksum(content[:-1])
    return content


def _encode_lane_flags(quantity: Quantity) -> bytes:
    """Return one flag byte for each threshold, with one bit for each lane."""
    return bytes(
        sum(flags[threshold_index] << lane for lane, flags in enumerate(quantity.flags))
        for threshold_index in range(len(text.LEVELS))
    )


def describe(module: ModuleMemory) -> Iterator[str]:
    """Yield the lines that ethtool prints for a module."""
    yield text.format_code("Identifier", module.read_byte(0), text.IDENTIFIERS)
    yield text.format_line("Power class", str((module.read_byte(200) >> 5) + 1))
    yield text.format_line("Max power", f"{module.read_byte(201) * 0.25:.2f}W")
    yield text.format_code("Connector", module.read_byte(203), text.CONNECTORS)
    yield text.format_line("Cable assembly length", "0.00m")
    for bit, name in ((1, "CDR bypass control"), (0, "CDR")):
        for index, direction in enumerate(("Tx", "Rx")):
            is_supported = module.read_byte(161 + index, _ADVERTISEMENT_PAGE) >> bit & 1
            yield text.format_line(f"{direction} {name}", "Yes" if is_supported else "No")
    yield text.format_code("Transmitter technology", module.read_byte(212), _TECHNOLOGIES)
    yield from text.format_wavelength(module, 138, _ADVERTISEMENT_PAGE)
    yield text.format_line("Length (SMF)", f"{module.read_byte(132, _ADVERTISEMENT_PAGE) & 0x3F:.2f}km")
    for index, (fibre, unit) in enumerate((("OM5", 2), ("OM4", 2), ("OM3 50/125um", 2), ("OM2 50/125um", 1))):
        yield text.format_line(
            f"Length ({fibre})", f"{module.read_byte(133 + index, _ADVERTISEMENT_PAGE) * unit}m"
        )
    yield from text.format_vendor(module, _VENDOR_OFFSETS)
    yield text.format_line(
        "Revision compliance", f"Rev. {module.read_byte(1) >> 4}.{module.read_byte(1) & 0xF}"
    )
    yield text.format_code("Module State", module.read_byte(3) >> 1 & 7, _STATES)
    yield text.format_line("LowPwrAllowRequestHW", "Off")
    yield text.format_line("LowPwrRequestSW", "Off")
    yield from _describe_diagnostics(module)


def _describe_diagnostics(module: ModuleMemory) -> Iterator[str]:
    yield text.format_temperature("Module temperature", module.read_word(14))
    yield text.format_voltage("Module voltage", module.read_word(16))
    quantities = (
        ("Laser tx bias current ", text.format_bias, _BIAS),
        ("Transmit avg optical power ", text.format_power, _TRANSMIT),
        ("Rcvr signal avg optical power ", text.format_power, _RECEIVE),
    )
    for name, format_value, (value_at, _, _) in quantities:
        yield from text.format_lanes(module, name, format_value, value_at, _SHOWN_LANE_COUNT, _LANE_PAGE)
    for index, name in enumerate(("Module temperature", "Module voltage")):
        for threshold_index, label in enumerate(text.LEVELS):
            yield text.format_flag(
                name, label, is_on=bool(module.read_byte(9) >> 4 * index + threshold_index & 1)
            )
    for lane in range(_SHOWN_LANE_COUNT):
        yield from _describe_lane(module, lane)
    yield from text.format_thresholds(
        module,
        bias_at=_BIAS[2],
        transmit_at=_TRANSMIT[2],
        temperature_at=_TEMPERATURE_LIMITS,
        voltage_at=_VOLTAGE_LIMITS,
        receive_at=_RECEIVE[2],
        page=_THRESHOLD_PAGE,
    )


def _describe_lane(module: ModuleMemory, lane: int) -> Iterator[str]:
    rows = (
        ("Laser bias current", _BIAS, "Chan"),
        ("Laser tx power", _TRANSMIT, "Channel"),
        ("Laser rx power", _RECEIVE, "Channel"),
    )
    for name, (_, flags_at, _), lane_name in rows:
        for threshold_index, label in enumerate(text.LEVELS):
            is_on = module.read_byte(flags_at + threshold_index, _LANE_PAGE) >> lane & 1
            yield text.format_flag(name, label, is_on=bool(is_on), lane_text=f"{lane_name} {lane + 1}")
