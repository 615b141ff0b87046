"""Rules of the registers of a top, looked at in what a bench has written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from fpga.registers.model import Access, BlockPin, PortBits, Register, RegisterMap
from fpga.registers.register_list import CLEAR_STATUS, COMMIT
from fpga.verify.accesses import Read
from fpga.verify.bus_bench import BEGIN
from fpga.verify.bus_record import Breach, Columns, Done
from fpga.verify.register_model import Change, SinkModel, Words, pulses_before, waiting_values, within


@dataclass(frozen=True)
class Record:
    """The record of a top: its pins, those of the datapath inside, and what its registers may hold."""

    table: RegisterMap
    top: Columns
    core: Columns
    words: Words

    @property
    def cycles(self) -> range:
        """The cycles that are looked at."""
        return range(BEGIN, len(self.core["rst_i"]))


def restarts_of(record: Record) -> frozenset[int]:
    """Return the cycles in which everything is reset, and not the datapath alone: the first of a RESET."""
    found = {cycle for cycle in range(BEGIN) if record.core["rst_i"][cycle]}
    for each in record.words.resets:
        reset = (c for c in range(each.begins, each.ends + 1) if record.core["rst_i"][c])
        found |= set(list(reset)[:1])
    return frozenset(found)


def level_breaches(record: Record) -> Iterator[Breach]:
    """Return where an input of the datapath is not what its registers hold."""
    for register in record.table:
        port = _find_driver(register)
        if register.access is not Access.WRITE or port is None:
            continue
        name, low = port
        for word in range(register.words):
            yield from _word_breaches(record, register, word, name, low + word * register.width)


def _find_driver(register: Register) -> tuple[str, int] | None:
    if isinstance(register.signal, PortBits):
        return register.signal.port, register.signal.low or 0
    if isinstance(register.signal, BlockPin) and register.signal.pin == "data":
        return f"{register.signal.name}_data_i", 0
    return None


def _word_breaches(record: Record, register: Register, word: int, port: str, low: int) -> Iterator[Breach]:
    bits = min(register.width, register.signal_bits - word * register.width)
    mask, offset = (1 << bits) - 1, register.at(word)
    for cycle in record.cycles:
        seen = record.core[port][cycle] >> low & mask
        possible = {value & mask for value in record.words.values(offset, cycle, cycle)}
        if seen not in possible:
            right = record.words.possible(offset, cycle, cycle)[-1].value & mask
            yield Breach(f"{register.name} at {port}", cycle, right, seen)
            return


def control_breaches(record: Record) -> Iterator[Breach]:
    """Return pulses of CONTROL that are missing at the datapath, or that nobody asked for."""
    given = record.words.pulses.get(record.table["CONTROL",].offset, [])
    for port, bit in (("commit_i", COMMIT), ("clear_status_i", CLEAR_STATUS)):
        asked = [each for each in given if each.value & bit]
        seen = [cycle for cycle in record.cycles if record.core[port][cycle]]
        stray = [cycle for cycle in seen if not any(within(asked, cycle))]
        if stray:
            yield Breach(port, stray[0], 0, 1)
        elif len(seen) != len(asked):
            yield Breach(f"pulses of {port}", record.cycles[-1], len(asked), len(seen))
    yield from _reset_breaches(record)


def _reset_breaches(record: Record) -> Iterator[Breach]:
    resets = [*record.words.resets, *record.words.holds]
    stray = [
        cycle for cycle in record.cycles if record.core["rst_i"][cycle] and not any(within(resets, cycle))
    ]
    if stray:
        yield Breach("rst_i", stray[0], 0, 1)
    for each in resets:
        if not any(record.core["rst_i"][each.begins : each.ends + 1]):
            yield Breach("rst_i", each.ends, 1, 0)
            return
    for each in record.words.resets:
        # A RESET lasts a cycle, unless a HOLD goes on.
        seen = [cycle for cycle in range(each.begins, each.ends + 1) if record.core["rst_i"][cycle]]
        if len(seen) > 1 and not any(within(record.words.holds, cycle) for cycle in seen):
            yield Breach("rst_i", seen[1], 0, 1)
            return
    for held in record.words.holds:
        # Once it has begun it lasts until the commit that ends it, or for ever.
        resets_seen = record.core["rst_i"][held.begins : held.ends + 1]
        first, last = resets_seen.index(1), len(resets_seen) - 1 - resets_seen[::-1].index(1)
        commits = record.core["commit_i"][held.begins : held.ends + 1]
        ends = commits.index(1, first) if any(commits[first:]) else len(resets_seen) - 1
        if 0 in resets_seen[first : ends + 1] or last < ends:
            yield Breach("rst_i", held.begins + resets_seen.index(0, first), 1, 0)
            return


class ReadRules:
    """Rules about the answers of reads."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._places = {
            register.at(word): (register, word) for register in record.table for word in range(register.words)
        }
        self._sinks: dict[str, SinkModel] = {}

    def breaches(self, reads: list[tuple[Read, Done, int]]) -> Iterator[Breach]:
        """Return the first wrong answer of every register."""
        wrong: set[str] = set()
        for read, done, answer in reads:
            register, word = self._places.get(read.address, (None, 0))
            name = register.name if register else f"{read.address:#x}"
            if name in wrong or done.begins < BEGIN:
                continue
            possible = self._possible(register, word, read.address, done) if register else [0]
            if answer not in possible:
                wrong.add(name)
                yield Breach(name, done.ends, possible[-1], answer)

    def _possible(self, register: Register, word: int, offset: int, done: Done) -> list[int]:
        first, last = done.begins, done.ends
        match register.access:
            case Access.CONSTANT:
                return [register.reset]
            case Access.WRITE:
                return [each.value for each in self._record.words.possible(offset, first, last)]
            case Access.READ:
                low = word * register.width
                wide = self._find_shown(register, first, last)
                return [value >> low & register.mask for value in wide]
        return [0]

    def _find_shown(self, register: Register, first: int, last: int) -> list[int]:
        """Return what a register that the datapath drives may show in these cycles."""
        core, signal = self._record.core, register.signal
        if isinstance(signal, PortBits):
            low, mask = signal.low or 0, (1 << signal.width) - 1
            return [value >> low & mask for value in core[signal.port][first : last + 1]]
        assert isinstance(signal, BlockPin)
        if signal.block == "pulses":
            return pulses_before(core[f"{signal.name}_o"], restarts_of(self._record))[first : last + 1]
        if signal.block == "source":
            pushes = _push_changes(self._record, signal.name)
            return waiting_values(core[f"{signal.name}_valid_i"], pushes, first, last)
        sink = self._sink(signal.name)
        return sink.levels(first, last) if signal.pin == "level" else sink.heads(first, last)

    def _sink(self, name: str) -> SinkModel:
        if name not in self._sinks:
            pop = self._record.table.blocks()["sink", name]["pop"]
            pops = [each for each in self._record.words.pulses.get(pop.offset, []) if each.value & 1]
            self._sinks[name] = SinkModel.of(self._record.core, name, pops, restarts_of(self._record))
        return self._sinks[name]

    def sink_breaches(self) -> Iterator[Breach]:
        """Return where an output stream is kept waiting, or is not, against the room behind it."""
        for block, name in self._record.table.blocks():
            if block == "sink":
                yield from self._sink(name).ready_breaches(BEGIN)


def _push_changes(record: Record, name: str, *, certain: bool = False) -> list[Change]:
    """Return the pushes into an input stream, each with the bits that it may offer, or with those that are certain."""
    register = record.table.blocks()["source", name]["push"]
    *before, last = (register.at(word) for word in range(register.words))
    found = []
    for each in record.words.pulses.get(last, []):
        mask = each.value << register.width * len(before)
        for word, offset in enumerate(before):
            values = record.words.values(offset, each.begins, each.ends)
            combined = reduce(and_ if certain else or_, values)
            mask |= combined << register.width * word
        found.append(Change(each.begins, each.ends, mask & (1 << register.signal_bits) - 1))
    return found


def push_breaches(record: Record) -> Iterator[Breach]:
    """Return beats that are offered though nobody pushed them, and those that vanish before they are taken."""
    for block, name in record.table.blocks():
        if block != "source":
            continue
        pushes = _push_changes(record, name)
        valid, ready, resets = (record.core[each] for each in (f"{name}_valid_i", f"{name}_ready_o", "rst_i"))
        restarts = restarts_of(record)
        for cycle in record.cycles[:-1]:
            kept = valid[cycle] & ~(0 if resets[cycle] else ready[cycle])
            left = 0 if cycle in restarts else kept
            offered = 0
            for each in within(pushes, cycle):
                offered |= each.value
            seen = valid[cycle + 1]
            if seen & ~(left | offered) or left & ~seen:
                yield Breach(f"{name}_valid_i", cycle + 1, left | seen & offered, seen)
                break
        yield from _find_lost_pushes(record, name, valid)


def _find_lost_pushes(record: Record, name: str, valid: list[int]) -> Iterator[Breach]:
    """Return pushes that came to nothing, of those bits that are known."""
    for each in _push_changes(record, name, certain=True):
        if any(record.core["rst_i"][each.begins : each.ends + 2]):
            continue
        seen = reduce(or_, valid[each.begins : each.ends + 2], 0)
        if each.value & ~seen:
            yield Breach(f"{name}_valid_i", each.ends, each.value, seen)
            return
