"""Rules for the registers of a top, checked in the logs of a bench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from fpga.registers.model import Access, BlockPin, PortBits, Register, RegisterMap
from fpga.registers.register_list import CLEAR_STATUS, COMMIT
from fpga.verify.accesses import ReadAccess
from fpga.verify.bus_bench import BEGIN_CYCLE
from fpga.verify.bus_record import Breach, Columns, Transaction
from fpga.verify.register_model import (
    Change,
    RegisterWords,
    SinkModel,
    count_pulses_before,
    list_waiting_values,
    select_changes_in_cycle,
)


@dataclass(frozen=True)
class BenchRecord:
    """Logs of a run: pins of the top, ports of the datapath inside, and possible values of registers."""

    register_map: RegisterMap
    top_log: Columns
    core_log: Columns
    register_words: RegisterWords

    @property
    def cycles(self) -> range:
        """The cycles that are checked."""
        return range(BEGIN_CYCLE, len(self.core_log["rst_i"]))


def find_restarts(record: BenchRecord) -> frozenset[int]:
    """Return the cycles of complete resets (not only of the datapath): at the start, and the first of each RESET."""
    cycles = {cycle for cycle in range(BEGIN_CYCLE) if record.core_log["rst_i"][cycle]}
    for reset_change in record.register_words.resets:
        reset_cycles = (
            cycle
            for cycle in range(reset_change.begin_cycle, reset_change.end_cycle + 1)
            if record.core_log["rst_i"][cycle]
        )
        cycles |= set(list(reset_cycles)[:1])
    return frozenset(cycles)


def find_level_breaches(record: BenchRecord) -> Iterator[Breach]:
    """Yield the first cycle, for each word, in which an input of the datapath differs from its register."""
    for register in record.register_map:
        driven_port = _find_driver(register)
        if register.access is not Access.WRITE or driven_port is None:
            continue
        name, low = driven_port
        for word in range(register.word_count):
            yield from _find_word_breaches(record, register, word, name, low + word * register.width)


def _find_driver(register: Register) -> tuple[str, int] | None:
    if isinstance(register.signal, PortBits):
        return register.signal.port, register.signal.low_bit or 0
    if isinstance(register.signal, BlockPin) and register.signal.pin == "data":
        return f"{register.signal.name}_data_i", 0
    return None


def _find_word_breaches(
    record: BenchRecord, register: Register, word: int, port: str, low_bit: int
) -> Iterator[Breach]:
    bits = min(register.width, register.signal_bit_count - word * register.width)
    mask, offset = (1 << bits) - 1, register.get_offset(word)
    for cycle in record.cycles:
        actual = record.core_log[port][cycle] >> low_bit & mask
        possible_values = {
            value & mask for value in record.register_words.list_possible_values(offset, cycle, cycle)
        }
        if actual not in possible_values:
            expected = record.register_words.list_possible_changes(offset, cycle, cycle)[-1].value & mask
            yield Breach(f"{register.name} at {port}", cycle, expected, actual)
            return


def find_control_breaches(record: BenchRecord) -> Iterator[Breach]:
    """Yield pulses of CONTROL at the datapath that are missing, or that no write requested."""
    pulses = record.register_words.pulses.get(record.register_map["CONTROL",].offset, [])
    for port, bit in (("commit_i", COMMIT), ("clear_status_i", CLEAR_STATUS)):
        requests = [pulse for pulse in pulses if pulse.value & bit]
        cycles = [cycle for cycle in record.cycles if record.core_log[port][cycle]]
        stray_cycles = [cycle for cycle in cycles if not any(select_changes_in_cycle(requests, cycle))]
        if stray_cycles:
            yield Breach(port, stray_cycles[0], 0, 1)
        elif len(cycles) != len(requests):
            yield Breach(f"pulses of {port}", record.cycles[-1], len(requests), len(cycles))
    yield from _find_reset_breaches(record)


def _find_reset_breaches(record: BenchRecord) -> Iterator[Breach]:
    resets = [*record.register_words.resets, *record.register_words.holds]
    stray_cycles = [
        cycle
        for cycle in record.cycles
        if record.core_log["rst_i"][cycle] and not any(select_changes_in_cycle(resets, cycle))
    ]
    if stray_cycles:
        yield Breach("rst_i", stray_cycles[0], 0, 1)
    for reset in resets:
        if not any(record.core_log["rst_i"][reset.begin_cycle : reset.end_cycle + 1]):
            yield Breach("rst_i", reset.end_cycle, 1, 0)
            return
    for reset in record.register_words.resets:
        # A RESET lasts one cycle, except during a HOLD.
        reset_cycles = [
            cycle
            for cycle in range(reset.begin_cycle, reset.end_cycle + 1)
            if record.core_log["rst_i"][cycle]
        ]
        if len(reset_cycles) > 1 and not any(
            select_changes_in_cycle(record.register_words.holds, cycle) for cycle in reset_cycles
        ):
            yield Breach("rst_i", reset_cycles[1], 0, 1)
            return
    for hold in record.register_words.holds:
        # A hold lasts without a gap until the commit that releases it, or to the end.
        reset_bits = record.core_log["rst_i"][hold.begin_cycle : hold.end_cycle + 1]
        first_reset, last_reset = reset_bits.index(1), len(reset_bits) - 1 - reset_bits[::-1].index(1)
        commits = record.core_log["commit_i"][hold.begin_cycle : hold.end_cycle + 1]
        end = commits.index(1, first_reset) if any(commits[first_reset:]) else len(reset_bits) - 1
        if 0 in reset_bits[first_reset : end + 1] or last_reset < end:
            yield Breach("rst_i", hold.begin_cycle + reset_bits.index(0, first_reset), 1, 0)
            return


class ReadRules:
    """Rules for the answers of reads, and for the FIFOs of output streams."""

    def __init__(self, record: BenchRecord) -> None:
        self._record = record
        self._words_by_address = {
            register.get_offset(word): (register, word)
            for register in record.register_map
            for word in range(register.word_count)
        }
        self._sinks: dict[str, SinkModel] = {}

    def find_breaches(self, reads: list[tuple[ReadAccess, Transaction, int]]) -> Iterator[Breach]:
        """Yield the first wrong answer of every register."""
        wrong_names: set[str] = set()
        for read, transaction, answer in reads:
            register, word = self._words_by_address.get(read.address, (None, 0))
            name = register.name if register else f"{read.address:#x}"
            if name in wrong_names or transaction.begin_cycle < BEGIN_CYCLE:
                continue
            possible_values = (
                self._find_possible_values(register, word, read.address, transaction) if register else [0]
            )
            if answer not in possible_values:
                wrong_names.add(name)
                yield Breach(name, transaction.end_cycle, possible_values[-1], answer)

    def _find_possible_values(
        self, register: Register, word: int, offset: int, transaction: Transaction
    ) -> list[int]:
        first_cycle, last_cycle = transaction.begin_cycle, transaction.end_cycle
        match register.access:
            case Access.CONSTANT:
                return [register.reset_value]
            case Access.WRITE:
                return [
                    change.value
                    for change in self._record.register_words.list_possible_changes(
                        offset, first_cycle, last_cycle
                    )
                ]
            case Access.READ:
                low = word * register.width
                port_values = self._find_port_values(register, first_cycle, last_cycle)
                return [value >> low & register.mask for value in port_values]
        return [0]

    def _find_port_values(self, register: Register, first_cycle: int, last_cycle: int) -> list[int]:
        """Return the possible values of a register that the datapath drives, in these cycles."""
        core, signal = self._record.core_log, register.signal
        if isinstance(signal, PortBits):
            low, mask = signal.low_bit or 0, (1 << signal.width) - 1
            return [value >> low & mask for value in core[signal.port][first_cycle : last_cycle + 1]]
        assert isinstance(signal, BlockPin)
        if signal.block == "pulses":
            return count_pulses_before(core[f"{signal.name}_o"], find_restarts(self._record))[
                first_cycle : last_cycle + 1
            ]
        if signal.block == "source":
            pushes = _find_pushes(self._record, signal.name)
            return list_waiting_values(core[f"{signal.name}_valid_i"], pushes, first_cycle, last_cycle)
        sink = self._get_sink(signal.name)
        return (
            sink.list_levels(first_cycle, last_cycle)
            if signal.pin == "level"
            else sink.list_oldest_beats(first_cycle, last_cycle)
        )

    def _get_sink(self, name: str) -> SinkModel:
        if name not in self._sinks:
            pop_register = self._record.register_map.find_blocks()["sink", name]["pop"]
            pops = [
                pulse
                for pulse in self._record.register_words.pulses.get(pop_register.offset, [])
                if pulse.value & 1
            ]
            self._sinks[name] = SinkModel.from_stream(
                self._record.core_log, name, pops, find_restarts(self._record)
            )
        return self._sinks[name]

    def find_sink_breaches(self) -> Iterator[Breach]:
        """Yield breaches of the ready bits of output streams, which must follow the room in their FIFOs."""
        for block, name in self._record.register_map.find_blocks():
            if block == "sink":
                yield from self._get_sink(name).find_ready_breaches(BEGIN_CYCLE)


def find_memory_breaches(record: BenchRecord) -> Iterator[Breach]:
    """Yield the first load of each memory that no write requested, or that differs in its address or word (R25)."""
    for (block, name), pins in record.register_map.find_blocks().items():
        if block != "memory":
            continue
        expected_loads = list(_list_expected_loads(record, pins["address"], pins["load"]))
        port_series = [record.core_log[f"{name}_{port_name}_i"] for port_name in ("load", "address", "word")]
        actual_loads = [
            (cycle, *(port_values[cycle] for port_values in port_series[1:]))
            for cycle in record.cycles
            if port_series[0][cycle]
        ]
        for (begin, end, address, words), (cycle, loaded_address, word) in zip(
            expected_loads, actual_loads, strict=False
        ):
            if not begin <= cycle <= end:
                yield Breach(f"{name}_load_i", cycle, 0, 1)
                break
            if loaded_address != address:
                yield Breach(f"{name}_address_i", cycle, address, loaded_address)
                break
            if word not in words:
                yield Breach(f"{name}_word_i", cycle, min(words), word)
                break
        else:
            if len(actual_loads) != len(expected_loads):
                yield Breach(f"loads of {name}", record.cycles[-1], len(expected_loads), len(actual_loads))


def _list_expected_loads(
    record: BenchRecord, address: Register, load: Register
) -> Iterator[tuple[int, int, int, set[int]]]:
    """Yield (first cycle, last cycle, address, possible words) of the loads that the writes request."""
    *upper_offsets, load_offset = (load.get_offset(word) for word in range(load.word_count))
    events = [(change, "set") for change in record.register_words.pulses.get(address.offset, [])]
    events += [(change, "load") for change in record.register_words.pulses.get(load_offset, [])]
    events += [(reset, "reset") for reset in record.register_words.resets]
    next_address = 0
    for change, event_kind in sorted(events, key=lambda event: event[0].begin_cycle):
        if event_kind == "load":
            words = {change.value << load.width * len(upper_offsets)}
            for word, offset in enumerate(upper_offsets):
                word_values = record.register_words.list_possible_values(
                    offset, change.begin_cycle, change.end_cycle
                )
                words = {value | part << load.width * word for value in words for part in word_values}
            mask = (1 << load.signal_bit_count) - 1
            yield change.begin_cycle, change.end_cycle, next_address, {value & mask for value in words}
            next_address = next_address + 1 & address.mask
        else:
            next_address = change.value if event_kind == "set" else 0


def _find_pushes(record: BenchRecord, name: str, *, only_certain: bool = False) -> list[Change]:
    """Return the pushes into an input stream, with the bits that they may or (`only_certain`) surely offer."""
    register = record.register_map.find_blocks()["source", name]["push"]
    *offsets, last_offset = (register.get_offset(word) for word in range(register.word_count))
    changes = []
    for push in record.register_words.pulses.get(last_offset, []):
        mask = push.value << register.width * len(offsets)
        for word, offset in enumerate(offsets):
            values = record.register_words.list_possible_values(offset, push.begin_cycle, push.end_cycle)
            combined_values = reduce(and_ if only_certain else or_, values)
            mask |= combined_values << register.width * word
        changes.append(Change(push.begin_cycle, push.end_cycle, mask & (1 << register.signal_bit_count) - 1))
    return changes


def find_push_breaches(record: BenchRecord) -> Iterator[Breach]:
    """Yield beats that are offered without a push, that vanish before they are taken, or that are never offered."""
    for block, name in record.register_map.find_blocks():
        if block != "source":
            continue
        pushes = _find_pushes(record, name)
        valid, ready, resets = (
            record.core_log[signal_name] for signal_name in (f"{name}_valid_i", f"{name}_ready_o", "rst_i")
        )
        restart_cycles = find_restarts(record)
        for cycle in record.cycles[:-1]:
            waiting_bits = valid[cycle] & ~(0 if resets[cycle] else ready[cycle])
            expected = 0 if cycle in restart_cycles else waiting_bits
            offered_bits = 0
            for push in select_changes_in_cycle(pushes, cycle):
                offered_bits |= push.value
            actual = valid[cycle + 1]
            if actual & ~(expected | offered_bits) or expected & ~actual:
                yield Breach(f"{name}_valid_i", cycle + 1, expected | actual & offered_bits, actual)
                break
        yield from _find_lost_pushes(record, name, valid)


def _find_lost_pushes(record: BenchRecord, name: str, valid: list[int]) -> Iterator[Breach]:
    """Yield the first push without effect, judged by the bits that it certainly offers."""
    for push in _find_pushes(record, name, only_certain=True):
        if any(record.core_log["rst_i"][push.begin_cycle : push.end_cycle + 2]):
            continue
        offered_bits = reduce(or_, valid[push.begin_cycle : push.end_cycle + 2], 0)
        if push.value & ~offered_bits:
            yield Breach(f"{name}_valid_i", push.end_cycle, push.value, offered_bits)
            return
