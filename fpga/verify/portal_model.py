"""Blocks behind registers as they may be in each cycle, where it is not known in which cycle a write acts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fpga.registers.register_list import FIFO_DEPTH
from fpga.verify.bus_record import Breach, Columns
from fpga.verify.register_model import Change, within

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
            possible = set(_popped(possible, pops, cycle, pushed))
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


def _popped(
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
