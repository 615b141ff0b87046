"""SFP modules (10 to 50 Gbit/s): SFF-8472, with identity at one I2C address (A0h) and diagnostics at another (A2h)."""

from __future__ import annotations

from collections.abc import Iterator

from sim.twins.hosts.transceivers import text
from sim.twins.hosts.transceivers.memory import (
    DATE_CODE,
    FIRST_ADDRESS,
    LOWER_PAGE,
    SECOND_ADDRESS,
    VENDOR,
    Diagnostics,
    ModuleMemory,
    compute_checksum,
    encode_ascii,
    make_page,
    make_serial_number,
)

LANE_COUNT = 1
_LR_CODE = 0x03
_TYPES = {_LR_CODE: "100G Base-LR4 or 25GBase-LR"}
_ENCODINGS = {0x06: "64B/66B"}
# Address A2h has thresholds from offset 0 and values from offset 96, both in this order.
_CHANNEL_ORDER = ("temperature", "voltage", "bias", "transmit", "receive")
_VALUES_OFFSET, _ALARMS, _WARNINGS_OFFSET = 96, 112, 116
# ethtool prints flags in another order than the memory. The numbers are indices of _CHANNEL_ORDER.
_FLAGS = (
    ("Laser bias current", 2),
    ("Laser output power", 3),
    ("Module temperature", 0),
    ("Module voltage", 1),
    ("Laser rx power", 4),
)


def make_memory(nic: str, measurements: Diagnostics) -> ModuleMemory:
    """Return the memory of the module in a NIC."""
    identity = make_page(
        {
            0: bytes([0x03, 0x04, 0x07]),
            11: 0x06,
            12: bytes([0xFF]),  # 0xFF: the nominal rate is in byte 66, in units of 250 MBd
            14: bytes([10, 100]),
            20: encode_ascii(VENDOR, 16),
            36: _LR_CODE,
            40: encode_ascii("LB-25G-LR", 16),
            56: encode_ascii("1", 4),
            60: (1310).to_bytes(2, "big"),
            64: bytes([0x00, 0x1A]),
            66: 103,
            68: encode_ascii(make_serial_number(nic), 16),
            84: encode_ascii(DATE_CODE, 8),
            92: bytes(
                [0x68, 0xF0, 0x08]
            ),  # internal calibration, average power; flags implemented; revision 12.3
        },
        base=0,
    )
    identity[63], identity[95] = compute_checksum(identity[:63]), compute_checksum(identity[64:95])
    quantities = [getattr(measurements, name) for name in _CHANNEL_ORDER]
    diagnostics = make_page({0: b"".join(quantity.limits.encoded_bytes for quantity in quantities)}, base=0)
    diagnostics[_VALUES_OFFSET : _VALUES_OFFSET + 10] = b"".join(
        quantity.encoded_bytes for quantity in quantities
    )
    diagnostics[95] = compute_checksum(diagnostics[:95])
    for flags_offset, (high_index, low_index) in ((_ALARMS, (0, 1)), (_WARNINGS_OFFSET, (2, 3))):
        bits = "".join(
            f"{quantity.flags[0][high_index]:d}{quantity.flags[0][low_index]:d}" for quantity in quantities
        )
        diagnostics[flags_offset : flags_offset + 2] = int(bits.ljust(16, "0"), 2).to_bytes(2, "big")
    page_addresses = [
        (FIRST_ADDRESS, 0, LOWER_PAGE),
        (FIRST_ADDRESS, 0, 0),
        (SECOND_ADDRESS, 0, LOWER_PAGE),
        (SECOND_ADDRESS, 0, 0),
    ]
    contents = (bytes(identity), bytes(128), bytes(diagnostics), bytes(128))
    return ModuleMemory(dict(zip(page_addresses, contents, strict=True)), tuple(page_addresses))


def describe(module: ModuleMemory) -> Iterator[str]:
    """Yield the lines that ethtool prints for a module."""
    yield text.format_code("Identifier", module.read_byte(0), text.IDENTIFIERS)
    yield text.format_line("Extended identifier", "0x04 (GBIC/SFP defined by 2-wire interface ID)")
    yield text.format_code("Connector", module.read_byte(2), text.CONNECTORS)
    codes = [*module.read(offset=3, length=8), module.read_byte(36)]
    yield text.format_line("Transceiver codes", " ".join(f"0x{code:02x}" for code in codes))
    yield text.format_line("Transceiver type", f"Extended: {_TYPES[module.read_byte(36)]}")
    yield text.format_code("Encoding", module.read_byte(11), _ENCODINGS)
    yield text.format_line("BR, Nominal", f"{module.read_byte(66) * 250}MBd")
    yield text.format_code("Rate identifier", module.read_byte(13), {0: "unspecified"})
    lengths = (("SMF,km", 1, "km"), ("SMF", 100, "m"), ("50um", 10, "m"), ("62.5um", 10, "m"))
    for index, (fibre, unit, name) in enumerate((*lengths, ("Copper", 1, "m"), ("OM3", 10, "m"))):
        yield text.format_line(f"Length ({fibre})", f"{module.read_byte(14 + index) * unit}{name}")
    yield text.format_line("Laser wavelength", f"{module.read_word(60)}nm")
    yield text.format_line("Vendor name", module.read_text(20, 16))
    yield text.format_oui(module.read(offset=37, length=3))
    yield text.format_line("Vendor PN", module.read_text(40, 16))
    yield text.format_line("Vendor rev", module.read_text(56, 4))
    yield text.format_line(
        "Option values", " ".join(f"0x{value:02x}" for value in module.read(offset=64, length=2))
    )
    for bit, option in ((1, "RX_LOS"), (3, "TX_FAULT"), (4, "TX_DISABLE")):
        if module.read_byte(65) & 1 << bit:
            yield text.format_line("Option", f"{option} implemented")
    for margin in ("max", "min"):
        yield text.format_line(f"BR margin, {margin}", f"{module.read_byte(67)}%")
    yield text.format_line("Vendor SN", module.read_text(68, 16))
    yield text.format_line("Date code", module.read_text(84, 8))
    yield text.format_line("Optical diagnostics support", "Yes")
    yield from _describe_diagnostics(module)


def _describe_diagnostics(module: ModuleMemory) -> Iterator[str]:
    temperature, voltage, bias, transmit, receive = (
        module.read_word(_VALUES_OFFSET + 2 * index, address=SECOND_ADDRESS)
        for index in range(len(_CHANNEL_ORDER))
    )
    yield text.format_bias("Laser bias current", bias)
    yield text.format_power("Laser output power", transmit)
    yield text.format_power("Receiver signal average optical power", receive)
    yield text.format_temperature("Module temperature", temperature)
    yield text.format_voltage("Module voltage", voltage)
    yield text.format_line("Alarm/warning flags implemented", "Yes")
    for name, index in _FLAGS:
        for threshold_index, label in enumerate(text.LEVELS):
            flags = module.read_word(
                _ALARMS if threshold_index < 2 else _WARNINGS_OFFSET, address=SECOND_ADDRESS
            )
            yield text.format_flag(name, label, is_on=bool(flags & 1 << 15 - 2 * index - threshold_index % 2))
    offsets = {f"{name}_at": 8 * index for index, name in enumerate(_CHANNEL_ORDER)}
    yield from text.format_thresholds(module, **offsets, address=SECOND_ADDRESS)
