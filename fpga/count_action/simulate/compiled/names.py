"""Names of registers and wires in the generated statements.

`i3` is a word of the input row, `o3` of the output row. Registers: `c` counts, `t` targets, `v` valid bits, `d` words
of beats, `r` flags, pulses and numbers, `over` and `full` the status bits. Wires: `e` enabled, `n` not stalled, `y`
ready, `g` a beat moves, `p` an increment, `x` the value that is compared, `f` fires, `b` overshoots, `s` saturates,
`w` the value of a formula, `l` the limit of a count that goes up and down. `a` are the words of a memory. Kinds of
actions define other letters. Bits are 0 or 1. The number after a letter is the position of the count, target, module
or output.

Buffers hold up to two beats of a stream: `bv` has a bit for each stream that holds at least one beat, `bw` for each
that holds two; `bh` and `bn` are the samples of the first and second beat, laid out as in the port.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from fpga.count_action.actions import KINDS
from fpga.count_action.arbitration import find_pick_formula
from fpga.count_action.graph import Graph, can_stall
from fpga.count_action.model import (
    FORMULA_PREFIX,
    Action,
    ActionKind,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    SignalKind,
    is_formula_ref,
)
from fpga.count_action.ports import Port, list_buffer_ports, make_ports
from fpga.count_action.simulate.bit_slices import PartOfModule, find_sample_slice, find_valid_slice
from fpga.count_action.simulate.compiled.expressions import BitField, join_and, make_field, mask_field


class VariableNames:
    """Names and fields of one datapath."""

    def __init__(self, datapath: Datapath) -> None:
        self.datapath = datapath
        self.graph = Graph(datapath)
        self.ports = make_ports(datapath)
        self._module_indices = {module.name: index for index, module in enumerate(datapath.modules)}
        self._count_indices = {
            (module.name, count.name): index for index, (module, count) in enumerate(datapath.list_counts())
        }
        self._target_indices = {
            (module.name, target.name): index
            for index, (module, target) in enumerate(datapath.list_targets())
        }
        self.consumed_streams = datapath.consumed
        self.output_indices = {key: index for index, key in enumerate(self.graph.drivers)}
        """Position of each output."""

    def find_driver(self, output: PartOfModule) -> Action:
        """Return the first action that drives an output."""
        return self.graph.drivers[output][0][1]

    def list_actions(self) -> Iterator[tuple[Module, Action]]:
        """Yield all actions with their modules."""
        return ((module, action) for module in self.datapath.modules for action in module.actions)

    # ----------------------------------------------------------------------------------------- fields
    def list_words(self, port: Port) -> tuple[str, ...]:
        """Return the words of an input port, or for a buffered stream the output words of its buffer."""
        letter = self._buffer_letters.get(port.name, "i")
        return tuple(f"{letter}{port.column + word}" for word in range(port.word_count))

    @cached_property
    def _buffer_letters(self) -> dict[str, str]:
        """Letters of the buffer registers that are read instead of an input port, by port (R20)."""
        letters: dict[str, str] = {}
        for signal in self.datapath.inputs:
            if signal.buffered:
                letters[f"{signal.name}_valid_i"] = "bv"
                letters |= {port: "bh" for port, _ in list_buffer_ports(self.datapath, signal)}
        return letters

    def list_buffer_registers(self) -> Iterator[str]:
        """Yield the registers of the buffers: bits for one beat and for two, first beats and second beats."""
        second_letters = {"bv": "bw", "bh": "bn"}
        for name, letter in self._buffer_letters.items():
            port = self.ports.find_input(name)
            for word in range(port.word_count):
                yield f"{letter}{port.column + word}"
                yield f"{second_letters[letter]}{port.column + word}"

    def find_input_bit(self, name: str) -> BitField:
        """Return the lowest bit of an input port."""
        return BitField(self.list_words(self.ports.find_input(name)), 0, 1)

    def find_beat_port(self, stream: PartOfModule) -> Port:
        """Return the port that shows the data of a module's stream."""
        return self.ports.find_output(f"{stream[0]}_{stream[1]}_data_o")

    def list_beat_registers(self, stream: PartOfModule) -> tuple[str, ...]:
        """Return the registers of a module's stream."""
        return tuple(
            f"d{self.output_indices[stream]}_{word}" for word in range(self.find_beat_port(stream).word_count)
        )

    def find_field(self, ref: Ref) -> BitField:
        """Return the bits of a sample, flag, number or formula; those of a beat are from the start of the cycle."""
        if is_formula_ref(ref):
            return make_field(self.find_value(ref), self.graph.find_source(ref).width)
        return self._find_signal_field(ref, "_before")

    def find_previous_field(self, ref: Ref) -> BitField:
        """Return the bits that a sample, flag, number or formula had before the registers were updated."""
        if (ref.module, ref.name) not in self.signals_read_by_stores:
            return self.find_field(ref)
        bit_slice = find_sample_slice(self.graph, ref)
        return make_field(f"r{self.output_indices[bit_slice.register]}_before", bit_slice.width)

    def find_current_field(self, ref: Ref) -> BitField:
        """Return the current bits of a sample, flag or number; use this only before any register is updated."""
        return self._find_signal_field(ref, "")

    def find_value(self, ref: Ref) -> str:
        """Return the wire of a formula."""
        return f"w{self._module_indices[ref.module or '']}_{ref.name.removeprefix(FORMULA_PREFIX)}"

    def _find_signal_field(self, ref: Ref, suffix: str) -> BitField:
        bit_slice = find_sample_slice(self.graph, ref)
        if bit_slice.port:
            return BitField(
                self.list_words(self.ports.find_input(bit_slice.port)), bit_slice.low, bit_slice.width
            )
        if self.graph.is_stream(ref):
            words = tuple(f"{word}{suffix}" for word in self.list_beat_registers(bit_slice.register))
            return BitField(words, bit_slice.low, bit_slice.width)
        return make_field(f"r{self.output_indices[bit_slice.register]}", bit_slice.width)

    def find_valid_bit(self, ref: Ref) -> BitField:
        """Return the valid bit of a stream."""
        bit_slice = find_valid_slice(ref)
        if bit_slice.port:
            return BitField(self.list_words(self.ports.find_input(bit_slice.port)), bit_slice.low, 1)
        return make_field(f"v{self.output_indices[bit_slice.register]}", 1)

    def find_move_bit(self, ref: Ref) -> BitField:
        """Return the bit that is 1 if a beat of a stream moves."""
        if ref.module is not None:
            return make_field(f"g{self.output_indices[ref.module, ref.name]}", 1)
        words = self.list_words(self.ports.find_input(f"{ref.name}_valid_i"))
        return BitField(tuple(f"g_{word}" for word in words), ref.index, 1)

    # ------------------------------------------------------------------------------- counts and modules
    def find_count_index(self, module_name: str, count_name: str) -> int:
        """Return the position of a count."""
        return self._count_indices[module_name, count_name]

    def find_count_register(self, module_name: str, count_name: str) -> str:
        """Return the register of a count, or `0` for a level count, which has none."""
        is_level = self.datapath.module(module_name).count(count_name).kind is CountKind.LEVEL
        return "0" if is_level else f"c{self._count_indices[module_name, count_name]}"

    def find_fire_wire(self, module_name: str, count_name: str) -> str:
        """Return the wire that is 1 if a count fires."""
        return f"f{self._count_indices[module_name, count_name]}"

    def find_target_register(self, module_name: str, target_name: str) -> str:
        """Return the register of a target in force."""
        return f"t{self._target_indices[module_name, target_name]}"

    def find_pick(self, count: Count, stream: Ref) -> list[str]:
        """Return a list with the wire that is 1 if a count selects a stream; empty for other counts (R19)."""
        pick = find_pick_formula(count, stream)
        return [] if pick is None else [self.find_value(pick)]

    def write_no_stall_condition(self, module: Module) -> str:
        """Return the condition that a module is not stalled."""
        return f"n{self._module_indices[module.name]}" if can_stall(module) else "1"

    def write_counting_condition(self, module: Module, count: Count) -> str:
        """Return the condition that a count is enabled and its module is not stalled."""
        enabled_name = f"e{self._count_indices[module.name, count.name]}" if count.gate else "1"
        return join_and([enabled_name, self.write_no_stall_condition(module)])

    def list_clear_wires(self, module_name: str, count_name: str) -> list[str]:
        """Return the wires of the fires that clear a count (R5)."""
        return [
            self.find_fire_wire(owner.name, action.on)
            for owner, action in self.list_actions()
            if action.clears == (module_name, count_name)
        ]

    def write_move_condition(self, ref: Ref) -> str:
        """Return the condition that every beat on which a sample depends moves (R11)."""
        return join_and(mask_field(self.find_move_bit(stream)) for stream in self.graph.find_streams(ref))

    def list_action_registers(self, module: Module, action: Action) -> list[str]:
        """Return the registers of an action besides its output."""
        index = self.output_indices[module.name, action.output]
        return [f"{letter}{index}" for letter in KINDS[action.kind].list_register_suffixes(module, action)]

    @cached_property
    def sampled_streams(self) -> frozenset[PartOfModule]:
        """Streams of modules whose samples an action reads."""
        refs = (ref for _, action in self.list_actions() for ref in action.refs)
        return frozenset((ref.module, ref.name) for ref in refs if ref.module and self.graph.is_stream(ref))

    @cached_property
    def signals_read_by_stores(self) -> frozenset[tuple[str | None, str]]:
        """Flags and numbers of modules that a `store` reads by name, with their values before the clock edge."""
        refs = (
            ref for _, action in self.list_actions() if action.kind is ActionKind.STORE for ref in action.refs
        )
        signals = (ref for ref in refs if not is_formula_ref(ref) and not self.graph.is_stream(ref))
        return frozenset((ref.module, ref.name) for ref in signals if ref.module)

    def make_registers(self) -> dict[str, int]:
        """Return the value of every register after reset (R12)."""
        registers: dict[str, int] = {}
        for (_, count), index in zip(self.datapath.list_counts(), self._count_indices.values(), strict=True):
            if count.kind is CountKind.ACCUMULATE:
                registers[f"c{index}"] = 0
        registers |= {
            self.find_target_register(module.name, target.name): target.reset
            for module, target in self.datapath.list_targets()
        }
        for key, index in self.output_indices.items():
            registers |= dict.fromkeys(self._list_output_registers(key, index), 0)
        registers |= dict.fromkeys(self.list_buffer_registers(), 0)
        for word in range(self.ports.find_output("overshoot_o").word_count):
            registers |= {f"over{word}": 0, f"full{word}": 0}
        return registers

    def count_array_words(self) -> dict[str, int]:
        """Return the number of words of every array."""
        word_counts = {
            f"a{self.output_indices[key]}": KINDS[drivers[0][1].kind].count_array_words(drivers[0][1])
            for key, drivers in self.graph.drivers.items()
        }
        return {name: word_count for name, word_count in word_counts.items() if word_count}

    def _list_output_registers(self, output: PartOfModule, index: int) -> Iterator[str]:
        module, action = self.graph.drivers[output][0]
        if action.kind.drives is SignalKind.STREAM:
            yield f"v{index}"
            yield from self.list_beat_registers(output)
        else:
            yield f"r{index}"
        yield from self.list_action_registers(module, action)
