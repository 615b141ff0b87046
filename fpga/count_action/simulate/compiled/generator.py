"""Generator of the Python statements of one cycle, which the fast simulator compiles.

The statements are fully elaborated, with constants in place of parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fpga.count_action.actions import KINDS
from fpga.count_action.actions.kind import Lines, write_if
from fpga.count_action.model import Action, CountKind, Datapath, Module, Ref, Signal, SignalKind
from fpga.count_action.ports import WORD_BITS, split_buffer
from fpga.count_action.simulate.compiled.decisions import Decisions
from fpga.count_action.simulate.compiled.expressions import (
    Field,
    join_or,
    make_field,
    make_zeros,
    mask_field,
    pack,
    write_literal,
    write_number,
)
from fpga.count_action.simulate.compiled.names import Names


@dataclass(frozen=True)
class CycleProgram:
    """One cycle of a datapath. All variables are 64-bit signed integers; `Names` explains their names."""

    statements: tuple[str, ...]
    """The statements in order; an `if` statement has several lines. `count_ones(x)` is the number of ones in x."""
    registers: dict[str, int]
    """Variables that keep their values between cycles, with their values after reset."""
    arrays: dict[str, int]
    """Arrays with their lengths in words. The words are 0 at power-on, and keep their values through a reset."""
    input_columns: int
    """Number of columns of input rows."""
    output_columns: int
    """Number of columns of output rows."""


def make_program(datapath: Datapath) -> CycleProgram:
    """Return the statements of one cycle.

    Raise KeyError for a reference that names no signal, and ValueError if streams form a cycle.
    """
    names = Names(datapath)
    return CycleProgram(
        statements=(*Decisions(names).write_lines(), *Updates(names).write_lines()),
        registers=names.make_registers(),
        arrays=names.count_array_words(),
        input_columns=names.ports.input_columns,
        output_columns=names.ports.output_columns,
    )


@dataclass(frozen=True)
class Updates:
    """The second half of a cycle: new values of registers. Implements `actions.kind.Statements`.

    Statements overwrite registers, so their order matters. Memories and beats read flags, pulses and numbers. Memories
    and beats therefore change first. Beats may read each other, so copies (`..._before`) keep their old values.
    """

    names: Names

    def write_lines(self) -> Lines:
        """Yield the statements, in order."""
        for key in self.names.outputs:
            if key in self.names.sampled_streams:
                yield from (f"{word}_before = {word}" for word in self.names.list_beat_registers(key))
            if key in self.names.stored_signals:
                yield f"r{self.names.outputs[key]}_before = r{self.names.outputs[key]}"
        first_drivers = [self.names.graph.drivers[key][0] for key in self.names.outputs]
        for module, action in first_drivers:
            yield from KINDS[action.kind].collect(self, module, action)
        for module, action in first_drivers:
            if action.kind.drives is SignalKind.STREAM:
                yield from self._update_beat(module, action)
        for module, action in first_drivers:
            if action.kind.drives is not SignalKind.STREAM:
                yield from KINDS[action.kind].update(self, module, action)
                yield from self._clear_memory(module, action)
        yield from self._update_counts()
        yield from self._commit()
        yield from write_buffers(self.names)

    def _update_beat(self, module: Module, action: Action) -> Lines:
        """Yield the statements of a beat, which is sent when its count fires and waits until taken (R6, R7, R10)."""
        output_index, fire = self.names.outputs[module.name, action.output], self.write_fire(module, action)
        yield write_if(fire, KINDS[action.kind].update(self, module, action))
        yield from self._clear_memory(module, action)
        yield f"v{output_index} = {fire} | v{output_index} & (y{output_index} ^ 1)"

    def _clear_memory(self, module: Module, action: Action) -> Lines:
        """Yield the statements that set the memory of an action to 0 if its count is cleared (R5)."""
        clears = self.names.list_clear_wires(module.name, action.on)
        for name in self.names.list_action_registers(module, action) if clears else ():
            yield f"{name} = {name} & (({join_or(clears)}) - 1)"

    # ------------------------------------------------------------------ methods of `actions.kind.Statements`
    def write_fire(self, module: Module, action: Action) -> str:
        """Return the condition that the count of an action fires."""
        return self.names.find_fire_wire(module.name, action.on)

    def write_counting(self, module: Module, action: Action) -> str:
        """Return the condition that the count of an action is enabled and its module is not stalled."""
        return self.names.write_counting(module, module.count(action.on))

    def write_moves(self, ref: Ref) -> str:
        """Return the condition that every beat on which a sample depends moves (R7)."""
        return self.names.write_moves(ref)

    def find_register(self, module: Module, action: Action, letter: str = "r") -> str:
        """Return the name of a register or variable of an action; `r` holds a flag or a number."""
        return f"{letter}{self.names.outputs[module.name, action.output]}"

    def write_number(self, name: str, width: int, *, signed: bool) -> str:
        """Return the number in the lowest `width` bits of a variable."""
        return write_number(Field((name,), 0, width), signed=signed)

    def write_sample(self, ref: Ref, width: int | None = None, *, signed: bool | None = None) -> str:
        """Return the number in a sample. `width` and `signed` default to the sample's."""
        sample_signed = self.names.graph.find_source(ref).signed
        field = self.names.find_previous_field(ref) if width is None else self._fit_width(ref, width)
        return write_number(field, signed=sample_signed if signed is None else signed)

    def send(self, module: Module, action: Action, samples: Iterable[Ref | str]) -> Lines:
        """Yield the statements that put samples into an action's beat; a `str` is a variable of the action's width."""
        fields = (
            make_field(sample, action.width)
            if isinstance(sample, str)
            else self._fit_width(sample, action.width)
            for sample in samples
        )
        beat = self.names.list_beat_registers((module.name, action.output))
        return (f"{name} = {text}" for name, text in zip(beat, pack(fields), strict=True))

    def _fit_width(self, ref: Ref, width: int) -> Field:
        """Return a sample in `width` bits: truncated, or extended by its own sign."""
        sample = self.names.find_previous_field(ref)
        if sample.width >= width:
            return sample.slice_bits(0, width)
        if self.names.graph.find_source(ref).signed:
            return make_field(
                f"({write_number(sample, signed=True)} & {write_literal((1 << width) - 1)})", width
            )
        return make_field(mask_field(sample), width)

    # ------------------------------------------------------------------- counts, status, targets (R4 to R12)
    def _update_counts(self) -> Lines:
        overshoot_bits: list[Field] = []
        saturation_bits: list[Field] = []
        for module, count in self.names.datapath.list_counts():
            count_index = self.names.find_count_index(module.name, count.name)
            is_level = count.kind is CountKind.LEVEL
            overshoot_bits.append(make_zeros(1) if is_level else make_field(f"b{count_index}", 1))
            saturation_bits.append(make_zeros(1) if is_level else make_field(f"s{count_index}", 1))
            if not is_level:
                fires = [] if module.target(count.target).carry else [f"f{count_index}"]
                begins = join_or([*fires, *self.names.list_clear_wires(module.name, count.name)])
                saturated_value = (
                    f"(x{count_index} | -s{count_index}) & {write_literal((1 << count.width) - 1)}"
                )
                yield f"c{count_index} = {f'x{count_index}' if count.goes_down else saturated_value} & (({begins}) - 1)"
        yield f"keep = {mask_field(self.names.find_input_bit('clear_status_i'))} - 1"
        for register, bits in (("over", overshoot_bits), ("full", saturation_bits)):
            for word, events in enumerate(pack(bits)):
                yield f"{register}{word} = {events} | {register}{word} & keep"

    def _commit(self) -> Lines:
        low, words = 0, self.names.list_words(self.names.ports.find_input("target_shadow_i"))
        lines = []
        for module, target in self.names.datapath.list_targets():
            name = self.names.find_target_register(module.name, target.name)
            lines.append(f"{name} = {mask_field(Field(words, low, target.width))}")
            low += target.width
        if lines:
            yield write_if(mask_field(self.names.find_input_bit("commit_i")), lines)


def write_buffers(names: Names) -> Lines:
    """Yield the statements for all buffers. They come last, after all statements that read the buffers."""
    for signal in names.datapath.inputs:
        if signal.buffered:
            yield from _update_buffer(names, signal)


def _update_buffer(names: Names, signal: Signal) -> Lines:
    """Yield the statements for one buffer. `Names` explains its registers.

    For each stream, a bit is 1 in `bt` if a beat enters, in `bf` if it becomes the first, in `bs` if it becomes the
    second, and in `bu` if the second becomes the first.
    """
    valid = names.ports.find_input(f"{signal.name}_valid_i")
    ready_column = names.ports.find_output(f"{signal.name}_ready_o").column
    for word in range(valid.words):
        column = valid.column + word
        first_bits, second_bits = f"bv{column}", f"bw{column}"
        yield f"bt{column} = i{column} & o{ready_column + word}"
        yield f"bs{column} = bt{column} & {first_bits} & (g_{first_bits} ^ -1)"
        yield f"bu{column} = g_{first_bits} & {second_bits}"
        yield f"bf{column} = bt{column} & (bs{column} ^ -1)"
        yield f"{first_bits} = {first_bits} & (g_{first_bits} ^ -1) | {second_bits} | bt{column}"
        yield f"{second_bits} = {second_bits} & (g_{first_bits} ^ -1) | bs{column}"
    for name, width in split_buffer(names.datapath, signal):
        port = names.ports.find_input(name)
        for index in range(signal.size):
            yield from _update_element(port.column, valid.column, index, width)


def _update_element(data: int, valid: int, index: int, width: int) -> Lines:
    """Yield the statements that move the beats of one stream in its buffer."""
    word, bit = divmod(index, WORD_BITS)
    moves_up, fills_first, fills_second = (f"b{letter}{valid + word} >> {bit} & 1" for letter in "ufs")
    word_masks = list(_split_by_word(index * width, width))
    masks = {f"{data + word}": (write_literal(~mask), write_literal(mask)) for word, mask in word_masks}
    yield write_if(
        moves_up,
        [
            f"bh{column} = bh{column} & {clear_mask} | bn{column} & {mask}"
            for column, (clear_mask, mask) in masks.items()
        ],
    )
    yield write_if(
        fills_first,
        [
            f"bh{column} = bh{column} & {clear_mask} | i{column} & {mask}"
            for column, (clear_mask, mask) in masks.items()
        ],
    )
    yield write_if(
        fills_second,
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
