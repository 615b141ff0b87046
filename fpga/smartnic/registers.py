"""Registers of the smartNIC on AXI4-Lite, for the register file of `smartnic_axi` and for the driver."""

from __future__ import annotations

import zlib

from fpga.registers.model import Access, BitField, MapBuilder, RegisterMap

IDENTITY = 0x4E49_4301
"""ID of the smartNIC (0x4E4943), layout 1."""
TABLE_NUMBERS = {"models": 0, "layers": 1, "look_up": 2}
"""Numbers of the tables of `fpga.smartnic.program` in TABLE_ADDRESS."""
OUTCOMES = (
    "received", "ignored", "corrupt", "arp", "ping", "malformed", "unknown_model", "refused", "answered", "late",
    "failed",
)  # fmt: skip
"""The counts of packets, in the order of the count-action module `packet_outcomes`."""

_CONTROL = (
    BitField("ABORT", 0, 1, "The request in work is refused as failed"),
    BitField("RESET", 1, 1, "The smartNIC and all registers return to their state after power-on"),
)
_STATUS = (
    BitField("BUSY", 0, 1, "A packet, request or answer is in the smartNIC"),
    BitField("WORKING", 1, 1, "A request has begun and not ended"),
)
SETTINGS = (
    ("MAC", 48, 0, "Own Ethernet address; its first byte on the wire is the highest"),
    ("ADDRESS", 32, 0, "Own IPv4 address"),
    ("PORT", 16, 8500, "UDP port of requests"),
    ("CYCLES_PER_US", 16, 250, "Clock cycles of a microsecond"),
    ("HOLD", 1, 0, "1: no further request is begun. Change tables and weights when WORKING is 0"),
    ("PREAMBLE", 8, 10, "Cycles of the preamble before every layer"),
    ("LIMIT", 32, 0, "Cycles after which a request fails because light did not come back; 0: none"),
    ("SPARSITY", 1, 0, "1: products with a factor 0 are 0, whatever the converter reads"),
    ("BASE", 40, 0, "Byte address of the first word of weights, a multiple of 4096"),
    ("APART", 8, 0, "Delay of the weights' converter against that of activations: samples 3:0, cycles 7:4"),
    ("LOSS_FACTOR", 10, 128, "Compensation of the loss of light: 128 times the factor"),
)
"""Name, bits, reset value and description of each setting."""


def make_smartnic_registers() -> RegisterMap:
    """Return the registers of the smartNIC. Registers of more than 32 bits have two words, the low word first."""
    builder = MapBuilder()
    builder.add(
        "ID", access=Access.CONSTANT, reset_value=IDENTITY, description="smartNIC (0x4E4943), layout 1"
    )
    builder.add(
        "HASH",
        access=Access.CONSTANT,
        reset_value=_compute_hash(),
        description="Hash of the names of all registers",
    )
    builder.add(
        "CONTROL",
        access=Access.PULSE,
        width=len(_CONTROL),
        fields=_CONTROL,
        description="Commands that act at once",
    )
    builder.add(
        "STATUS",
        access=Access.READ,
        width=len(_STATUS),
        fields=_STATUS,
        description="What is in work",
    )
    for name, bits, reset, description in SETTINGS:
        word_count = -(-bits // 32)
        builder.add(
            name,
            access=Access.WRITE,
            width=32 if word_count > 1 else bits,
            word_count=word_count,
            reset_value=reset,
            description=description,
        )
    builder.add(
        "TABLE_ADDRESS",
        access=Access.WRITE,
        width=14,
        description="Word of a table: address 11:0, table 13:12 (0 models, 1 layers, 2 look-up)",
    )
    builder.add(
        "TABLE_WORD",
        access=Access.PUSH,
        word_count=4,
        description="128 bits, low word first, for the word of a table",
    )
    for name in OUTCOMES:
        builder.add("COUNT", name, access=Access.READ, description=f"Packets: {name.replace('_', ' ')}")
    builder.add(
        "COUNT", "overrun", access=Access.READ, description="Packets lost before the smartNIC: no room"
    )
    return RegisterMap("smartnic", _compute_hash(), tuple(builder.registers))


def _compute_hash() -> int:
    return zlib.crc32(repr((IDENTITY, _CONTROL, SETTINGS, TABLE_NUMBERS, OUTCOMES)).encode())
