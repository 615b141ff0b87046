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
from fpga.verify.accesses import WriteAccess
from fpga.verify.bus_record import SETTLING_CYCLES, Breach, Columns, Transaction

_FOREVER_CYCLE = 1 << 40


@dataclass(frozen=True, slots=True)
class Change:
    """A value that a word takes at some time from cycle `begin_cycle` to cycle `end_cycle`."""

    begin_cycle: int
    end_cycle: int
    value: int


@dataclass
class RegisterWords:
    """Values of the words of a register map: by offset, the changes in the order of their begins and ends."""

    register_map: RegisterMap
    changes: dict[int, list[Change]] = field(default_factory=dict)
    pulses: dict[int, list[Change]] = field(default_factory=dict)
    """Values written to words that act on a write, by their offsets."""
    resets: list[Change] = field(default_factory=list)
    holds: list[Change] = field(default_factory=list)
    """Times in which the datapath may be held in reset: from a HOLD to the COMMIT that releases it."""

    @classmethod
    def from_writes(
        cls, register_map: RegisterMap, writes: list[tuple[WriteAccess, Transaction]]
    ) -> RegisterWords:
        """Return the words after these writes."""
        words = cls(register_map)
        registers = {
            register.get_offset(word): register
            for register in register_map
            for word in range(register.word_count)
        }
        stored_registers = {
            offset: register
            for offset, register in registers.items()
            if register.access in {Access.WRITE, Access.PUSH}
        }
        words.changes = {
            offset: [Change(-1, -1, register.reset_value)] for offset, register in stored_registers.items()
        }
        for write, transaction in writes:
            words._apply_write(registers, stored_registers, write, transaction)
        return words

    def _apply_write(
        self,
        registers: dict[int, Register],
        stored_registers: dict[int, Register],
        write: WriteAccess,
        transaction: Transaction,
    ) -> None:
        register = registers.get(write.address)
        if register is None:
            return
        begin, end = transaction.begin_cycle, transaction.end_cycle + SETTLING_CYCLES
        mask = sum(0xFF << 8 * byte for byte in range(4) if write.strobes >> byte & 1)
        if register.access in {Access.WRITE, Access.PUSH}:
            old_value = self.changes[write.address][-1].value
            value = (old_value & ~mask | write.data & mask) & register.mask
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
                for offset, stored_register in stored_registers.items():
                    self.changes[offset].append(Change(begin, end, stored_register.reset_value))

    def _apply_hold(self, control_value: int, begin: int, end: int) -> None:
        current_hold = self.holds[-1] if self.holds and self.holds[-1].end_cycle == _FOREVER_CYCLE else None
        if control_value & HOLD and current_hold is None:
            self.holds.append(Change(begin, _FOREVER_CYCLE, 1))
        elif current_hold and control_value & COMMIT and not control_value & HOLD:
            self.holds[-1] = Change(current_hold.begin_cycle, end, 1)

    def list_possible_changes(self, offset: int, first_cycle: int, last_cycle: int) -> list[Change]:
        """Return the changes whose values a word may have at some time from cycle `first_cycle` to `last_cycle`."""
        changes = self.changes[offset]
        ended_change_count = bisect_left(changes, first_cycle, key=attrgetter("end_cycle"))
        return changes[
            max(ended_change_count - 1, 0) : bisect_right(changes, last_cycle, key=attrgetter("begin_cycle"))
        ]

    def list_possible_values(self, offset: int, first_cycle: int, last_cycle: int) -> set[int]:
        """Return the values that a word may have at some time from cycle `first_cycle` to `last_cycle`."""
        return {change.value for change in self.list_possible_changes(offset, first_cycle, last_cycle)}


def select_changes_in_cycle(changes: list[Change], cycle: int) -> Iterator[Change]:
    """Yield the changes that may happen in a cycle."""
    return (change for change in changes if change.begin_cycle <= cycle <= change.end_cycle)


_EMPTY_STATE = (0, 0)


def count_pulses_before(pulses: list[int], restart_cycles: frozenset[int]) -> list[int]:
    """Return the number of pulses since the last reset before each cycle, modulo 2^32."""
    totals, number = [], 0
    for cycle, pulse in enumerate(pulses):
        totals.append(number)
        number = 0 if cycle in restart_cycles else (number + pulse) % (1 << 32)
    return totals


def list_waiting_values(
    valid: list[int], pushes: list[Change], first_cycle: int, last_cycle: int
) -> list[int]:
    """Return the possible values of the waiting bits in these cycles: offered beats, with or without pending pushes."""
    values = []
    for cycle in range(first_cycle, last_cycle + 1):
        values.append(valid[cycle])
        values += [valid[cycle] | push.value for push in select_changes_in_cycle(pushes, cycle)]
    return values


@dataclass(frozen=True)
class SinkModel:
    """A FIFO behind an output stream: its possible states in each cycle, as pairs (beats pushed, beats popped).

    `beats` holds, for each cycle, the beats since the last reset.
    """

    name: str
    states: list[frozenset[tuple[int, int]]]
    beats: list[list[int]]
    ready_bits: list[int]

    @classmethod
    def from_stream(
        cls, core_log: Columns, name: str, pops: list[Change], restart_cycles: frozenset[int]
    ) -> SinkModel:
        """Return the model for the stream of the datapath and the pops that were written."""
        valid, ready, data = (core_log[f"{name}_{suffix}"] for suffix in ("valid_o", "ready_i", "data_o"))
        # A possible state is (pops that have acted, beats that have left); a pop of an empty FIFO has no effect.
        possible_states: set[tuple[int, int]] = {_EMPTY_STATE}
        beats: list[int] = []
        states, beats_by_cycle = [], []
        for cycle in range(len(ready)):
            states.append(frozenset((len(beats), popped_beats) for _, popped_beats in possible_states))
            beats_by_cycle.append(beats)
            pushed_beats = len(beats)
            if valid[cycle] and ready[cycle]:
                beats = [*beats, data[cycle]]
            possible_states = set(_apply_pop(possible_states, pops, cycle, pushed_beats))
            if cycle in restart_cycles:
                beats, possible_states = [], {(acted_pops, 0) for acted_pops, _ in possible_states}
        return cls(name, states, beats_by_cycle, ready)

    def list_levels(self, first_cycle: int, last_cycle: int) -> list[int]:
        """Return the possible levels in these cycles."""
        return [
            pushed_beats - popped_beats
            for states in self.states[first_cycle : last_cycle + 1]
            for pushed_beats, popped_beats in states
        ]

    def list_oldest_beats(self, first_cycle: int, last_cycle: int) -> list[int]:
        """Return the possible oldest beats in these cycles; 0 if the FIFO is empty."""
        return [
            self.beats[cycle][popped_beats] if popped_beats < pushed_beats else 0
            for cycle in range(first_cycle, last_cycle + 1)
            for pushed_beats, popped_beats in self.states[cycle]
        ]

    def find_ready_breaches(self, first_cycle: int) -> Iterator[Breach]:
        """Yield the first cycle in which the FIFO is ready without room, or not ready with room."""
        for cycle in range(first_cycle, len(self.states)):
            possible_values = {
                int(pushed_beats - popped_beats < FIFO_DEPTH)
                for pushed_beats, popped_beats in self.states[cycle]
            }
            if self.ready_bits[cycle] not in possible_values:
                yield Breach(
                    f"{self.name}_ready_i", cycle, next(iter(possible_values)), self.ready_bits[cycle]
                )
                return


def _apply_pop(
    possible_states: set[tuple[int, int]], pops: list[Change], cycle: int, pushed_beats: int
) -> Iterator[tuple[int, int]]:
    """Yield the states after a cycle in which the next pop may act, or must act because its time is over."""
    for acted_pops, popped_beats in possible_states:
        next_pop = pops[acted_pops] if acted_pops < len(pops) else None
        if next_pop is None or cycle < next_pop.begin_cycle:
            yield acted_pops, popped_beats
            continue
        if cycle < next_pop.end_cycle:
            yield acted_pops, popped_beats
        yield acted_pops + 1, min(popped_beats + 1, pushed_beats)
