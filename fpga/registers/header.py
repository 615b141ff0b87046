"""The registers of a top as a C header: offsets, masks and reset values as macros."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.registers.model import Access, Register, RegisterMap

_RIGHTS = {
    Access.CONSTANT: "read only, constant",
    Access.READ: "read only",
    Access.WRITE: "read and write",
    Access.PULSE: "write only, acts once",
    Access.PUSH: "write only, its write acts",
}


def to_header(table: RegisterMap) -> str:
    """Return the header of the registers of a top; names are in capitals, with that of the top before them."""
    prefix = table.name.upper()
    lines = [
        f"/* Registers of {table.name}, hash {table.digest:08x}. Offsets in bytes. Generated. */",
        f"#ifndef {prefix}_H",
        f"#define {prefix}_H",
        "",
        f"#define {prefix}_HASH_VALUE 0x{table.digest:08X}u",
        f"#define {prefix}_SIZE 0x{table.size_bytes:X}u",
    ]
    names: set[str] = set()
    for register in table:
        lines += ["", *_register(prefix, register, names)]
    return "\n".join([*lines, "", "#endif", ""])


def _register(prefix: str, register: Register, taken: set[str]) -> Iterator[str]:
    # Names that differ by capitals alone get their offset behind them.
    name = f"{prefix}_{register.name.upper()}"
    if name in taken:
        name = f"{name}_{register.offset:X}"
    taken.add(name)
    yield f"/* {register.description} ({_RIGHTS[register.access]}) */"
    yield f"#define {name}_OFFSET 0x{register.offset:X}u"
    yield f"#define {name}_MASK 0x{register.mask:08X}u"
    if register.words > 1:
        yield f"#define {name}_WORDS {register.words}u"
    if register.access in {Access.CONSTANT, Access.WRITE}:
        yield f"#define {name}_RESET 0x{register.reset:X}u"
    for bits in register.fields if len(register.fields) > 1 else ():
        yield f"#define {name}_{bits.name.upper()} 0x{((1 << bits.width) - 1) << bits.low:08X}u"
