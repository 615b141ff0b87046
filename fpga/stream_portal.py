"""Transfer of beats through registers: pushes into input streams, and pops from the FIFOs behind output streams.

docs/reference/registers.md describes the registers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from fpga.beats import Beats, Samples, make_data_mask, pack_beats, unpack
from fpga.bus.protocol import Access, RegisterBus, choose_transfer
from fpga.count_action.model import Datapath, Signal, SignalKind
from fpga.registers.model import WORD_BITS, RegisterMap
from fpga.registers.register_list import FIFO_DEPTH, list_output_streams

_WORD_MASK = (1 << WORD_BITS) - 1


@dataclass(slots=True)
class _Source:
    """An input stream: the beats to push, the value of its DATA words, and the mask of its waiting beats."""

    signal: Signal
    data: int = 0
    queue: deque[tuple[int, int]] = field(default_factory=deque)
    waiting_mask: int = 0

    @property
    def pending_push_count(self) -> int:
        """Number of pushes that are not taken yet."""
        return len(self.queue) + bool(self.waiting_mask)


@dataclass(frozen=True, slots=True)
class _Sink:
    """An output stream, and its beats so far."""

    module: str
    name: str
    samples_per_beat: int
    sample_bits: int
    is_signed: bool
    beats: list[list[int]] = field(default_factory=list)


class Portal:
    """Access to the streams of a datapath; valid from one reset to the next."""

    def __init__(self, bus: RegisterBus, register_map: RegisterMap, datapath: Datapath) -> None:
        self._bus = bus
        self._transfer = choose_transfer(bus)
        self._register_map = register_map
        self._datapath = datapath
        self._sources = {
            signal.name: _Source(signal) for signal in datapath.inputs if signal.kind is SignalKind.STREAM
        }

    def enqueue(self, beats: ArrayLike | Beats | Mapping[str, ArrayLike | Beats]) -> None:
        """Queue beats to push, by input, or for the only input. Queue none if this raises ValueError."""
        if not isinstance(beats, Mapping):
            if len(self._sources) != 1:
                names = ", ".join(self._sources) or "none"
                raise ValueError(f"the beats name no input. Give them by name; the streams are: {names}.")
            beats = {next(iter(self._sources)): beats}
        queues = {}
        for name, input_beats in beats.items():
            if name not in self._sources:
                input_names = ", ".join(self._sources) or "none"
                raise ValueError(f"no input stream {name!r}; there are: {input_names}.")
            queues[name] = pack_beats(self._sources[name].signal, input_beats)
        for name, queue in queues.items():
            self._sources[name].queue.extend(queue)

    def exchange(self, max_idle_polls: int) -> dict[str, Samples]:
        """Push and pop until nothing moves in `max_idle_polls` successive polls of all streams; return the results."""
        sinks = [_Sink(*output_stream) for output_stream in list_output_streams(self._datapath)]
        idle_polls = 0
        while idle_polls < max_idle_polls and (self._sources or sinks):
            was_fed = self._push_beats()
            were_drained = [self._drain(sink) for sink in sinks]
            idle_polls = 0 if was_fed or any(were_drained) else idle_polls + 1
        return {
            f"{sink.module}.{sink.name}": np.array(sink.beats, np.int64).reshape(-1, sink.samples_per_beat)
            for sink in sinks
        }

    def discard_queues(self) -> dict[str, int]:
        """Discard queued beats, and return how many beats of each input were not taken."""
        untaken_beats = {
            name: source.pending_push_count
            for name, source in self._sources.items()
            if source.pending_push_count
        }
        for source in self._sources.values():
            source.queue.clear()
        return untaken_beats

    def _push_beats(self) -> bool:
        """Push while beats are taken, at most as many as an output FIFO holds; return whether anything moved.

        Draining the outputs after every push instead would double the number of accesses.
        """
        for times in range(FIFO_DEPTH):
            were_fed = [self._push_next_beat(source) for source in self._sources.values()]
            if not any(were_fed):
                return times > 0
        return True

    def _push_next_beat(self, source: _Source) -> bool:
        """Push the next beat if its streams are free; return whether anything moved."""
        previous_mask = source.waiting_mask
        if previous_mask:
            source.waiting_mask = self._read("IN", source.signal.name, "WAITING")
        has_moved = source.waiting_mask != previous_mask
        if source.queue and not source.queue[0][0] & source.waiting_mask:
            self._push(source, *source.queue.popleft())
            has_moved = True
        return has_moved

    def _push(self, source: _Source, mask: int, bits: int) -> None:
        name = source.signal.name
        changed_bits = make_data_mask(mask, source.signal)
        data = source.data & ~changed_bits | bits & changed_bits
        register = self._register_map["IN", name, "DATA"]
        writes: list[Access] = []
        for word in range(register.word_count):
            value = data >> WORD_BITS * word & _WORD_MASK
            if value != source.data >> WORD_BITS * word & _WORD_MASK:
                writes.append((register.get_offset(word), value))
        push_register = self._register_map["IN", name, "PUSH"]
        writes += [
            (push_register.get_offset(word), mask >> WORD_BITS * word & _WORD_MASK)
            for word in range(push_register.word_count)
        ]
        self._transfer(writes)
        source.data = data
        source.waiting_mask |= mask

    def _drain(self, sink: _Sink) -> bool:
        """Pop all beats of a FIFO; return whether there were any."""
        stream = ("OUT", sink.module, sink.name)
        level = self._read(*stream, "LEVEL")
        data_register, pop_register = (
            self._register_map[(*stream, "DATA")],
            self._register_map[(*stream, "POP")],
        )
        pop_accesses: list[Access] = [
            *((data_register.get_offset(word), None) for word in range(data_register.word_count)),
            (pop_register.offset, 1),
        ]
        words = self._transfer(pop_accesses * level)
        for offset in range(0, len(words), data_register.word_count):
            bits = _join_words(words[offset : offset + data_register.word_count])
            sink.beats.append(unpack(bits, sink.samples_per_beat, sink.sample_bits, signed=sink.is_signed))
        return bool(level)

    def _read(self, *key: str) -> int:
        return read_words(self._bus, self._register_map, key)


def read_words(bus: RegisterBus, register_map: RegisterMap, key: tuple[str, ...]) -> int:
    """Return all words of a register as one number."""
    register = register_map[key]
    return _join_words([bus.read32(register.get_offset(word)) for word in range(register.word_count)])


def _join_words(words: Sequence[int]) -> int:
    return sum(word << WORD_BITS * index for index, word in enumerate(words))
