"""Values that the registers of a top may hold in each cycle, worked out from the accesses that a bench has made.

A write has its effect somewhere between its acceptance and shortly after its answer. Hence what a register holds is
known but for the writes that are on their way: in every cycle a few values are possible, mostly one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from fpga.registers.model import Access, Register, RegisterMap
from fpga.registers.register_list import COMMIT, FIFO_DEPTH, HOLD, RESET
from fpga.verify.accesses import Write
from fpga.verify.bus_record import SETTLED, Breach, Columns, Done

_FOREVER = 1 << 40


@dataclass(frozen=True, slots=True)
class Change:
    """A value that a word takes somewhere from cycle `begins` to cycle `ends`."""

    begins: int
    ends: int
    value: int


@dataclass
class Words:
    """Values of the words that are kept, in the order in which they were written: of begins, and of ends."""

    table: RegisterMap
    changes: dict[int, list[Change]] = field(default_factory=dict)
    pulses: dict[int, list[Change]] = field(default_factory=dict)
    """Values written to words that act at once, by their offsets."""
    resets: list[Change] = field(default_factory=list)
    holds: list[Change] = field(default_factory=list)
    """Times in which the datapath may be held in reset: from a HOLD to the COMMIT that ends it."""

    @classmethod
    def of(cls, table: RegisterMap, writes: list[tuple[Write, Done]]) -> Words:
        """Return the words after these writes."""
        words = cls(table)
        places = {register.at(word): register for register in table for word in range(register.words)}
        kept = {offset: each for offset, each in places.items() if each.access in {Access.WRITE, Access.PUSH}}
        words.changes = {offset: [Change(-1, -1, each.reset)] for offset, each in kept.items()}
        for write, done in writes:
            words._write(places, kept, write, done)
        return words

    def _write(
        self, places: dict[int, Register], kept: dict[int, Register], write: Write, done: Done
    ) -> None:
        register = places.get(write.address)
        if register is None:
            return
        begins, ends = done.begins, done.ends + SETTLED
        mask = sum(0xFF << 8 * byte for byte in range(4) if write.strobes >> byte & 1)
        if register.access in {Access.WRITE, Access.PUSH}:
            old = self.changes[write.address][-1].value
            value = (old & ~mask | write.data & mask) & register.mask
            self.changes[write.address].append(Change(begins, ends, value))
        given = write.data & mask & register.mask
        if register.access is Access.PUSH and mask & register.mask:
            self.pulses.setdefault(write.address, []).append(Change(begins, ends, given))
        elif register.access is Access.PULSE:
            self.pulses.setdefault(write.address, []).append(Change(begins, ends, given))
            if register.key == ("CONTROL",):
                self._hold(given, begins, ends)
            if register.key == ("CONTROL",) and given & RESET:
                self.resets.append(Change(begins, ends, 1))
                for offset, each in kept.items():
                    self.changes[offset].append(Change(begins, ends, each.reset))

    def _hold(self, control: int, begins: int, ends: int) -> None:
        held = self.holds[-1] if self.holds and self.holds[-1].ends == _FOREVER else None
        if control & HOLD and held is None:
            self.holds.append(Change(begins, _FOREVER, 1))
        elif held and control & COMMIT and not control & HOLD:
            self.holds[-1] = Change(held.begins, ends, 1)

    def possible(self, offset: int, first: int, last: int) -> list[Change]:
        """Return the changes whose values a word may have somewhere from cycle `first` to cycle `last`."""
        made = self.changes[offset]
        ended = bisect_left(made, first, key=attrgetter("ends"))
        return made[max(ended - 1, 0) : bisect_right(made, last, key=attrgetter("begins"))]

    def values(self, offset: int, first: int, last: int) -> set[int]:
        """Return the values that a word may have somewhere from cycle `first` to cycle `last`."""
        return {each.value for each in self.possible(offset, first, last)}


def within(changes: list[Change], cycle: int) -> Iterator[Change]:
    """Return the changes that may happen in a cycle."""
    return (each for each in changes if each.begins <= cycle <= each.ends)


_NOTHING = (0, 0)


def pulses_before(pulses: list[int], restarts: frozenset[int]) -> list[int]:
    """Return the pulses since reset, cycle by cycle."""
    found, number = [], 0
    for cycle, pulse in enumerate(pulses):
        found.append(number)
        number = 0 if cycle in restarts else (number + pulse) % (1 << 32)
    return found


def waiting_values(valid: list[int], pushes: list[Change], first: int, last: int) -> list[int]:
    """Return what the beats that wait may be in these cycles: those that are offered, and those being pushed."""
    found = []
    for cycle in range(first, last + 1):
        found.append(valid[cycle])
        found += [valid[cycle] | each.value for each in within(pushes, cycle)]
    return found


@dataclass(frozen=True)
class SinkModel:
    """A FIFO behind an output stream: what it may be in each cycle, as pairs of beats pushed and beats popped.

    Beats since the last reset are in `beats`, cycle by cycle the same list until a reset begins another one.
    """

    name: str
    states: list[frozenset[tuple[int, int]]]
    beats: list[list[int]]
    ready: list[int]

    @classmethod
    def of(cls, core: Columns, name: str, pops: list[Change], restarts: frozenset[int]) -> SinkModel:
        """Follow the stream of the datapath, and the pops that were written."""
        valid, ready, data = (core[f"{name}_{each}"] for each in ("valid_o", "ready_i", "data_o"))
        # A possible state is how many writes have popped, and how many beats have left.
        possible: set[tuple[int, int]] = {_NOTHING}
        beats: list[int] = []
        states, kept = [], []
        for cycle in range(len(ready)):
            states.append(frozenset((len(beats), left) for _, left in possible))
            kept.append(beats)
            pushed = len(beats)
            if valid[cycle] and ready[cycle]:
                beats = [*beats, data[cycle]]
            possible = set(_pop(possible, pops, cycle, pushed))
            if cycle in restarts:
                beats, possible = [], {(done, 0) for done, _ in possible}
        return cls(name, states, kept, ready)

    def levels(self, first: int, last: int) -> list[int]:
        """Return the levels that it may show in these cycles."""
        return [pushed - left for states in self.states[first : last + 1] for pushed, left in states]

    def heads(self, first: int, last: int) -> list[int]:
        """Return the oldest beats that it may show in these cycles; 0 for none."""
        return [
            self.beats[cycle][left] if left < pushed else 0
            for cycle in range(first, last + 1)
            for pushed, left in self.states[cycle]
        ]

    def ready_breaches(self, begun: int) -> Iterator[Breach]:
        """Return where it takes a beat without room, or does not take one with room."""
        for cycle in range(begun, len(self.states)):
            possible = {int(pushed - left < FIFO_DEPTH) for pushed, left in self.states[cycle]}
            if self.ready[cycle] not in possible:
                yield Breach(f"{self.name}_ready_i", cycle, next(iter(possible)), self.ready[cycle])
                return


def _pop(
    possible: set[tuple[int, int]], pops: list[Change], cycle: int, pushed: int
) -> Iterator[tuple[int, int]]:
    """Return the states after a cycle in which the next pop may act, or must because its time is over."""
    for done, left in possible:
        following = pops[done] if done < len(pops) else None
        if following is None or cycle < following.begins:
            yield done, left
            continue
        if cycle < following.ends:
            yield done, left
        yield done + 1, min(left + 1, pushed)
