"""The register map as SystemRDL, JSON, Tcl, Markdown and C header. The texts are deterministic."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fpga.registers.model import WORD_BITS, Access, BitField, Register, RegisterMap

RESET_SIGNAL = "datapath_reset"
"""Reset signal of registers in the SystemRDL (CONTROL.RESET, or the bus reset)."""
HELD, CORE_RESET_SIGNAL = "held", "core_reset"
"""Wires of a top: 1 from CONTROL.HOLD until COMMIT, and the reset of the datapath."""

_BYTE_BITS = 8

_RDL_ACCESS = {
    Access.CONSTANT: "sw = r; hw = na;",
    Access.READ: "sw = r; hw = w;",
    Access.WRITE: f"sw = rw; hw = r; resetsignal = {RESET_SIGNAL};",
    Access.PULSE: "sw = w; hw = r; singlepulse; swmod;",
    Access.PUSH: f"sw = w; hw = r; swmod; resetsignal = {RESET_SIGNAL};",
}


_IP_ACCESS = {
    Access.CONSTANT: "read-only",
    Access.READ: "read-only",
    Access.WRITE: "read-write",
    Access.PULSE: "write-only",
    Access.PUSH: "write-only",
}


def to_json(register_map: RegisterMap) -> str:
    """Return the map as JSON: name, key, offset in bytes, width, access, reset and description of every register."""
    registers = [
        {
            "name": register.name,
            "key": list(register.key),
            "offset": register.offset,
            "words": register.word_count,
            "width": register.width,
            "access": register.access.value,
            "reset": register.reset_value,
            "description": register.description,
            "fields": [
                {"name": bit_field.name, "low": bit_field.low_bit, "width": bit_field.width}
                for bit_field in register.fields
            ],
        }
        for register in register_map
    ]
    document = {
        "datapath": register_map.name,
        "hash": f"{register_map.digest:08x}",
        "size_bytes": register_map.size_bytes,
        "registers": registers,
    }
    return json.dumps(document, indent=1) + "\n"


def to_rdl(register_map: RegisterMap) -> str:
    """Return the map as SystemRDL 2.0: one addrmap, from which PeakRDL generates the register file."""
    lines = [
        f"// Registers of {register_map.name}, hash {register_map.digest:08x}. Generated.",
        f"addrmap {register_map.name}_registers {{",
        f'  name = "{register_map.name}";',
        "  default regwidth = 32;",
        f"  signal {{ activehigh; sync; }} {RESET_SIGNAL};",
    ]
    lines += [line for register in register_map for line in _write_rdl_register(register)]
    return "\n".join([*lines, "};"]) + "\n"


def _write_rdl_register(register: Register) -> Iterator[str]:
    array_suffix = f"[{register.word_count}]" if register.word_count > 1 else ""
    yield ""
    yield "  reg {"
    yield f'    desc = "{register.description}";'
    for bit_field in list_fields(register):
        yield f"    field {{ {_RDL_ACCESS[register.access]} }} {_write_rdl_bits(bit_field, register)};"
    yield f"  }} {register.name}{array_suffix} @ 0x{register.offset:X};"


def list_fields(register: Register) -> tuple[BitField, ...]:
    """Return the fields of a word in the SystemRDL; a PUSH register has one per byte, for separate strobes."""
    if register.access is Access.PUSH and register.width > _BYTE_BITS:
        return tuple(
            BitField(f"BYTE{low // _BYTE_BITS}", low, min(_BYTE_BITS, register.width - low), "")
            for low in range(0, register.width, _BYTE_BITS)
        )
    return register.fields or (BitField("VALUE", 0, register.width, ""),)


def _write_rdl_bits(bit_field: BitField, register: Register) -> str:
    bit_text = f"{bit_field.name}[{bit_field.low_bit + bit_field.width - 1}:{bit_field.low_bit}]"
    if register.access is Access.READ:
        return bit_text
    return f"{bit_text} = {bit_field.width}'h{register.reset_value >> bit_field.low_bit & (1 << bit_field.width) - 1:X}"


def to_ip_registers(register_map: RegisterMap) -> str:
    """Return the Tcl that adds the registers to the address block `$block` of a packaged IP (`fpga/boards`)."""
    lines = [
        f"# Registers of {register_map.name}, hash {register_map.digest:08x}. Generated; sourced by package_ip.tcl."
    ]
    for register in register_map:
        for word in range(register.word_count):
            name = f"{register.name}_{word}" if register.word_count > 1 else register.name
            properties = {
                "address_offset": f"0x{register.get_offset(word):X}",
                "size": str(WORD_BITS),
                "access": _IP_ACCESS[register.access],
                "description": f"{{{register.description}}}",
            }
            lines.append(f"set register [ipx::add_register {{{name}}} $block]")
            lines += [f"set_property {key} {value} $register" for key, value in properties.items()]
    return "\n".join(lines) + "\n"


def to_markdown(register_map: RegisterMap) -> str:
    """Return the map as Markdown: a table with one row per register, and tables of fields."""
    lines = [
        f"# Registers of {register_map.name}",
        "",
        (
            f"Hash `{register_map.digest:08x}`. Words of 32 bits, offsets in bytes,"
            f" {register_map.size_bytes} bytes in all."
        ),
        "An address without a register reads 0 and ignores writes.",
        "",
        "| offset | name | bits | access | reset | what |",
        "|---|---|---|---|---|---|",
        *(_format_row(register) for register in register_map),
    ]
    for register in register_map:
        if len(register.fields) > 1:
            lines += ["", f"## {register.name}", "", "| bit | name | what |", "|---|---|---|"]
            lines += [
                f"| {bit_field.low_bit} | {bit_field.name} | {bit_field.description} |"
                for bit_field in register.fields
            ]
    return "\n".join(lines) + "\n"


def _format_row(register: Register) -> str:
    array_suffix = f"[0..{register.word_count - 1}]" if register.word_count > 1 else ""
    reset = f"0x{register.reset_value:X}" if register.access in {Access.CONSTANT, Access.WRITE} else ""
    cells = (
        f"0x{register.offset:03X}",
        f"{register.name}{array_suffix}",
        str(register.width),
        register.access.value,
        reset,
        register.description,
    )
    return f"| {' | '.join(cells)} |"


_ACCESS_TEXTS = {
    Access.CONSTANT: "read only, constant",
    Access.READ: "read only",
    Access.WRITE: "read and write",
    Access.PULSE: "write only, acts once",
    Access.PUSH: "write only, its write acts",
}


def to_header(register_map: RegisterMap) -> str:
    """Return the map as a C header; names are in capitals, with the name of the top as prefix."""
    prefix = register_map.name.upper()
    lines = [
        f"/* Registers of {register_map.name}, hash {register_map.digest:08x}. Offsets in bytes. Generated. */",
        f"#ifndef {prefix}_H",
        f"#define {prefix}_H",
        "",
        f"#define {prefix}_HASH_VALUE 0x{register_map.digest:08X}u",
        f"#define {prefix}_SIZE 0x{register_map.size_bytes:X}u",
    ]
    names: set[str] = set()
    for register in register_map:
        lines += ["", *_write_defines(prefix, register, names)]
    return "\n".join([*lines, "", "#endif", ""])


def _write_defines(prefix: str, register: Register, names: set[str]) -> Iterator[str]:
    # Names that differ only in case would collide, so the later one gets its offset as suffix.
    name = f"{prefix}_{register.name.upper()}"
    if name in names:
        name = f"{name}_{register.offset:X}"
    names.add(name)
    yield f"/* {register.description} ({_ACCESS_TEXTS[register.access]}) */"
    yield f"#define {name}_OFFSET 0x{register.offset:X}u"
    yield f"#define {name}_MASK 0x{register.mask:08X}u"
    if register.word_count > 1:
        yield f"#define {name}_WORDS {register.word_count}u"
    if register.access in {Access.CONSTANT, Access.WRITE}:
        yield f"#define {name}_RESET 0x{register.reset_value:X}u"
    for bit_field in register.fields if len(register.fields) > 1 else ():
        yield f"#define {name}_{bit_field.name.upper()} 0x{((1 << bit_field.width) - 1) << bit_field.low_bit:08X}u"
