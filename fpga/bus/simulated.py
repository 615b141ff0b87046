"""The registers of a datapath around a simulator: what the AXI4-Lite top does, without AXI4-Lite.

Every access takes one cycle of the datapath. A read shows the registers as they are in that cycle; what a write
does is seen from the next cycle on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fpga.bus.protocol import check_access
from fpga.count_action.model import ActionKind, Datapath, SignalKind
from fpga.count_action.ports import WORD_BITS as COLUMN_BITS
from fpga.count_action.ports import Rows, ports_of
from fpga.registers.layout import (
    CLEAR_STATUS,
    COMMIT,
    FIFO_DEPTH,
    RESET,
    effects,
    output_streams,
    register_map,
)
from fpga.registers.table import WORD_BITS, Access, Key, Register

_COLUMN_MASK = (1 << COLUMN_BITS) - 1


class Engine(Protocol):
    """A simulator of a datapath with its state."""

    def run(self, rows: Rows) -> Rows:
        """Outputs of every cycle, read before its clock edge."""
        ...

    def reset(self) -> None:
        """As after power-on."""
        ...


@dataclass(slots=True)
class _Source:
    """An input stream: one bit a stream, 1 while its beat waits."""

    waiting: int = 0
    mask: int = 0
    """What the words of PUSH hold."""


@dataclass(slots=True)
class _Sink:
    """An output stream: the beats that a driver has not read, as numbers."""

    beats: deque[int] = field(default_factory=deque)

    @property
    def ready(self) -> bool:
        return len(self.beats) < FIFO_DEPTH


class SimulatedBus:
    """A datapath with its registers, in this process. `RegisterBus`."""

    def __init__(self, datapath: Datapath, engine: Engine) -> None:
        self.datapath = datapath
        self.cycles = 0
        """Clock cycles of the datapath so far."""
        self._engine = engine
        self._ports = ports_of(datapath)
        self._into = {port.name: port for port in self._ports.inputs}
        self._out_of = {port.name: port for port in self._ports.outputs}
        self._table = register_map(datapath)
        self._words = {
            register.at(word): (register, word) for register in self._table for word in range(register.words)
        }
        self._stream_ports: dict[Key, tuple[str, str]] = {
            (module, name): (f"{module}_{name}_valid_o", f"{module}_{name}_data_o")
            for module, name, *_ in output_streams(datapath)
        }
        self._pulse_ports: dict[Key, str] = {
            (module, name): f"{module}_{name}_o"
            for module, name, kind, _ in effects(datapath)
            if kind is ActionKind.PULSE
        }
        self._readers: dict[Key, Callable[[], int]] = self._make_readers()
        self._reset()

    def read32(self, offset: int) -> int:
        """The word at `offset`; 0 where no register is."""
        check_access(offset)
        self._step()
        if offset not in self._words:
            return 0
        register, word = self._words[offset]
        if register.access is Access.CONSTANT:
            return register.reset
        if register.access is Access.WRITE:
            return self._kept[offset]
        if register.access is Access.READ:
            return self._readers[register.key]() >> WORD_BITS * word & register.mask
        return 0

    def write32(self, offset: int, value: int) -> None:
        """Put a word at `offset`; nothing happens where no writable register is."""
        check_access(offset, value)
        if offset in self._words:
            self._write(*self._words[offset], value)
        else:
            self._step()

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, register: Register, word: int, value: int) -> None:
        kept = value & register.mask
        if register.access is Access.WRITE:
            self._kept[register.at(word)] = kept
            self._place(register.key)
        elif register.access is Access.PUSH:
            self._push(register, word, kept)
        elif register.access is Access.PULSE and register.key == ("CONTROL",):
            self._control(kept)
            return
        elif register.access is Access.PULSE and kept and self._sinks[register.key[1:3]].beats:
            self._sinks[register.key[1:3]].beats.popleft()
            self._show_ready(register.key[1:3])
        self._step()

    def _control(self, bits: int) -> None:
        self._step(commit=bool(bits & COMMIT), clear_status=bool(bits & CLEAR_STATUS))
        if bits & RESET:
            self._reset()

    def _push(self, register: Register, word: int, bits: int) -> None:
        source = self._sources[register.key[1]]
        low = WORD_BITS * word
        source.mask = source.mask & ~(register.mask << low) | bits << low
        if word == register.words - 1:
            pushed = source.mask & (1 << self.datapath.input(register.key[1]).size) - 1
            self._offer(register.key[1], source.waiting | pushed)

    def _reset(self) -> None:
        self._engine.reset()
        self._kept = {
            offset: register.reset
            for offset, (register, _) in self._words.items()
            if register.access is Access.WRITE
        }
        self._sources = {
            signal.name: _Source() for signal in self.datapath.inputs if signal.kind is SignalKind.STREAM
        }
        self._sinks = {key: _Sink() for key in self._stream_ports}
        self._pulses = dict.fromkeys(self._pulse_ports, 0)
        self._row = np.zeros((1, self._ports.input_columns), np.uint64)
        self._shown: dict[str, int] = dict.fromkeys(self._into, 0)
        self._seen = [0] * self._ports.output_columns
        for key in self._sinks:
            self._show_ready(key)
        for register in self._table:
            if register.access is Access.WRITE:
                self._place(register.key)

    # ------------------------------------------------------------------------------- one clock cycle
    def _step(self, *, commit: bool = False, clear_status: bool = False) -> None:
        self._set("commit_i", int(commit))
        self._set("clear_status_i", int(clear_status))
        self._seen = self._engine.run(self._row)[0].tolist()
        self.cycles += 1
        for name, source in self._sources.items():
            if source.waiting:
                self._offer(name, source.waiting & ~self._get(f"{name}_ready_o"))
        for key, (valid, data) in self._stream_ports.items():
            sink = self._sinks[key]
            if self._get(valid) and sink.ready:
                sink.beats.append(self._get(data))
                self._show_ready(key)
        for key, port in self._pulse_ports.items():
            if self._get(port):
                self._pulses[key] += 1

    def _offer(self, name: str, waiting: int) -> None:
        self._sources[name].waiting = waiting
        self._set(f"{name}_valid_i", waiting)

    def _show_ready(self, key: Key) -> None:
        self._set(f"{'_'.join(key)}_ready_i", int(self._sinks[key].ready))

    def _place(self, key: Key) -> None:
        """Bring what a register holds to the port that looks at it."""
        if key[0] == "TARGET":
            self._set("target_shadow_i", self._shadow())
        elif key[-1] == "DATA" and len(key) == 3:
            self._set(f"{key[1]}_data_i", self._held(*key))
        else:
            self._set(f"{key[1]}_i", self._held(*key))

    def _shadow(self) -> int:
        value = low = 0
        for module, target in self.datapath.targets():
            value |= self._held("TARGET", module.name, target.name) << low
            low += target.width
        return value

    def _held(self, *key: str) -> int:
        """The words of a register side by side, as wide as each is."""
        register = self._table[key]
        value = 0
        for word in range(register.words):
            value |= self._kept[register.at(word)] << register.width * word
        return value

    def _set(self, name: str, value: int) -> None:
        """Most inputs are as they were in the cycle before, and left alone."""
        if self._shown[name] == value:
            return
        self._shown[name] = value
        port = self._into[name]
        value &= (1 << port.width) - 1
        for word in range(port.words):
            self._row[0, port.column + word] = value >> COLUMN_BITS * word & _COLUMN_MASK

    def _get(self, name: str) -> int:
        port = self._out_of[name]
        if port.words == 1:
            return self._seen[port.column]
        return sum(self._seen[port.column + word] << COLUMN_BITS * word for word in range(port.words))

    # --------------------------------------------------------------- what registers show that are read
    def _make_readers(self) -> dict[Key, Callable[[], int]]:
        readers: dict[Key, Callable[[], int]] = {
            ("OVERSHOOT",): lambda: self._get("overshoot_o"),
            ("SATURATED",): lambda: self._get("saturated_o"),
        }
        low = 0
        for module, count in self.datapath.counts():
            readers["COUNT", module.name, count.name] = self._count_reader(low)
            low += count.width
        for module_name, name, kind, _ in effects(self.datapath):
            readers["OUT", module_name, name] = self._effect_reader(module_name, name, kind)
        for signal in self.datapath.inputs:
            if signal.kind is SignalKind.STREAM:
                readers["IN", signal.name, "WAITING"] = self._waiting_reader(signal.name)
        for module_name, name, *_ in output_streams(self.datapath):
            key = (module_name, name)
            readers["OUT", *key, "LEVEL"] = self._level_reader(key)
            readers["OUT", *key, "DATA"] = self._head_reader(key)
        return readers

    def _count_reader(self, low: int) -> Callable[[], int]:
        return lambda: self._get("count_o") >> low

    def _effect_reader(self, module: str, name: str, kind: ActionKind) -> Callable[[], int]:
        if kind is ActionKind.PULSE:
            return lambda: self._pulses[module, name]
        return lambda: self._get(f"{module}_{name}_o")

    def _waiting_reader(self, name: str) -> Callable[[], int]:
        return lambda: self._sources[name].waiting

    def _level_reader(self, key: Key) -> Callable[[], int]:
        return lambda: len(self._sinks[key].beats)

    def _head_reader(self, key: Key) -> Callable[[], int]:
        return lambda: self._sinks[key].beats[0] if self._sinks[key].beats else 0
