"""Ports of the register file: AXI4-Lite towards the bus, and up to two vectors per register towards the datapath."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fpga.registers.model import Access, Register
from fpga.registers.register_blocks import format_bit_range


@dataclass(frozen=True, slots=True)
class AxiSignal:
    """A signal of AXI4-Lite without its prefix; `is_output` is true for outputs of the register file."""

    name: str
    width: int
    is_output: bool


@dataclass(frozen=True, slots=True)
class Vector:
    """A port of the register file towards the datapath; `is_output` is true for outputs of the register file."""

    name: str
    width: int
    is_output: bool

    @property
    def declaration(self) -> str:
        """The declaration of the port in a module header."""
        return declare_port(self.name, self.width, is_output=self.is_output)


def declare_port(name: str, width: int, *, is_output: bool) -> str:
    """Return the declaration of a port in a module header."""
    return f"{'output' if is_output else 'input '} logic {format_bit_range(width)}{name}"


def list_axi_signals(address_bits: int) -> tuple[AxiSignal, ...]:
    """Return the signals of 32-bit AXI4-Lite, in the order of the register file's ports."""
    request_handshake = (("valid", 1, False), ("ready", 1, True))
    channels = {
        "aw": (*request_handshake, ("addr", address_bits, False), ("prot", 3, False)),
        "w": (*request_handshake, ("data", 32, False), ("strb", 4, False)),
        "b": (("valid", 1, True), ("ready", 1, False), ("resp", 2, True)),
        "ar": (*request_handshake, ("addr", address_bits, False), ("prot", 3, False)),
        "r": (("valid", 1, True), ("ready", 1, False), ("data", 32, True), ("resp", 2, True)),
    }
    return tuple(
        AxiSignal(channel + name, width, is_output)
        for channel, signals in channels.items()
        for name, width, is_output in signals
    )


def list_vectors(register: Register) -> Iterator[Vector]:
    """Yield the ports of a register: `_o` towards the datapath, `_i` from it, and `_push_o` for a write that acts.

    A port has the bits of its signal; words may have more, which nothing outside the register file uses.
    """
    port_bits = register.signal_bit_count or register.bit_count
    if register.access is Access.READ:
        yield Vector(f"{register.name}_i", port_bits, is_output=False)
    elif register.access is not Access.CONSTANT:
        yield Vector(f"{register.name}_o", port_bits, is_output=True)
    if register.access is Access.PUSH:
        yield Vector(f"{register.name}_push_o", 1, is_output=True)
