"""Possible values of the registers of a top in each cycle, from the accesses of a bench.

A write takes effect at some time between its acceptance and shortly after its answer. A register is therefore known
except for pending writes: in every cycle a few values are possible, mostly one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from fpga.registers.model import Access, Register, RegisterMap
from fpga.registers.register_list import COMMIT, FIFO_DEPTH, HOLD, RESET
from fpga.verify.accesses import Write
from fpga.verify.bus_record import SETTLED, Breach, Columns, Transaction

_FOREVER = 1 << 40


@dataclass(frozen=True, slots=True)
class Change:
    """A value that a word takes at some time from cycle `begins` to cycle `ends`."""

    begins: int
    ends: int
    value: int


@dataclass
class Words:
    """Values of the words of a register map: by offset, the changes in the order of their begins and ends."""

    table: RegisterMap
    changes: dict[int, list[Change]] = field(default_factory=dict)
    pulses: dict[int, list[Change]] = field(default_factory=dict)
    """Values written to words that act on a write, by their offsets."""
    resets: list[Change] = field(default_factory=list)
    holds: list[Change] = field(default_factory=list)
    """Times in which the datapath may be held in reset: from a HOLD to the COMMIT that releases it."""

    @classmethod
    def from_writes(cls, table: RegisterMap, writes: list[tuple[Write, Transaction]]) -> Words:
        """Return the words after these writes."""
        words = cls(table)
        registers = {
            register.offset_of(word): register for register in table for word in range(register.words)
        }
        stored = {
            offset: register
            for offset, register in registers.items()
            if register.access in {Access.WRITE, Access.PUSH}
        }
        words.changes = {offset: [Change(-1, -1, each.reset)] for offset, each in stored.items()}
        for write, transaction in writes:
            words._apply_write(registers, stored, write, transaction)
        return words

    def _apply_write(
        self,
        registers: dict[int, Register],
        stored: dict[int, Register],
        write: Write,
        transaction: Transaction,
    ) -> None:
        register = registers.get(write.address)
        if register is None:
            return
        begin, end = transaction.begins, transaction.ends + SETTLED
        mask = sum(0xFF << 8 * byte for byte in range(4) if write.strobes >> byte & 1)
        if register.access in {Access.WRITE, Access.PUSH}:
            old = self.changes[write.address][-1].value
            value = (old & ~mask | write.data & mask) & register.mask
            self.changes[write.address].append(Change(begin, end, value))
        data = write.data & mask & register.mask
        if register.access is Access.PUSH and mask & register.mask:
            self.pulses.setdefault(write.address, []).append(Change(begin, end, data))
        elif register.access is Access.PULSE:
            self.pulses.setdefault(write.address, []).append(Change(begin, end, data))
            if register.key == ("CONTROL",):
                self._apply_hold(data, begin, end)
            if register.key == ("CONTROL",) and data & RESET:
                self.resets.append(Change(begin, end, 1))
                for offset, each in stored.items():
                    self.changes[offset].append(Change(begin, end, each.reset))

    def _apply_hold(self, control: int, begin: int, end: int) -> None:
        current = self.holds[-1] if self.holds and self.holds[-1].ends == _FOREVER else None
        if control & HOLD and current is None:
            self.holds.append(Change(begin, _FOREVER, 1))
        elif current and control & COMMIT and not control & HOLD:
            self.holds[-1] = Change(current.begins, end, 1)

    def possible_changes(self, offset: int, first: int, last: int) -> list[Change]:
        """Return the changes whose values a word may have at some time from cycle `first` to cycle `last`."""
        changes = self.changes[offset]
        ended = bisect_left(changes, first, key=attrgetter("ends"))
        return changes[max(ended - 1, 0) : bisect_right(changes, last, key=attrgetter("begins"))]

    def values(self, offset: int, first: int, last: int) -> set[int]:
        """Return the values that a word may have at some time from cycle `first` to cycle `last`."""
        return {change.value for change in self.possible_changes(offset, first, last)}


def select_in_cycle(changes: list[Change], cycle: int) -> Iterator[Change]:
    """Yield the changes that may happen in a cycle."""
    return (change for change in changes if change.begins <= cycle <= change.ends)


_NOTHING = (0, 0)


def pulses_before(pulses: list[int], restarts: frozenset[int]) -> list[int]:
    """Return the number of pulses since the last reset before each cycle, modulo 2^32."""
    totals, number = [], 0
    for cycle, pulse in enumerate(pulses):
        totals.append(number)
        number = 0 if cycle in restarts else (number + pulse) % (1 << 32)
    return totals


def waiting_values(valid: list[int], pushes: list[Change], first: int, last: int) -> list[int]:
    """Return the possible values of the waiting bits in these cycles: offered beats, with or without pending pushes."""
    values = []
    for cycle in range(first, last + 1):
        values.append(valid[cycle])
        values += [valid[cycle] | each.value for each in select_in_cycle(pushes, cycle)]
    return values


@dataclass(frozen=True)
class SinkModel:
    """A FIFO behind an output stream: its possible states in each cycle, as pairs (beats pushed, beats popped).

    `beats` holds, for each cycle, the beats since the last reset.
    """

    name: str
    states: list[frozenset[tuple[int, int]]]
    beats: list[list[int]]
    ready: list[int]

    @classmethod
    def from_stream(cls, core: Columns, name: str, pops: list[Change], restarts: frozenset[int]) -> SinkModel:
        """Return the model for the stream of the datapath and the pops that were written."""
        valid, ready, data = (core[f"{name}_{each}"] for each in ("valid_o", "ready_i", "data_o"))
        # A possible state is (pops that have acted, beats that have left); a pop of an empty FIFO has no effect.
        possible: set[tuple[int, int]] = {_NOTHING}
        beats: list[int] = []
        states, history = [], []
        for cycle in range(len(ready)):
            states.append(frozenset((len(beats), popped) for _, popped in possible))
            history.append(beats)
            pushed = len(beats)
            if valid[cycle] and ready[cycle]:
                beats = [*beats, data[cycle]]
            possible = set(_apply_pop(possible, pops, cycle, pushed))
            if cycle in restarts:
                beats, possible = [], {(acted, 0) for acted, _ in possible}
        return cls(name, states, history, ready)

    def levels(self, first: int, last: int) -> list[int]:
        """Return the possible levels in these cycles."""
        return [pushed - popped for states in self.states[first : last + 1] for pushed, popped in states]

    def heads(self, first: int, last: int) -> list[int]:
        """Return the possible oldest beats in these cycles; 0 if the FIFO is empty."""
        return [
            self.beats[cycle][popped] if popped < pushed else 0
            for cycle in range(first, last + 1)
            for pushed, popped in self.states[cycle]
        ]

    def find_ready_breaches(self, first: int) -> Iterator[Breach]:
        """Yield the first cycle in which the FIFO is ready without room, or not ready with room."""
        for cycle in range(first, len(self.states)):
            possible = {int(pushed - popped < FIFO_DEPTH) for pushed, popped in self.states[cycle]}
            if self.ready[cycle] not in possible:
                yield Breach(f"{self.name}_ready_i", cycle, next(iter(possible)), self.ready[cycle])
                return


def _apply_pop(
    possible: set[tuple[int, int]], pops: list[Change], cycle: int, pushed: int
) -> Iterator[tuple[int, int]]:
    """Yield the states after a cycle in which the next pop may act, or must act because its time is over."""
    for acted, popped in possible:
        following = pops[acted] if acted < len(pops) else None
        if following is None or cycle < following.begins:
            yield acted, popped
            continue
        if cycle < following.ends:
            yield acted, popped
        yield acted + 1, min(popped + 1, pushed)
