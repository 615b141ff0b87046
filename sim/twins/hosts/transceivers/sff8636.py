"""QSFP modules (40 and 100 Gbit/s): SFF-8636, with page 00h identity, 03h thresholds, and values in the lower half."""

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
    make_page,
)

LANE_COUNT = 4
_CWDM4_CODE = 0x06
_TYPES = {_CWDM4_CODE: "100G CWDM4 MSA with FEC"}
_ENCODINGS = {0x03: "NRZ"}
_TECHNOLOGIES = {0x40: "1310 nm DFB"}
_REVISIONS = {0x07: "SFF-8636 Rev 2.5/2.6/2.7"}
_DESCRIPTION = "Extended identifier description"
_THRESHOLD_PAGE = 0x03
_VENDOR_OFFSETS = VendorOffsets(name=148, oui=165, part=168, revision=184, serial=196, date=212)
# Three offsets of each quantity: values in the lower half, flags in the lower half, thresholds on page 03h.
_TEMPERATURE, _VOLTAGE = (22, 6, 128), (26, 7, 144)
_RECEIVE, _BIAS, _TRANSMIT = (34, 9, 176), (42, 11, 184), (50, 13, 192)


def make_memory(nic: str, measurements: Diagnostics) -> ModuleMemory:
    """Return the memory of the module in a NIC."""
    quantities = {
        _TEMPERATURE: measurements.temperature,
        _VOLTAGE: measurements.voltage,
        _RECEIVE: measurements.receive,
        _BIAS: measurements.bias,
        _TRANSMIT: measurements.transmit,
    }
    lower = make_page({0: bytes([0x11, 0x07])}, base=0)
    for (value_at, flags_at, _), quantity in quantities.items():
        lower[value_at : value_at + len(quantity.encoded_bytes)] = quantity.encoded_bytes
        flags = _encode_flags(quantity)
        lower[flags_at : flags_at + len(flags)] = flags
    limits = make_page(
        {limit_at: quantity.limits.encoded_bytes for (_, _, limit_at), quantity in quantities.items()}
    )
    pages = {
        (FIRST_ADDRESS, 0, LOWER_PAGE): bytes(lower),
        (FIRST_ADDRESS, 0, 0): bytes(_make_identity(nic)),
        (FIRST_ADDRESS, 0, 1): bytes(128),
        (FIRST_ADDRESS, 0, 2): bytes(128),
        (FIRST_ADDRESS, 0, _THRESHOLD_PAGE): bytes(limits),
    }
    return ModuleMemory(pages, tuple(pages))


def _make_identity(nic: str) -> bytearray:
    identity = make_page(
        _VENDOR_OFFSETS.make_content("LB-100G-CWDM4", nic)
        | {
            128: bytes([0x11, 0xCC, 0x07, 0x80]),
            139: bytes([0x03, 0xFF]),  # NRZ; 0xFF: the nominal rate is in byte 222
            142: 2,
            147: 0x40,
            186: (1301 * 20).to_bytes(2, "big"),
            188: (1300).to_bytes(2, "big"),
            190: 70,
            192: _CWDM4_CODE,
            195: 0xC0,  # pages 01h and 02h exist
            220: 0x0C,  # average power, transmit power measured
            222: 103,
        }
    )
    identity[191 - 128] = compute_checksum(identity[: 191 - 128])
    identity[223 - 128] = compute_checksum(identity[192 - 128 : 223 - 128])
    return identity


def _encode_flags(quantity: Quantity) -> bytes:
    """Return the flag bytes of a quantity: four bits for each value, two values in each byte."""
    bits = "".join("".join(f"{is_on:d}" for is_on in flags) for flags in quantity.flags)
    width = -(-len(bits) // 8) * 8
    return int(bits.ljust(width, "0"), 2).to_bytes(width // 8, "big")


def describe(module: ModuleMemory) -> Iterator[str]:
    """Yield the lines that ethtool prints for a module."""
    yield text.format_code("Identifier", module.read_byte(0), text.IDENTIFIERS)
    yield text.format_line("Extended identifier", f"0x{module.read_byte(129):02x}")
    yield text.format_line(_DESCRIPTION, "3.5W max. Power consumption")
    yield text.format_line(_DESCRIPTION, "CDR present in TX, CDR present in RX")
    yield text.format_line(_DESCRIPTION, "High Power Class (> 3.5 W) not enabled")
    yield text.format_line("Power set", "Off")
    yield text.format_line("Power override", "Off")
    yield text.format_code("Connector", module.read_byte(130), text.CONNECTORS)
    codes = module.read(offset=131, length=8)
    yield text.format_line("Transceiver codes", " ".join(f"0x{code:02x}" for code in codes))
    yield text.format_line("Transceiver type", f"100G Ethernet: {_TYPES[module.read_byte(192)]}")
    yield text.format_code("Encoding", module.read_byte(139), _ENCODINGS)
    yield text.format_line("BR, Nominal", f"{module.read_byte(140) * 100}Mbps")
    yield text.format_line("Rate identifier", f"0x{module.read_byte(141):02x}")
    lengths = (("SMF,km", 1, "km"), ("OM3 50um", 2, "m"), ("OM2 50um", 1, "m"), ("OM1 62.5um", 1, "m"))
    for offset, (fibre, unit, name) in enumerate((*lengths, ("Copper or Active cable", 1, "m"))):
        yield text.format_line(f"Length ({fibre})", f"{module.read_byte(142 + offset) * unit}{name}")
    yield text.format_code("Transmitter technology", module.read_byte(147) & 0xF0, _TECHNOLOGIES)
    yield from text.format_wavelength(module, 186)
    yield from text.format_vendor(module, _VENDOR_OFFSETS)
    yield text.format_line("Revision Compliance", _REVISIONS[module.read_byte(1)])
    yield from _describe_diagnostics(module)


def _describe_diagnostics(module: ModuleMemory) -> Iterator[str]:
    yield text.format_temperature("Module temperature", module.read_word(_TEMPERATURE[0]))
    yield text.format_voltage("Module voltage", module.read_word(_VOLTAGE[0]))
    yield text.format_line("Alarm/warning flags implemented", "Yes")
    yield from text.format_lanes(module, "Laser tx bias current ", text.format_bias, _BIAS[0], LANE_COUNT)
    yield from text.format_lanes(
        module, "Transmit avg optical power ", text.format_power, _TRANSMIT[0], LANE_COUNT
    )
    yield from text.format_lanes(
        module, "Rcvr signal avg optical power", text.format_power, _RECEIVE[0], LANE_COUNT
    )
    yield from _describe_flags(module, "Laser bias current", _BIAS[1], "Chan", LANE_COUNT)
    yield from _describe_flags(module, "Module temperature", _TEMPERATURE[1])
    yield from _describe_flags(module, "Module voltage", _VOLTAGE[1])
    yield from _describe_flags(module, "Laser tx power", _TRANSMIT[1], "Channel", LANE_COUNT)
    yield from _describe_flags(module, "Laser rx power", _RECEIVE[1], "Channel", LANE_COUNT)
    yield from text.format_thresholds(
        module,
        bias_at=_BIAS[2],
        transmit_at=_TRANSMIT[2],
        temperature_at=_TEMPERATURE[2],
        voltage_at=_VOLTAGE[2],
        receive_at=_RECEIVE[2],
        page=_THRESHOLD_PAGE,
    )


def _describe_flags(
    module: ModuleMemory, name: str, offset: int, lane_name: str = "", lane_count: int = 1
) -> Iterator[str]:
    for lane in range(lane_count):
        lane_bits = module.read_byte(offset + lane // 2) >> (4 if lane % 2 == 0 else 0)
        for threshold_index, label in enumerate(text.LEVELS):
            lane_label = f"{lane_name} {lane + 1}" if lane_name else ""
            yield text.format_flag(
                name, label, is_on=bool(lane_bits & 8 >> threshold_index), lane_text=lane_label
            )
