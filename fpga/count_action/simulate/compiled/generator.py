"""Generator of the Python statements of one cycle, which the fast simulator compiles.

The statements are fully elaborated, with constants in place of parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fpga.count_action.actions import KINDS
from fpga.count_action.actions.kind import Lines, write_if
from fpga.count_action.model import Action, CountKind, Datapath, Module, Ref, Signal, SignalKind
from fpga.count_action.ports import WORD_BITS, list_buffer_ports
from fpga.count_action.simulate.compiled.decisions import CombinationalStatements
from fpga.count_action.simulate.compiled.expressions import (
    BitField,
    join_or,
    make_field,
    make_zeros,
    mask_field,
    pack,
    write_literal,
    write_number,
)
from fpga.count_action.simulate.compiled.names import VariableNames


@dataclass(frozen=True)
class CycleProgram:
    """One cycle of a datapath. All variables are 64-bit signed integers; `VariableNames` explains their names."""

    statements: tuple[str, ...]
    """The statements in order; an `if` statement has several lines. `ones(x)` is the number of ones in x."""
    initial_registers: dict[str, int]
    """Variables that keep their values between cycles, with their values after reset."""
    array_word_counts: dict[str, int]
    """Arrays with their lengths in words. The words are 0 at power-on, and keep their values through a reset."""
    input_column_count: int
    """Number of columns of input rows."""
    output_column_count: int
    """Number of columns of output rows."""


def make_program(datapath: Datapath) -> CycleProgram:
    """Return the statements of one cycle.

    Raise KeyError for a reference that names no signal, and ValueError if streams form a cycle.
    """
    variables = VariableNames(datapath)
    return CycleProgram(
        statements=(
            *CombinationalStatements(variables).write_lines(),
            *RegisterStatements(variables).write_lines(),
        ),
        initial_registers=variables.make_registers(),
        array_word_counts=variables.count_array_words(),
        input_column_count=variables.ports.input_column_count,
        output_column_count=variables.ports.output_column_count,
    )


@dataclass(frozen=True)
class RegisterStatements:
    """The second half of a cycle: new values of registers. Implements `actions.kind.Statements`.

    Statements overwrite registers, so their order matters. Memories and beats read flags, pulses and numbers. Memories
    and beats therefore change first. Beats may read each other, so copies (`..._before`) keep their old values.
    """

    variables: VariableNames

    def write_lines(self) -> Lines:
        """Yield the statements, in order."""
        for key in self.variables.output_indices:
            if key in self.variables.sampled_streams:
                yield from (f"{word}_before = {word}" for word in self.variables.list_beat_registers(key))
            if key in self.variables.signals_read_by_stores:
                yield f"r{self.variables.output_indices[key]}_before = r{self.variables.output_indices[key]}"
        first_drivers = [self.variables.graph.drivers[key][0] for key in self.variables.output_indices]
        for module, action in first_drivers:
            yield from KINDS[action.kind].collect(self, module, action)
        for module, action in first_drivers:
            if action.kind.drives is SignalKind.STREAM:
                yield from self._update_beat(module, action)
        for module, action in first_drivers:
            if action.kind.drives is not SignalKind.STREAM:
                yield from KINDS[action.kind].update(self, module, action)
                yield from self._clear_action_state(module, action)
        yield from self._update_counts()
        yield from self._commit_targets()
        yield from write_buffers(self.variables)

    def _update_beat(self, module: Module, action: Action) -> Lines:
        """Yield the statements of a beat, which is sent when its count fires and waits until taken (R6, R7, R10)."""
        output_index, fire = (
            self.variables.output_indices[module.name, action.output],
            self.write_fire(module, action),
        )
        yield write_if(fire, KINDS[action.kind].update(self, module, action))
        yield from self._clear_action_state(module, action)
        yield f"v{output_index} = {fire} | v{output_index} & (y{output_index} ^ 1)"

    def _clear_action_state(self, module: Module, action: Action) -> Lines:
        """Yield the statements that set the memory of an action to 0 if its count is cleared (R5)."""
        clear_wires = self.variables.list_clear_wires(module.name, action.on)
        for name in self.variables.list_action_registers(module, action) if clear_wires else ():
            yield f"{name} = {name} & (({join_or(clear_wires)}) - 1)"

    # ------------------------------------------------------------------ methods of `actions.kind.Statements`
    def write_fire(self, module: Module, action: Action) -> str:
        """Return the condition that the count of an action fires."""
        return self.variables.find_fire_wire(module.name, action.on)

    def write_counting_condition(self, module: Module, action: Action) -> str:
        """Return the condition that the count of an action is enabled and its module is not stalled."""
        return self.variables.write_counting_condition(module, module.count(action.on))

    def write_move_condition(self, ref: Ref) -> str:
        """Return the condition that every beat on which a sample depends moves (R7)."""
        return self.variables.write_move_condition(ref)

    def find_register(self, module: Module, action: Action, letter: str = "r") -> str:
        """Return the name of a register or variable of an action; `r` holds a flag or a number."""
        return f"{letter}{self.variables.output_indices[module.name, action.output]}"

    def write_number(self, name: str, width: int, *, signed: bool) -> str:
        """Return the number in the lowest `width` bits of a variable."""
        return write_number(BitField((name,), 0, width), signed=signed)

    def write_sample(self, ref: Ref, width: int | None = None, *, signed: bool | None = None) -> str:
        """Return the number in a sample. `width` and `signed` default to the sample's."""
        sample_signed = self.variables.graph.find_source(ref).signed
        field = self.variables.find_previous_field(ref) if width is None else self._fit_width(ref, width)
        return write_number(field, signed=sample_signed if signed is None else signed)

    def write_beat(self, module: Module, action: Action, samples: Iterable[Ref | str]) -> Lines:
        """Yield the statements that put samples into an action's beat; a `str` is a variable of the action's width."""
        fields = (
            make_field(sample, action.width)
            if isinstance(sample, str)
            else self._fit_width(sample, action.width)
            for sample in samples
        )
        beat_registers = self.variables.list_beat_registers((module.name, action.output))
        return (f"{name} = {text}" for name, text in zip(beat_registers, pack(fields), strict=True))

    def _fit_width(self, ref: Ref, width: int) -> BitField:
        """Return a sample in `width` bits: truncated, or extended by its own sign."""
        sample = self.variables.find_previous_field(ref)
        if sample.width >= width:
            return sample.slice_bits(0, width)
        if self.variables.graph.find_source(ref).signed:
            return make_field(
                f"({write_number(sample, signed=True)} & {write_literal((1 << width) - 1)})", width
            )
        return make_field(mask_field(sample), width)

    # ------------------------------------------------------------------- counts, status, targets (R4 to R12)
    def _update_counts(self) -> Lines:
        overshoot_bits: list[BitField] = []
        saturation_bits: list[BitField] = []
        for module, count in self.variables.datapath.list_counts():
            count_index = self.variables.find_count_index(module.name, count.name)
            is_level = count.kind is CountKind.LEVEL
            overshoot_bits.append(make_zeros(1) if is_level else make_field(f"b{count_index}", 1))
            saturation_bits.append(make_zeros(1) if is_level else make_field(f"s{count_index}", 1))
            if not is_level:
                fire_wires = [] if module.target(count.target).carry else [f"f{count_index}"]
                restart_condition = join_or(
                    [*fire_wires, *self.variables.list_clear_wires(module.name, count.name)]
                )
                saturated_value = (
                    f"(x{count_index} | -s{count_index}) & {write_literal((1 << count.width) - 1)}"
                )
                yield (
                    f"c{count_index} = {f'x{count_index}' if count.goes_down else saturated_value} &"
                    f" (({restart_condition}) - 1)"
                )
        yield f"keep = {mask_field(self.variables.find_input_bit('clear_status_i'))} - 1"
        for register, bits in (("over", overshoot_bits), ("full", saturation_bits)):
            for word, events in enumerate(pack(bits)):
                yield f"{register}{word} = {events} | {register}{word} & keep"

    def _commit_targets(self) -> Lines:
        bit_position, words = 0, self.variables.list_words(self.variables.ports.find_input("target_shadow_i"))
        lines = []
        for module, target in self.variables.datapath.list_targets():
            name = self.variables.find_target_register(module.name, target.name)
            lines.append(f"{name} = {mask_field(BitField(words, bit_position, target.width))}")
            bit_position += target.width
        if lines:
            yield write_if(mask_field(self.variables.find_input_bit("commit_i")), lines)


def write_buffers(variables: VariableNames) -> Lines:
    """Yield the statements for all buffers. They come last, after all statements that read the buffers."""
    for signal in variables.datapath.inputs:
        if signal.buffered:
            yield from _update_buffer(variables, signal)


def _update_buffer(variables: VariableNames, signal: Signal) -> Lines:
    """Yield the statements for one buffer. `VariableNames` explains its registers.

    For each stream, a bit is 1 in `bt` if a beat enters, in `bf` if it becomes the first, in `bs` if it becomes the
    second, and in `bu` if the second becomes the first.
    """
    valid = variables.ports.find_input(f"{signal.name}_valid_i")
    ready_column = variables.ports.find_output(f"{signal.name}_ready_o").column
    for word in range(valid.word_count):
        column = valid.column + word
        first_bits, second_bits = f"bv{column}", f"bw{column}"
        yield f"bt{column} = i{column} & o{ready_column + word}"
        yield f"bs{column} = bt{column} & {first_bits} & (g_{first_bits} ^ -1)"
        yield f"bu{column} = g_{first_bits} & {second_bits}"
        yield f"bf{column} = bt{column} & (bs{column} ^ -1)"
        yield f"{first_bits} = {first_bits} & (g_{first_bits} ^ -1) | {second_bits} | bt{column}"
        yield f"{second_bits} = {second_bits} & (g_{first_bits} ^ -1) | bs{column}"
    for name, width in list_buffer_ports(variables.datapath, signal):
        port = variables.ports.find_input(name)
        for index in range(signal.size):
            yield from _update_element(port.column, valid.column, index, width)


def _update_element(data_column: int, valid_column: int, index: int, width: int) -> Lines:
    """Yield the statements that move the beats of one stream in its buffer."""
    word, bit = divmod(index, WORD_BITS)
    move_up_bit, fill_first_bit, fill_second_bit = (
        f"b{letter}{valid_column + word} >> {bit} & 1" for letter in "ufs"
    )
    word_masks = list(_split_by_word(index * width, width))
    masks = {
        f"{data_column + word}": (write_literal(~mask), write_literal(mask)) for word, mask in word_masks
    }
    yield write_if(
        move_up_bit,
        [
            f"bh{column} = bh{column} & {clear_mask} | bn{column} & {mask}"
            for column, (clear_mask, mask) in masks.items()
        ],
    )
    yield write_if(
        fill_first_bit,
        [
            f"bh{column} = bh{column} & {clear_mask} | i{column} & {mask}"
            for column, (clear_mask, mask) in masks.items()
        ],
    )
    yield write_if(
        fill_second_bit,
        [
            f"bn{column} = bn{column} & {clear_mask} | i{column} & {mask}"
            for column, (clear_mask, mask) in masks.items()
        ],
    )


def _split_by_word(low: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield the words that a range of bits covers, each with the mask of those bits in it."""
    for word in range(low // WORD_BITS, (low + width - 1) // WORD_BITS + 1):
        begin = max(low - word * WORD_BITS, 0)
        end = min(low + width - word * WORD_BITS, WORD_BITS)
        yield word, (1 << end) - (1 << begin)
