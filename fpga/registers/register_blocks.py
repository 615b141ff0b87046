"""Blocks behind registers: as instances in a top, and as models for the simulated bus.

A block is one SystemVerilog module of `fpga/rtl` and one class here; `BLOCKS` names them. Its pins are those that
rows of the register list name. The portal of the streams is two such blocks.
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
    """Lines that one stream, or one group of registers, adds to a top."""

    ports: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    """Bits that nothing looks at; they are named so that a linter knows it is meant."""


def join(parts: Iterable[Fragment]) -> Fragment:
    """Return all parts as one."""
    every = tuple(parts)
    return Fragment(
        tuple(port for part in every for port in part.ports),
        tuple(line for part in every for line in part.body),
        tuple(bits for part in every for bits in part.unused),
    )


def bit_range(width: int) -> str:
    """Return `[15:0] ` for a vector, nothing for a bit."""
    return f"[{width - 1}:0] " if width > 1 else ""


def pad(wire: str, spare: int) -> str:
    """Return the wire with so many zeros above it."""
    return f"{{{spare}'b0, {wire}}}" if spare else wire


def extend(wire: str, width: int, whole: int) -> str:
    """Return the wire with its sign above it."""
    sign = f"{wire}[{width - 1}]" if width > 1 else wire
    return f"{{{{{whole - width}{{{sign}}}}}, {wire}}}" if whole > width else wire


def cut(wire: str, whole: int, width: int) -> str:
    """Return the lower `width` bits of a wire that has `whole`."""
    return wire if width == whole else f"{wire}[{width - 1}:0]"


def rest(wire: str, whole: int, width: int) -> tuple[str, ...]:
    """Return the bits that `cut` leaves out, where there are some."""
    return () if width == whole else (f"{wire}[{whole - 1}:{width}]",)


def concatenate(wires: Iterable[str]) -> str:
    """Return the wires side by side, the first in the lowest bits."""
    return f"{{{', '.join(reversed(list(wires)))}}}"


def instance(block: str, name: str, ports: Mapping[str, str], **parameters: int) -> Iterator[str]:
    """Return an instance, one port a line."""
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

    def get(self, port: str) -> int:
        """Return what came out of a port in the last cycle."""
        ...

    def set(self, port: str, value: int) -> None:
        """Set a port to a value from the next cycle on."""
        ...


class RegisterBlock(Protocol):
    """A block as a model: made for each reset, notified of every cycle and of every access to its registers."""

    module: ClassVar[str]
    """The SystemVerilog module, in a file of its name in `fpga/rtl`."""

    def __init__(self, name: str, pins: Pins) -> None: ...

    def clock(self) -> None:
        """Go on by the cycle that has just run."""
        ...

    def read(self, pin: str) -> int:
        """Return what a register shows that is connected to a pin."""
        ...

    def write(self, pin: str, value: int) -> None:
        """Take what has been written to the register at a pin."""
        ...

    @staticmethod
    def instantiate(name: str, registers: Mapping[str, Register]) -> Fragment:
        """Return the instance in a top; `registers` are those of its pins."""
        ...


class _PulseCounter:
    """Counts the pulses of a module."""

    module: ClassVar[str] = "register_pulses"

    def __init__(self, name: str, pins: Pins) -> None:
        self._port, self._pins = f"{name}_o", pins
        self._pulses = 0

    def clock(self) -> None:
        self._pulses += bool(self._pins.get(self._port))

    def read(self, pin: str) -> int:
        return self._pulses

    def write(self, pin: str, value: int) -> None:
        """Do nothing: no register of it can be written."""

    @staticmethod
    def instantiate(name: str, registers: Mapping[str, Register]) -> Fragment:
        ports = {
            "clk_i": "aclk",
            "rst_i": RESET_SIGNAL,
            "pulse_i": f"dp_{name}_o",
            "pulses_o": f"{registers['pulses'].name}_i",
        }
        return Fragment(body=tuple(instance(_PulseCounter.module, f"pulses_{name}", ports)))


class _Source:
    """An input stream whose beats a driver pushes; one bit a stream, 1 while its beat waits."""

    module: ClassVar[str] = "portal_source"

    def __init__(self, name: str, pins: Pins) -> None:
        self._name, self._pins = name, pins
        self._waiting = 0

    def clock(self) -> None:
        if self._waiting:
            self._offer(self._waiting & ~self._pins.get(f"{self._name}_ready_o"))

    def read(self, pin: str) -> int:
        return self._waiting

    def write(self, pin: str, value: int) -> None:
        """Take the data of the next beats, or offer the beats of the streams whose bits are 1."""
        if pin == "data":
            self._pins.set(f"{self._name}_data_i", value)
        else:
            self._offer(self._waiting | value)

    def _offer(self, waiting: int) -> None:
        self._waiting = waiting
        self._pins.set(f"{self._name}_valid_i", waiting)

    @staticmethod
    def instantiate(name: str, registers: Mapping[str, Register]) -> Fragment:
        data, push, waiting = (registers[pin] for pin in ("data", "push", "waiting"))
        streams, bits = push.signal_bits, data.signal_bits
        ports = {
            "clk_i": "aclk",
            "rst_i": RESET_SIGNAL,
            "push_i": f"{push.name}_push_o",
            "mask_i": cut(f"{push.name}_o", push.bits, streams),
            "ready_i": f"dp_{name}_ready_o & {{{streams}{{!{HELD}}}}}",
            "valid_o": f"dp_{name}_valid_i",
            "waiting_o": f"waiting_{name}",
        }
        return Fragment(
            body=(
                f"wire {bit_range(streams)}waiting_{name};",
                f"assign {waiting.name}_i = {pad(f'waiting_{name}', waiting.bits - streams)};",
                f"assign dp_{name}_data_i = {cut(f'{data.name}_o', data.bits, bits)};",
                *instance(_Source.module, f"source_{name}", ports, Streams=streams),
            ),
            unused=(
                *rest(f"{data.name}_o", data.bits, bits),
                *rest(f"{push.name}_o", push.bits, streams),
            ),
        )


class _Sink:
    """An output stream with a FIFO of the beats that a driver has not read, as numbers."""

    module: ClassVar[str] = "portal_sink"

    def __init__(self, name: str, pins: Pins) -> None:
        self._name, self._pins = name, pins
        self._beats: deque[int] = deque()
        self._show_ready()

    @property
    def ready(self) -> bool:
        """True if there is room for one more beat."""
        return len(self._beats) < FIFO_DEPTH

    def clock(self) -> None:
        if self._pins.get(f"{self._name}_valid_o") and self.ready:
            self._beats.append(self._pins.get(f"{self._name}_data_o"))
            self._show_ready()

    def read(self, pin: str) -> int:
        """Return the oldest beat (0 when there is none), or how many there are."""
        if pin == "level":
            return len(self._beats)
        return self._beats[0] if self._beats else 0

    def write(self, pin: str, value: int) -> None:
        if self._beats:
            self._beats.popleft()
            self._show_ready()

    def _show_ready(self) -> None:
        self._pins.set(f"{self._name}_ready_i", int(self.ready))

    @staticmethod
    def instantiate(name: str, registers: Mapping[str, Register]) -> Fragment:
        data, level, pop = (registers[pin] for pin in ("data", "level", "pop"))
        bits = data.signal_bits
        ports = {
            "clk_i": "aclk",
            "rst_i": RESET_SIGNAL,
            "valid_i": f"dp_{name}_valid_o",
            "data_i": f"dp_{name}_data_o",
            "ready_o": f"dp_{name}_ready_i",
            "pop_i": f"{pop.name}_o",
            "data_o": f"head_{name}",
            "level_o": f"{level.name}_i",
        }
        parameters = {"Width": bits, "Depth": FIFO_DEPTH, "LevelWidth": level.signal_bits}
        return Fragment(
            body=(
                f"wire {bit_range(bits)}head_{name};",
                f"assign {data.name}_i = {pad(f'head_{name}', data.bits - bits)};",
                *instance(_Sink.module, f"sink_{name}", ports, **parameters),
            )
        )


BLOCKS: dict[str, type[RegisterBlock]] = {"pulses": _PulseCounter, "source": _Source, "sink": _Sink}
"""The blocks by the names that rows of the register map have for them."""
STREAM_BLOCKS = frozenset({"source", "sink"})
"""Blocks that stand for stream ports of the top."""
