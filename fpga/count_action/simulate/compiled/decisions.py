"""Statements for the combinational part of a cycle: stalls, moving beats, fires and outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fpga.count_action.actions.kind import Lines, write_if
from fpga.count_action.expressions import get_constant, get_slice_width
from fpga.count_action.graph import get_stream_key
from fpga.count_action.model import (
    FORMULA_PREFIX,
    Count,
    CountKind,
    Module,
    Operand,
    Ref,
    Signal,
    SignalKind,
)
from fpga.count_action.ports import WORD_BITS
from fpga.count_action.simulate.bit_slices import sort_by_stalls
from fpga.count_action.simulate.compiled.expressions import (
    BitField,
    count_ones,
    join_and,
    join_or,
    make_field,
    make_zeros,
    mask_field,
    pack,
    pack_bits,
    write_bit_mask,
    write_literal,
    write_number,
)
from fpga.count_action.simulate.compiled.names import VariableNames


@dataclass(frozen=True)
class CombinationalStatements:
    """The first half of a cycle: wires and outputs. No register changes.

    Names in the generated code begin with one of these letters. A name follows, or the number of the count or output:

    | letter | value |
    |---|---|
    | `c` | register of a count |
    | `e` | 1 if the conditions of a count hold |
    | `p` | increment of a count in this cycle |
    | `x` | count plus increment, then the new value of the count |
    | `l` | bound of a count that goes up and down |
    | `f` | 1 if a count fires |
    | `b` | 1 if a count overshoots its target |
    | `s` | 1 if a count saturates |
    | `v`, `y`, `g` | 1 if the beat of a stream is valid, is ready, or moves |
    | `r` | register of an output |
    | `o` | word of the output row |
    """

    variables: VariableNames

    def write_lines(self) -> Lines:
        """Yield the statements, in order."""
        datapath = self.variables.datapath
        for module in datapath.modules:
            for index in range(len(module.values)):
                yield from write_formulas(self.variables, Ref(f"{FORMULA_PREFIX}{index}", module.name))
        for module, count in datapath.list_counts():
            if count.gate:
                conditions = [
                    self._write_condition(condition.ref, negated=condition.negated)
                    for condition in count.gate
                ]
                yield f"e{self.variables.find_count_index(module.name, count.name)} = {join_and(conditions)}"
        # Level counts come before accumulating ones: whether a beat moves depends on the fires of its takers.
        for module in sort_by_stalls(self.variables.graph):
            yield from self._assign_stall(module)
            for count in module.counts:
                if count.kind is CountKind.LEVEL:
                    index, target = self._find_index_and_target(module, count)
                    yield f"x{index} = {self._write_increment(count)}"
                    reached_condition, counting_condition = (
                        self._write_reached_condition(module, count),
                        self.variables.write_counting_condition(module, count),
                    )
                    rivals = self.variables.graph.find_rivals(module, count)
                    free_condition = join_and(
                        [
                            counting_condition,
                            *(
                                f"({self.variables.find_fire_wire(module.name, rival.name)} ^ 1)"
                                for rival in rivals
                            ),
                        ]
                    )
                    yield f"f{index} = {reached_condition} & ({target} != 0) & {free_condition}"
        for signal in datapath.inputs:
            if signal.kind is SignalKind.STREAM:
                yield from self._assign_input_stream(signal)
        for module, count in datapath.list_counts():
            if count.kind is CountKind.ACCUMULATE:
                yield from self._assign_accumulating_count(module, count)
        yield from self._assign_outputs()

    def _write_condition(self, ref: Ref, *, negated: bool) -> str:
        bits = (
            self.variables.find_valid_bit(ref)
            if self.variables.graph.is_stream(ref)
            else self.variables.find_field(ref)
        )
        return f"({mask_field(bits)} {'==' if negated else '!='} 0)"

    # ----------------------------------------------------------------------------------- streams (R7)
    def _assign_stall(self, module: Module) -> Lines:
        """Yield the statements for the ready bits of a module's streams, and for its stall."""
        waiting_beats = []
        for action in module.list_streams():
            index = self.variables.output_indices[module.name, action.output]
            yield f"y{index} = {self._write_ready_condition(module.name, action.output)}"
            yield f"g{index} = v{index} & y{index}"
            waiting_beats.append(f"v{index} & (y{index} ^ 1)")
        if waiting_beats:
            yield f"{self.variables.write_no_stall_condition(module)} = ({join_or(waiting_beats)}) ^ 1"

    def _write_ready_condition(self, module_name: str, output: str) -> str:
        if (module_name, output) in self.variables.consumed_streams:
            return self._write_consumers_ready(Ref(output, module_name))
        return mask_field(self.variables.find_input_bit(f"{module_name}_{output}_ready_i"))

    def _write_consumers_ready(self, ref: Ref) -> str:
        """Return the condition that the takers of a stream are ready: one level count fires, or no module stalls."""
        consumers = self.variables.graph.consumers.get(get_stream_key(ref), ())
        level_consumers = [
            join_and(
                [
                    self.variables.find_fire_wire(module.name, count.name),
                    *self.variables.find_pick(count, ref),
                ]
            )
            for module, count in consumers
            if count.kind is CountKind.LEVEL
        ]
        return (
            join_or(level_consumers)
            if level_consumers
            else join_and(self.variables.write_no_stall_condition(module) for module, _ in consumers)
        )

    def _assign_input_stream(self, signal: Signal) -> Lines:
        """Yield the statements for the ready bits of an input, and for its moving beats."""
        output_column = self.variables.ports.find_output(f"{signal.name}_ready_o").column
        valid_words = self.variables.list_words(self.variables.ports.find_input(f"{signal.name}_valid_i"))
        for word_index, name in enumerate(valid_words):
            indices = range(word_index * WORD_BITS, min(signal.size, (word_index + 1) * WORD_BITS))
            ready_name = f"y_{name}" if signal.buffered else f"o{output_column + word_index}"
            ready_bits = (self._write_consumers_ready(Ref(signal.name, index=index)) for index in indices)
            yield f"{ready_name} = {pack_bits(ready_bits)}"
            yield f"g_{name} = {name} & {ready_name}"
            if signal.buffered:
                all_ones_mask = write_literal((1 << len(indices)) - 1)
                yield f"o{output_column + word_index} = bw{name.removeprefix('bv')} ^ {all_ones_mask}"

    # ------------------------------------------------------------------------ counts (R1 to R4, R10)
    def _assign_accumulating_count(self, module: Module, count: Count) -> Lines:
        index, target = self._find_index_and_target(module, count)
        enable_condition, increment = (
            self.variables.write_counting_condition(module, count),
            self._write_increment(count),
        )
        yield (
            f"p{index} = {increment}"
            if enable_condition == "1"
            else f"p{index} = ({increment}) & {write_bit_mask(enable_condition)}"
        )
        yield f"x{index} = c{index} + p{index}"
        target_settings, max_value = module.target(count.target), (1 << count.width) - 1
        if count.goes_down:
            yield from self._assign_bounded_count(module, count)
            return
        if not target_settings.at_least:
            yield f"f{index} = (x{index} == {target}) & (p{index} != 0)"
            yield f"b{index} = (x{index} > {target}) & ({target} != 0) & (p{index} != 0)"
        else:
            yield f"f{index} = {self._write_reached_condition(module, count)} & ({target} != 0) & (p{index} != 0)"
            yield f"b{index} = 0"
        if target_settings.carry:
            yield f"x{index} = x{index} - ({target} & -f{index})"
            yield f"s{index} = (x{index} > {max_value}) & 1"
        else:
            yield f"s{index} = (x{index} > {max_value}) & (f{index} ^ 1)"

    def _assign_bounded_count(self, module: Module, count: Count) -> Lines:
        """Yield the statements for a count between bounds (R17); `x` becomes the new value of the count."""
        index, target = self._find_index_and_target(module, count)
        target_settings, max_value = module.target(count.target), (1 << count.width) - 1
        change_condition, limit = f"(p{index} != 0)", f"l{index}"
        yield f"{limit} = {max_value}"
        if count.bound is not None:
            bound_value = self.variables.find_value(count.bound)
            yield write_if(f"{limit} > {bound_value}", [f"{limit} = {bound_value}"])
        yield f"f{index} = {self._write_reached_condition(module, count)} & ({target} != 0) & {change_condition}"
        yield f"b{index} = (x{index} > {target}) & ({target} != 0) & {change_condition} & (f{index} ^ 1)"
        yield f"x{index} = x{index} - ({f'{target} & ' if target_settings.carry else f'x{index} & '}-(f{index} & 1))"
        yield f"s{index} = ((x{index} > {limit}) | (0 > x{index})) & {change_condition}"
        yield write_if(f"(x{index} > {limit}) & {change_condition}", [f"x{index} = {limit}"])
        yield write_if(f"0 > x{index}", [f"x{index} = 0"])

    def _write_reached_condition(self, module: Module, count: Count) -> str:
        index, target = self._find_index_and_target(module, count)
        if module.target(count.target).at_least:
            return f"(({target} > x{index}) ^ 1)"
        return f"(x{index} == {target})"

    def _find_index_and_target(self, module: Module, count: Count) -> tuple[int, str]:
        target_formula = self.variables.find_value(count.aim) if count.aim else ""
        return self.variables.find_count_index(
            module.name, count.name
        ), target_formula or self.variables.find_target_register(module.name, count.target)

    def _write_increment(self, count: Count) -> str:
        """Return the increment of a count: the terms added minus the terms subtracted."""
        added_terms = [str(count.constant)] if count.constant else []
        added_terms += self._write_terms(count, count.terms)
        subtracted_terms = self._write_terms(count, count.taken)
        text = " + ".join(added_terms) or "0"
        return f"{text} - ({' + '.join(subtracted_terms)})" if subtracted_terms else text

    def _write_terms(self, count: Count, refs: tuple[Ref, ...]) -> list[str]:
        """Return the expressions of terms; different bits of one word are counted together."""
        parts: list[str] = []
        mask_by_word: dict[str, int] = {}
        for term in (self._find_term_field(count, ref) for ref in refs):
            word_index, shift = divmod(term.low, WORD_BITS)
            name = term.words[word_index]
            if term.width > 1 or term.is_word or mask_by_word.get(name, 0) >> shift & 1:
                parts.append(mask_field(term))
            else:
                mask_by_word[name] = mask_by_word.get(name, 0) | 1 << shift
        return parts + [count_ones(name, mask) for name, mask in mask_by_word.items()]

    def _find_term_field(self, count: Count, ref: Ref) -> BitField:
        """Return the value of a term: level counts add waiting beats, accumulating counts add moving beats."""
        if not self.variables.graph.is_stream(ref):
            return self.variables.find_field(ref)
        if count.kind is not CountKind.LEVEL:
            return self.variables.find_move_bit(ref)
        valid = self.variables.find_valid_bit(ref)
        pick_wires = self.variables.find_pick(count, ref)
        return make_field(f"({join_and([mask_field(valid), *pick_wires])})", 1) if pick_wires else valid

    # --------------------------------------------------------------------------------------- outputs
    def _assign_outputs(self) -> Lines:
        for key, index in self.variables.output_indices.items():
            name = f"{key[0]}_{key[1]}"
            if self.variables.find_driver(key).kind.drives is SignalKind.STREAM:
                yield from self._assign_port(f"{name}_valid_o", [f"v{index}"])
                yield from self._assign_port(f"{name}_data_o", self.variables.list_beat_registers(key))
            else:
                yield from self._assign_port(f"{name}_o", [f"r{index}"])
        counts = list(self.variables.datapath.list_counts())
        fires = [
            make_field(self.variables.find_fire_wire(module.name, count.name), 1) for module, count in counts
        ]
        yield from self._assign_port("fire_o", pack(fires))
        yield from self._assign_port(
            "count_o", pack(self._find_register_field(module, count) for module, count in counts)
        )
        for name, register in (("overshoot_o", "over"), ("saturated_o", "full")):
            words = range(self.variables.ports.find_output(name).word_count)
            yield from self._assign_port(name, [f"{register}{word}" for word in words])

    def _find_register_field(self, module: Module, count: Count) -> BitField:
        if count.kind is CountKind.LEVEL:
            return make_zeros(count.width)
        return make_field(f"c{self.variables.find_count_index(module.name, count.name)}", count.width)

    def _assign_port(self, name: str, words: list[str] | tuple[str, ...]) -> Lines:
        column = self.variables.ports.find_output(name).column
        return (f"o{column + word} = {text}" for word, text in enumerate(words))


def write_formulas(variables: VariableNames, ref: Ref) -> Iterator[str]:
    """Yield the statements for a formula. Its wire is wide enough for every value."""
    writer = _FormulaWriter(variables, variables.find_value(ref))
    value = writer.write_operand(variables.graph.find_formula(ref))
    yield from writer.lines
    shape = variables.graph.find_source(ref)
    yield f"{variables.find_value(ref)} = {value} & {write_literal((1 << shape.width) - 1)}"


@dataclass
class _FormulaWriter:
    variables: VariableNames
    prefix: str
    lines: list[str] = field(default_factory=list)
    _variable_count: int = 0

    def write_operand(self, operand: Operand) -> str:
        """Return the name of the variable that holds the value of an operand."""
        if isinstance(operand, int):
            return self._assign_variable(str(operand))
        if isinstance(operand, Ref):
            is_signed = self.variables.graph.find_source(operand).signed
            return self._assign_variable(
                write_number(self.variables.find_current_field(operand), signed=is_signed)
            )
        first_operand = operand.operands[0]
        if isinstance(first_operand, Ref) and operand.operator == "valid":
            return self._assign_variable(mask_field(self.variables.find_valid_bit(first_operand)))
        if isinstance(first_operand, Ref) and operand.operator == "count":
            return self._assign_variable(
                self.variables.find_count_register(first_operand.module or "", first_operand.name)
            )
        if isinstance(first_operand, Ref) and operand.operator == "target":
            return self._assign_variable(
                self.variables.find_target_register(first_operand.module or "", first_operand.name)
            )
        operator = operand.operator
        if operator in {"<<", ">>", "slice"}:
            value, *bit_numbers = operand.operands
            return self._assign_variable(
                _select_bits(operator, self.write_operand(value), *map(get_constant, bit_numbers))
            )
        parts = [self.write_operand(part) for part in operand.operands]
        if operator == "concat":
            widths = [get_slice_width(part) for part in operand.operands]
            shifts = [sum(widths[index + 1 :]) for index in range(len(widths))]
            return self._assign_variable(
                " | ".join(f"{part} << {shift}" for part, shift in zip(parts, shifts, strict=True))
            )
        if operator in {"max", "min"}:
            result = self._assign_variable(parts[0])
            for part in parts[1:]:
                relation = f"{part} > {result}" if operator == "max" else f"{result} > {part}"
                self.lines.append(write_if(relation, [f"{result} = {part}"]))
            return result
        if operator == "if":
            result = self._assign_variable(parts[2])
            self.lines.append(write_if(f"{parts[0]} != 0", [f"{result} = {parts[1]}"]))
            return result
        if operator == "table":
            result = self._assign_variable("0")
            for index, part in enumerate(parts[1:]):
                self.lines.append(write_if(f"{parts[0]} == {index}", [f"{result} = {part}"]))
            return result
        if operator in {"and", "or"}:
            bits = [f"({part} != 0)" for part in parts]
            return self._assign_variable(join_or(bits) if operator == "or" else " & ".join(bits))
        return self._assign_variable(_OPERATOR_FORMATS[operator].format(*parts))

    def _assign_variable(self, text: str) -> str:
        self._variable_count += 1
        name = f"{self.prefix}_{self._variable_count}"
        self.lines.append(f"{name} = {text}")
        return name


def _select_bits(operator: str, value: str, highest: int, lowest: int = 0) -> str:
    """Return the expression of a shift, or of a slice from bit `highest` down to bit `lowest`."""
    if operator == "slice":
        return f"{value} >> {lowest} & {write_literal((1 << highest - lowest + 1) - 1)}"
    return f"{value} {operator} {highest}"


_OPERATOR_FORMATS = {
    "+": "{} + {}",
    "-": "{} - {}",
    "==": "({} == {}) & 1",
    "!=": "({} != {}) & 1",
    ">": "({} > {}) & 1",
    "<": "({1} > {0}) & 1",
    ">=": "({1} > {0}) ^ 1",
    "<=": "({} > {}) ^ 1",
    "not": "({} == 0) & 1",
}
