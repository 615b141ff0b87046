"""Beats through registers: pushed into the input streams and popped from the FIFOs behind the output streams.

What the registers do is written in docs/reference/registers.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from fpga.beats import Beats, Samples, pack_beats, stream_bits, unpack
from fpga.bus.protocol import Access, RegisterBus, transfer_of
from fpga.count_action.model import Datapath, Signal, SignalKind
from fpga.registers.model import WORD_BITS, RegisterMap
from fpga.registers.register_list import FIFO_DEPTH, output_streams

_WORD = (1 << WORD_BITS) - 1


@dataclass(slots=True)
class _Source:
    """An input stream: what is still to be pushed, what its DATA words hold, and which of its beats wait."""

    signal: Signal
    data: int = 0
    queue: deque[tuple[int, int]] = field(default_factory=deque)
    waiting: int = 0

    @property
    def left(self) -> int:
        """Beats that have not been taken."""
        return len(self.queue) + bool(self.waiting)


@dataclass(frozen=True, slots=True)
class _Sink:
    """An output stream, and what has come out of it."""

    module: str
    name: str
    samples: int
    width: int
    signed: bool
    taken: list[list[int]] = field(default_factory=list)


class Portal:
    """The streams of one datapath, from its reset on."""

    def __init__(self, bus: RegisterBus, table: RegisterMap, datapath: Datapath) -> None:
        self._bus = bus
        self._transfer = transfer_of(bus)
        self._table = table
        self._datapath = datapath
        self._sources = {
            each.name: _Source(each) for each in datapath.inputs if each.kind is SignalKind.STREAM
        }

    def enqueue(self, beats: ArrayLike | Beats | Mapping[str, ArrayLike | Beats]) -> None:
        """Queue beats to be pushed, by input or for the only one. Raises ValueError; nothing is queued then."""
        if not isinstance(beats, Mapping):
            if len(self._sources) != 1:
                names = ", ".join(self._sources) or "none"
                raise ValueError(
                    f"which input are the beats for? Give them by name; the streams are: {names}."
                )
            beats = {next(iter(self._sources)): beats}
        packed = {}
        for name, each in beats.items():
            if name not in self._sources:
                known = ", ".join(self._sources) or "none"
                raise ValueError(f"no input stream {name!r}; there are: {known}.")
            packed[name] = pack_beats(self._sources[name].signal, each)
        for name, queue in packed.items():
            self._sources[name].queue.extend(queue)

    def exchange(self, looks: int) -> dict[str, Samples]:
        """Push and pop until nothing has moved for so many looks at all streams; what came out."""
        sinks = [_Sink(*each) for each in output_streams(self._datapath)]
        quiet = 0
        while quiet < looks and (self._sources or sinks):
            fed = self._feed_all()
            drained = [self._drain(each) for each in sinks]
            quiet = 0 if fed or any(drained) else quiet + 1
        return {
            f"{sink.module}.{sink.name}": np.array(sink.taken, np.int64).reshape(-1, sink.samples)
            for sink in sinks
        }

    def forget_what_is_left(self) -> dict[str, int]:
        """Drop what was not pushed yet; return how many beats of each input were not taken."""
        left = {name: source.left for name, source in self._sources.items() if source.left}
        for source in self._sources.values():
            source.queue.clear()
        return left

    def _feed_all(self) -> bool:
        """Push as long as beats are taken, at most as many as wait behind an output; return whether anything moved.

        Reading what came out after every push would be half of all accesses.
        """
        for times in range(FIFO_DEPTH):
            moved = [self._feed(each) for each in self._sources.values()]
            if not any(moved):
                return times > 0
        return True

    def _feed(self, source: _Source) -> bool:
        """Push the next beat if the streams it is for are free; whether anything moved."""
        before = source.waiting
        if before:
            source.waiting = self._read("IN", source.signal.name, "WAITING")
        moved = source.waiting != before
        if source.queue and not source.queue[0][0] & source.waiting:
            self._push(source, *source.queue.popleft())
            moved = True
        return moved

    def _push(self, source: _Source, mask: int, bits: int) -> None:
        name = source.signal.name
        changed = stream_bits(mask, source.signal)
        data = source.data & ~changed | bits & changed
        register = self._table["IN", name, "DATA"]
        writes: list[Access] = []
        for word in range(register.words):
            value = data >> WORD_BITS * word & _WORD
            if value != source.data >> WORD_BITS * word & _WORD:
                writes.append((register.at(word), value))
        push = self._table["IN", name, "PUSH"]
        writes += [(push.at(word), mask >> WORD_BITS * word & _WORD) for word in range(push.words)]
        self._transfer(writes)
        source.data = data
        source.waiting |= mask

    def _drain(self, sink: _Sink) -> bool:
        """Take all beats out of a FIFO; whether there were any."""
        stream = ("OUT", sink.module, sink.name)
        level = self._read(*stream, "LEVEL")
        data, pop = self._table[(*stream, "DATA")], self._table[(*stream, "POP")]
        one: list[Access] = [*((data.at(word), None) for word in range(data.words)), (pop.offset, 1)]
        words = self._transfer(one * level)
        for first in range(0, len(words), data.words):
            bits = _join_words(words[first : first + data.words])
            sink.taken.append(unpack(bits, sink.samples, sink.width, signed=sink.signed))
        return bool(level)

    def _read(self, *key: str) -> int:
        return read_words(self._bus, self._table, key)


def read_words(bus: RegisterBus, table: RegisterMap, key: tuple[str, ...]) -> int:
    """Return all words of a register as one number."""
    register = table[key]
    return _join_words([bus.read32(register.at(word)) for word in range(register.words)])


def _join_words(words: Sequence[int]) -> int:
    return sum(word << WORD_BITS * place for place, word in enumerate(words))
