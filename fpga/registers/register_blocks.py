"""Blocks behind registers: instances in a top, and models for the simulated bus.

A block is a SystemVerilog module of `fpga/rtl` and a class here, listed in `BLOCKS`. Rows of the register list name
its pins. The portal for streams consists of two such blocks, `source` and `sink`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from fpga.registers.model import Register
from fpga.registers.register_list import FIFO_DEPTH
from fpga.registers.text import HELD, RESET_SIGNAL


@dataclass(frozen=True, slots=True)
class Fragment:
    """Lines of a top for one stream, or one group of registers."""

    ports: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    unread_bits: tuple[str, ...] = ()
    """Bits of ports that nothing reads; the top names them so that linters do not warn."""


def join_fragments(parts: Iterable[Fragment]) -> Fragment:
    """Return one fragment with the lines of all parts."""
    fragments = tuple(parts)
    return Fragment(
        tuple(port for part in fragments for port in part.ports),
        tuple(line for part in fragments for line in part.body),
        tuple(bits for part in fragments for bits in part.unread_bits),
    )


def format_bit_range(width: int) -> str:
    """Return a range such as `[15:0] `; empty for a single bit."""
    return f"[{width - 1}:0] " if width > 1 else ""


def zero_extend(wire: str, padding_bits: int) -> str:
    """Return a wire with `padding_bits` zeros above it."""
    return f"{{{padding_bits}'b0, {wire}}}" if padding_bits else wire


def sign_extend(wire: str, width: int, total_width: int) -> str:
    """Return a wire of `width` bits, sign-extended to `total_width` bits."""
    sign = f"{wire}[{width - 1}]" if width > 1 else wire
    return f"{{{{{total_width - width}{{{sign}}}}}, {wire}}}" if total_width > width else wire


def truncate(wire: str, total_width: int, width: int) -> str:
    """Return the lower `width` bits of a wire of `total_width` bits."""
    return wire if width == total_width else f"{wire}[{width - 1}:0]"


def list_omitted_bits(wire: str, total_width: int, width: int) -> tuple[str, ...]:
    """Return the bits that `truncate` leaves out; empty if there are none."""
    return () if width == total_width else (f"{wire}[{total_width - 1}:{width}]",)


def concatenate(wires: Iterable[str]) -> str:
    """Return the concatenation of wires, the first in the lowest bits."""
    return f"{{{', '.join(reversed(list(wires)))}}}"


def write_instance(block: str, name: str, ports: Mapping[str, str], **parameters: int) -> Iterator[str]:
    """Yield an instance, with one parameter or port per line."""
    if parameters:
        yield f"{block} #("
        yield from _list_connections(parameters)
        yield f") {name} ("
    else:
        yield f"{block} {name} ("
    yield from _list_connections(ports)
    yield ");"


def _list_connections(pairs: Mapping[str, object]) -> list[str]:
    return ",\n".join(f"  .{key}({value})" for key, value in pairs.items()).split("\n")


class Pins(Protocol):
    """Ports of a simulated datapath."""

    def get_output(self, port: str) -> int:
        """Return the value of an output port in the last cycle."""
        ...

    def set_input(self, port: str, value: int) -> None:
        """Set a port to a value from the next cycle on."""
        ...


class RegisterBlock(Protocol):
    """Model of a block: created at each reset, and notified of every cycle and of every access to its registers."""

    module: ClassVar[str]
    """The SystemVerilog module, in the file of the same name in `fpga/rtl`."""

    def __init__(self, name: str, datapath_ports: Pins) -> None: ...

    def clock(self) -> None:
        """Update the state after a cycle."""
        ...

    def read(self, pin: str) -> int:
        """Return the value of the register that is connected to a pin."""
        ...

    def write(self, pin: str, value: int) -> None:
        """Handle a write to the register that is connected to a pin."""
        ...

    @staticmethod
    def instantiate(name: str, registers: Mapping[str, Register]) -> Fragment:
        """Return the instance in a top; `registers` maps its pins to the connected registers."""
        ...


class _PulseCounter:
    """A counter of pulses."""

    module: ClassVar[str] = "register_pulses"

    def __init__(self, name: str, datapath_ports: Pins) -> None:
        self._port, self._pins = f"{name}_o", datapath_ports
        self._pulse_count = 0

    def clock(self) -> None:
        self._pulse_count += bool(self._pins.get_output(self._port))

    def read(self, pin: str) -> int:
        return self._pulse_count

    def write(self, pin: str, value: int) -> None:
        """Do nothing, because it has no writable register."""

    @staticmethod
    def instantiate(name: str, registers: Mapping[str, Register]) -> Fragment:
        ports = {
            "clk_i": "aclk",
            "rst_i": RESET_SIGNAL,
            "pulse_i": f"dp_{name}_o",
            "pulses_o": f"{registers['pulses'].name}_i",
        }
        return Fragment(body=tuple(write_instance(_PulseCounter.module, f"pulses_{name}", ports)))


class _Source:
    """Streams under one input name, into which a driver pushes beats; a stream's bit is 1 while its beat waits."""

    module: ClassVar[str] = "portal_source"

    def __init__(self, name: str, datapath_ports: Pins) -> None:
        self._name, self._pins = name, datapath_ports
        self._waiting_mask = 0

    def clock(self) -> None:
        if self._waiting_mask:
            self._offer(self._waiting_mask & ~self._pins.get_output(f"{self._name}_ready_o"))

    def read(self, pin: str) -> int:
        return self._waiting_mask

    def write(self, pin: str, value: int) -> None:
        """Set the data of the next beats, or offer the beats of the streams whose bits are 1."""
        if pin == "data":
            self._pins.set_input(f"{self._name}_data_i", value)
        else:
            self._offer(self._waiting_mask | value)

    def _offer(self, waiting_mask: int) -> None:
        self._waiting_mask = waiting_mask
        self._pins.set_input(f"{self._name}_valid_i", waiting_mask)

    @staticmethod
    def instantiate(name: str, registers: Mapping[str, Register]) -> Fragment:
        data, push, waiting = (registers[pin] for pin in ("data", "push", "waiting"))
        stream_count = push.signal_bit_count
        ports = {
            "clk_i": "aclk",
            "rst_i": RESET_SIGNAL,
            "push_i": f"{push.name}_push_o",
            "mask_i": f"{push.name}_o",
            "ready_i": f"dp_{name}_ready_o & {{{stream_count}{{!{HELD}}}}}",
            "valid_o": f"dp_{name}_valid_i",
            "waiting_o": f"{waiting.name}_i",
        }
        return Fragment(
            body=(
                f"assign dp_{name}_data_i = {data.name}_o;",
                *write_instance(_Source.module, f"source_{name}", ports, Streams=stream_count),
            )
        )


class _Sink:
    """An output stream with a FIFO of unread beats; each beat is one number."""

    module: ClassVar[str] = "portal_sink"

    def __init__(self, name: str, datapath_ports: Pins) -> None:
        self._name, self._pins = name, datapath_ports
        self._beats: deque[int] = deque()
        self._drive_ready()

    @property
    def is_ready(self) -> bool:
        """True if there is room for one more beat."""
        return len(self._beats) < FIFO_DEPTH

    def clock(self) -> None:
        if self._pins.get_output(f"{self._name}_valid_o") and self.is_ready:
            self._beats.append(self._pins.get_output(f"{self._name}_data_o"))
            self._drive_ready()

    def read(self, pin: str) -> int:
        """Return the number of beats (`level`), or the oldest beat (0 if there is none)."""
        if pin == "level":
            return len(self._beats)
        return self._beats[0] if self._beats else 0

    def write(self, pin: str, value: int) -> None:
        if self._beats:
            self._beats.popleft()
            self._drive_ready()

    def _drive_ready(self) -> None:
        self._pins.set_input(f"{self._name}_ready_i", int(self.is_ready))

    @staticmethod
    def instantiate(name: str, registers: Mapping[str, Register]) -> Fragment:
        data, level, pop = (registers[pin] for pin in ("data", "level", "pop"))
        ports = {
            "clk_i": "aclk",
            "rst_i": RESET_SIGNAL,
            "valid_i": f"dp_{name}_valid_o",
            "data_i": f"dp_{name}_data_o",
            "ready_o": f"dp_{name}_ready_i",
            "pop_i": f"{pop.name}_o",
            "data_o": f"{data.name}_i",
            "level_o": f"{level.name}_i",
        }
        parameters = {
            "Width": data.signal_bit_count,
            "Depth": FIFO_DEPTH,
            "LevelWidth": level.signal_bit_count,
        }
        return Fragment(body=tuple(write_instance(_Sink.module, f"sink_{name}", ports, **parameters)))


class _Memory:
    """The address of a memory, which a driver sets and which goes up by one with each load."""

    module: ClassVar[str] = "register_memory"

    def __init__(self, name: str, datapath_ports: Pins) -> None:
        self._name, self._pins = name, datapath_ports
        self._address, self._is_loading = 0, False
        self._drive_pins()

    def clock(self) -> None:
        if self._is_loading:
            self._is_loading = False
            self._address += 1
            self._drive_pins()

    def read(self, pin: str) -> int:
        """Return 0, because it has no readable register."""
        return 0

    def write(self, pin: str, value: int) -> None:
        """Set the address, or load a word at the address."""
        if pin == "address":
            self._address = value
        else:
            self._is_loading = True
            self._pins.set_input(f"{self._name}_word_i", value)
        self._drive_pins()

    def _drive_pins(self) -> None:
        self._pins.set_input(f"{self._name}_address_i", self._address)
        self._pins.set_input(f"{self._name}_load_i", int(self._is_loading))

    @staticmethod
    def instantiate(name: str, registers: Mapping[str, Register]) -> Fragment:
        address, load = registers["address"], registers["load"]
        ports = {
            "clk_i": "aclk",
            "rst_i": RESET_SIGNAL,
            "set_i": f"{address.name}_push_o",
            "address_i": f"{address.name}_o",
            "push_i": f"{load.name}_push_o",
            "word_i": f"{load.name}_o",
            "load_o": f"dp_{name}_load_i",
            "address_o": f"dp_{name}_address_i",
            "word_o": f"dp_{name}_word_i",
        }
        parameters = {"AddressWidth": address.signal_bit_count, "Width": load.signal_bit_count}
        return Fragment(body=tuple(write_instance(_Memory.module, f"memory_{name}", ports, **parameters)))


BLOCKS: dict[str, type[RegisterBlock]] = {
    "pulses": _PulseCounter,
    "memory": _Memory,
    "source": _Source,
    "sink": _Sink,
}
"""The blocks, by their kinds in the register map."""
STREAM_BLOCKS = frozenset({"source", "sink"})
"""Kinds of blocks that replace stream ports of the top."""
