"""IP-XACT component (IEEE 1685-2014) of a top: its buses, its pins and its registers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from fpga.registers.model import WORD_BITS, Access, Register
from fpga.registers.top import Top

NAMESPACE = "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"
_PORT_PATTERN = re.compile(r"(input|output)\s+wire\s+(?:\[(\d+):0\]\s*)?(\w+)$")
_ACCESS = {
    Access.CONSTANT: "read-only",
    Access.READ: "read-only",
    Access.WRITE: "read-write",
    Access.PULSE: "write-only",
    Access.PUSH: "write-only",
}


def to_ipxact(top: Top) -> str:
    """Return the IP-XACT text of a top."""
    ET.register_namespace("ipxact", NAMESPACE)
    component = ET.Element(_qualify_tag("component"))
    identity = {
        "vendor": "lightbed",
        "library": "count_action",
        "name": top.name,
        "version": f"{top.register_map.digest:08x}",
    }
    _add_texts(component, identity)
    pins = [_parse_pin(line) for line in top.ports]
    buses = ET.SubElement(component, _qualify_tag("busInterfaces"))
    for name in dict.fromkeys(name for name, _, _ in map(_find_bus, pins) if name):
        _add_bus(buses, name, [pin for pin in pins if _find_bus(pin)[0] == name])
    maps = ET.SubElement(component, _qualify_tag("memoryMaps"))
    memory_map = ET.SubElement(maps, _qualify_tag("memoryMap"))
    _add_texts(memory_map, {"name": "registers"})
    block = ET.SubElement(memory_map, _qualify_tag("addressBlock"))
    size = f"'h{1 << top.register_map.address_width:X}"
    _add_texts(block, {"name": "reg0", "baseAddress": "'h0", "range": size, "width": str(WORD_BITS)})
    for register in top.register_map:
        _add_register(block, register)
    _add_texts(memory_map, {"addressUnitBits": "8"})
    ports = ET.SubElement(ET.SubElement(component, _qualify_tag("model")), _qualify_tag("ports"))
    for direction, width, name in pins:
        port = ET.SubElement(ports, _qualify_tag("port"))
        _add_texts(port, {"name": name})
        wire = ET.SubElement(port, _qualify_tag("wire"))
        _add_texts(wire, {"direction": "in" if direction == "input" else "out"})
        if width > 1:
            vector = ET.SubElement(ET.SubElement(wire, _qualify_tag("vectors")), _qualify_tag("vector"))
            _add_texts(vector, {"left": str(width - 1), "right": "0"})
    ET.indent(component)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(component, encoding="unicode")}\n'


def _qualify_tag(name: str) -> str:
    return f"{{{NAMESPACE}}}{name}"


def _add_texts(parent: ET.Element, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        ET.SubElement(parent, _qualify_tag(name)).text = text


def _parse_pin(line: str) -> tuple[str, int, str]:
    match = _PORT_PATTERN.match(line.strip())
    assert match is not None, line
    return match[1], int(match[2] or 0) + 1, match[3]


def _find_bus(pin: tuple[str, int, str]) -> tuple[str, str, bool]:
    """Return the bus of a pin, its logical name, and whether the top is the slave; empty names if it has no bus."""
    name = pin[2]
    if name.startswith("s_axi_"):
        return "s_axi", name.removeprefix("s_axi_").upper(), True
    bus, _, logical_name = name.rpartition("_")
    if logical_name in {"tvalid", "tready", "tdata", "tlast", "tkeep"}:
        return bus, logical_name.upper(), bus.startswith("s_")
    return "", "", False


def _add_bus(parent: ET.Element, name: str, pins: list[tuple[str, int, str]]) -> None:
    bus = ET.SubElement(parent, _qualify_tag("busInterface"))
    _add_texts(bus, {"name": name})
    bus_type = "AXI4" if name == "s_axi" else "AXI4Stream"
    ET.SubElement(
        bus,
        _qualify_tag("busType"),
        {"vendor": "amba.com", "library": "AMBA4", "name": bus_type, "version": "r0p0_0"},
    )
    types = ET.SubElement(
        ET.SubElement(bus, _qualify_tag("abstractionTypes")), _qualify_tag("abstractionType")
    )
    definition = {"vendor": "amba.com", "library": "AMBA4", "name": f"{bus_type}_rtl", "version": "r0p0_0"}
    ET.SubElement(types, _qualify_tag("abstractionRef"), definition)
    maps = ET.SubElement(types, _qualify_tag("portMaps"))
    for pin in pins:
        port_map = ET.SubElement(maps, _qualify_tag("portMap"))
        _add_texts(ET.SubElement(port_map, _qualify_tag("logicalPort")), {"name": _find_bus(pin)[1]})
        _add_texts(ET.SubElement(port_map, _qualify_tag("physicalPort")), {"name": pin[2]})
    side = ET.SubElement(bus, _qualify_tag("slave" if _find_bus(pins[0])[2] else "master"))
    if name == "s_axi":
        ET.SubElement(side, _qualify_tag("memoryMapRef"), {"memoryMapRef": "registers"})


def _add_register(parent: ET.Element, register: Register) -> None:
    element = ET.SubElement(parent, _qualify_tag("register"))
    _add_texts(element, {"name": register.name, "description": register.description})
    if register.word_count > 1:
        _add_texts(element, {"dim": str(register.word_count)})
    _add_texts(element, {"addressOffset": f"'h{register.offset:X}", "size": str(WORD_BITS)})
    for name, low_bit, width in _list_fields(register):
        field = ET.SubElement(element, _qualify_tag("field"))
        _add_texts(field, {"name": name, "bitOffset": str(low_bit)})
        if register.access in {Access.CONSTANT, Access.WRITE}:
            reset = ET.SubElement(ET.SubElement(field, _qualify_tag("resets")), _qualify_tag("reset"))
            _add_texts(reset, {"value": f"'h{register.reset_value >> low_bit & (1 << width) - 1:X}"})
        _add_texts(field, {"bitWidth": str(width), "access": _ACCESS[register.access]})


def _list_fields(register: Register) -> Iterator[tuple[str, int, int]]:
    if not register.fields:
        yield "VALUE", 0, register.width
    for bit_field in register.fields:
        yield bit_field.name, bit_field.low_bit, bit_field.width
