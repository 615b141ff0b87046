"""The rules R1, R2, R5, R7, R10 and R11 for a datapath, as expressions over the ports of its top.

They are derived from the model and the ports alone. The proof verifies the generator of the top, so this
module does not use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

from fpga.count_action.actions.proof import FALSE, TRUE
from fpga.count_action.model import (
    FORMULA_PREFIX,
    Action,
    Count,
    CountKind,
    Datapath,
    Module,
    Operand,
    Operation,
    Ref,
    SignalKind,
    is_formula_ref,
)
from fpga.count_action.ports import Ports, make_ports

INCREMENT_WIDTH = 48
"""Bits of an increment in the checks; an increment fits in its count (R10)."""
FORMULA_WIDTH = 64
"""Bits of every part of a formula in the checks; more than any formula needs."""


@dataclass(frozen=True, slots=True)
class PortSlice:
    """`width` bits of a port, from bit `low` on, and whether they are a signed number."""

    port: str
    low: int = 0
    width: int = 1
    signed: bool = False

    def __str__(self) -> str:
        return f"{self.port}[{self.low}+:{self.width}]"

    def resize(self, width: int) -> str:
        """Return the same number in `width` bits: extended by its own sign, or truncated (R10)."""
        if self.width >= width:
            return str(PortSlice(self.port, self.low, width))
        sign = f"{self.port}[{self.low + self.width - 1}]" if self.signed else FALSE
        return f"{{{{{width - self.width}{{{sign}}}}}, {self}}}"


@dataclass(frozen=True)
class PortExpressions:
    """Expressions for a datapath. `write_shared_lines` declares `stall_MODULE` and `ready_MODULE_STREAM`."""

    datapath: Datapath

    @cached_property
    def ports(self) -> Ports:
        """The ports of the top."""
        return make_ports(self.datapath)

    @cached_property
    def _indices(self) -> dict[tuple[str, str], int]:
        counts = enumerate(self.datapath.list_counts())
        return {(module.name, count.name): index for index, (module, count) in counts}

    def write_shared_lines(self) -> Iterator[str]:
        """Yield the lines for the stall of each module and the ready bits of its output streams (R7)."""
        streams = [(module, action) for module in self.datapath.modules for action in module.list_streams()]
        consumed_streams = self.datapath.consumed
        yield from _write_function("larger", "second > first ? second : first")
        yield from _write_function("smaller", "second < first ? second : first")
        for module in self.datapath.modules:
            yield f"logic stall_{module.name};"
            yield from self.formulas.write_lines(module)
        for module, action in streams:
            name = f"{module.name}_{action.output}"
            is_internal = (module.name, action.output) in consumed_streams
            yield f"logic ready_{name};"
            ready_condition = (
                self.write_ready_condition(Ref(action.output, module.name))
                if is_internal
                else f"{name}_ready_i[0]"
            )
            yield f"assign ready_{name} = {ready_condition};"
        for module in self.datapath.modules:
            names = [f"{module.name}_{action.output}" for action in module.list_streams()]
            waiting_beats = [f"({name}_valid_o[0] && !ready_{name})" for name in names]
            yield f"assign stall_{module.name} = {' || '.join(waiting_beats) or FALSE};"

    # ---- References

    @cached_property
    def formulas(self) -> Formulas:
        """The formulas of the modules, independent of the formulas in the generated top."""
        return Formulas(self)

    def is_stream(self, ref: Ref) -> bool:
        """Return whether a reference is a stream."""
        if is_formula_ref(ref):
            return False
        if ref.module is None:
            return self.datapath.input(ref.name).kind is SignalKind.STREAM
        return self._find_driver(ref).kind.drives is SignalKind.STREAM

    def _find_driver(self, ref: Ref) -> Action:
        actions = self.datapath.module(ref.module or "").actions
        return next(action for action in actions if action.output == ref.name)

    def _write_port(self, ref: Ref, suffix: str) -> str:
        if ref.module is None and ref.name in self.buffered_inputs:
            return f"\\dut.{ref.name}{suffix}_held "
        return f"{ref.name}{suffix}_i" if ref.module is None else f"{ref.module}_{ref.name}{suffix}_o"

    @cached_property
    def buffered_inputs(self) -> frozenset[str]:
        """Inputs with a buffer (R20)."""
        streams = {signal.name for signal in self.datapath.inputs if signal.buffered}
        return frozenset(
            signal.name for signal in self.datapath.inputs if {signal.name, signal.part_of} & streams
        )

    def write_valid_bit(self, ref: Ref) -> str:
        """Return the condition that a stream has a beat."""
        return f"{self._write_port(ref, '_valid')}[{ref.index}]"

    def write_move_condition(self, ref: Ref) -> str:
        """Return the condition that a beat of a stream moves in this cycle."""
        return f"({self.write_valid_bit(ref)} && {self.write_ready_bit(ref)})"

    def write_ready_bit(self, ref: Ref) -> str:
        """Return the ready bit of a stream at the ports of the top, which tells whether all takers are ready."""
        if ref.module is not None:
            return f"ready_{ref.module}_{ref.name}"
        wire = f"\\dut.{ref.name}_ready_held " if ref.name in self.buffered_inputs else f"{ref.name}_ready_o"
        return f"{wire}[{ref.index}]"

    def find_sample_bits(self, ref: Ref) -> PortSlice:
        """Return the bits of a sample, a flag, a number or a formula."""
        if is_formula_ref(ref):
            return PortSlice(self.formulas.name_wire(ref), 0, FORMULA_WIDTH, signed=True)
        if ref.module is None:
            signal = self.datapath.input(ref.name)
            lanes, width, signed = signal.lanes, signal.width, signal.signed
        else:
            action = self._find_driver(ref)
            lanes, width, signed = 0, action.width, action.signed
        if not self.is_stream(ref):
            return PortSlice(self._write_port(ref, ""), ref.index * width, width)
        return PortSlice(
            self._write_port(ref, "_data"), (ref.index * lanes + ref.lane) * width, width, signed
        )

    def resize_sample(self, ref: Ref, width: int) -> str:
        """Return a sample in `width` bits: extended by its own sign, or truncated (R10)."""
        return self.find_sample_bits(ref).resize(width)

    # ---- Counts

    def get_index(self, module: Module, count: str) -> int:
        """Return the index of the bit of a count in `fire_o` and in the status outputs."""
        return self._indices[module.name, count]

    def find_count_bits(self, module: Module, count: Count) -> PortSlice:
        """Return the bits of a count in `count_o`."""
        earlier_counts = list(self.datapath.list_counts())[: self.get_index(module, count.name)]
        return PortSlice(
            "count_o", sum(earlier_count.width for _, earlier_count in earlier_counts), count.width
        )

    def find_target_bits(self, module: Module, name: str) -> PortSlice:
        """Return the bits of a target in force. Raise KeyError if there is no such target."""
        low = 0
        for owner, target in self.datapath.list_targets():
            if (owner.name, target.name) == (module.name, name):
                return PortSlice("\\dut.target ", low, target.width)
            low += target.width
        raise KeyError(f"module {module.name!r} has no target {name!r}")

    def find_limit_bits(self, module: Module, count: Count) -> PortSlice:
        """Return the value that a count has to reach: a target in force, or a formula of targets."""
        if count.aim is None:
            return self.find_target_bits(module, count.target)
        return PortSlice(self.formulas.name_wire(count.aim), 0, FORMULA_WIDTH)

    def write_fire(self, module: Module, count_name: str) -> str:
        """Return the port bit that is 1 if a count fires; the checks of that count verify it."""
        return f"fire_o[{self.get_index(module, count_name)}]"

    def write_any_fire(self, module: Module, actions: Iterable[Action]) -> str:
        """Return the condition that the count of any of the actions fires."""
        return " || ".join(self.write_fire(module, action.on) for action in actions) or FALSE

    def find_beat_width(self, module: Module, action: Action) -> int:
        """Return the number of bits of a beat."""
        return self.ports.find_output(f"{module.name}_{action.output}_data_o").width

    def write_ready_condition(self, stream: Ref) -> str:
        """Return the condition that the takers of a stream are ready.

        One of the level counts fires (R26); if there are none, no module of another taker stalls (R7).
        """
        consumers = self._find_consumers(stream)
        if any(count.kind is CountKind.LEVEL for _, count in consumers):
            return f"({self._write_consumed_condition(consumers, stream)})"
        return " && ".join(dict.fromkeys(f"!stall_{module.name}" for module, _ in consumers)) or TRUE

    def write_other_consumer_condition(self, count: Count, stream: Ref) -> str:
        """Return the condition that a level count other than this one takes a stream (R26)."""
        return self._write_consumed_condition(
            [taker for taker in self._find_consumers(stream) if taker[1] is not count], stream
        )

    def _find_consumers(self, stream: Ref) -> list[tuple[Module, Count]]:
        return [
            (module, count)
            for module, count in self.datapath.list_counts()
            if any(_is_same_stream(term, stream) for term in count.counted)
        ]

    def _write_consumed_condition(self, consumers: Iterable[tuple[Module, Count]], stream: Ref) -> str:
        """Return the condition that one of the level counts among these takers fires and takes a stream."""
        fire_conditions = (
            f"({self.write_fire(module, count.name)}{self._write_selection(count, stream)})"
            for module, count in consumers
            if count.kind is CountKind.LEVEL
        )
        return " || ".join(fire_conditions) or FALSE

    def write_enable_condition(self, count: Count) -> str:
        """Return the condition that a count is enabled."""
        conditions = []
        for condition in count.gate:
            ref = condition.ref
            condition_text = (
                self.write_valid_bit(ref) if self.is_stream(ref) else f"({self.find_sample_bits(ref)} != 0)"
            )
            conditions.append(f"!{condition_text}" if condition.negated else condition_text)
        return " && ".join(conditions) or TRUE

    def write_increment(self, count: Count, *, is_decrement: bool = False) -> str:
        """Return the increment of a count: a level count adds valid bits, an accumulating count moving beats (R7).

        With `is_decrement` it is the decrement (R17).
        """
        write_stream_bit = (
            self.write_valid_bit if count.kind is CountKind.LEVEL else self.write_move_condition
        )
        refs = count.taken if is_decrement else count.terms
        terms = [
            f"({write_stream_bit(ref)}{self._write_selection(count, ref)})"
            if self.is_stream(ref)
            else str(self.find_sample_bits(ref))
            for ref in refs
        ]
        constant = max(-count.constant if is_decrement else count.constant, 0)
        return " + ".join([f"{INCREMENT_WIDTH}'d{constant}", *terms])

    def _write_selection(self, count: Count, stream: Ref) -> str:
        """Return ` && CONDITION` for the selection of a stream by an arbitrating count (R19), or an empty text."""
        picks = zip(count.terms, count.picks, strict=False)
        wires = [self.formulas.name_wire(pick) for term, pick in picks if _is_same_stream(term, stream)]
        return "".join(f" && ({wire} != 0)" for wire in wires)

    def write_no_earlier_fire_condition(self, module: Module, count: Count) -> str:
        """Return the condition that no earlier level count that shares a stream with this one fires (R26)."""
        earlier_counts = module.counts[: module.counts.index(count)] if count.kind is CountKind.LEVEL else ()
        no_fire_conditions = [
            f"!{self.write_fire(module, earlier_count.name)}"
            for earlier_count in earlier_counts
            if earlier_count.kind is CountKind.LEVEL
            and any(
                self.is_stream(counted_ref) and _is_same_stream(counted_ref, term)
                for counted_ref in earlier_count.counted
                for term in count.counted
            )
        ]
        return " && ".join(no_fire_conditions) or TRUE

    def write_bound(self, count: Count) -> str:
        """Return the upper bound of a count: its formula, or the largest value of its register (R17)."""
        if count.bound is None:
            return f"{FORMULA_WIDTH}'d{(1 << count.width) - 1}"
        return str(PortSlice(self.formulas.name_wire(count.bound), 0, FORMULA_WIDTH))

    def write_clear(self, module: Module, count: Count) -> str:
        """Return the condition that an action clears the count (R5)."""
        fire_conditions = (
            self.write_fire(acting_module, action.on)
            for acting_module in self.datapath.modules
            for action in acting_module.actions
            if action.clears == (module.name, count.name)
        )
        return " || ".join(fire_conditions) or FALSE

    def write_counted_condition(self, module: Module, count: Count, ref: Ref) -> str:
        """Return the condition that a sample is counted in this cycle (R11)."""
        streams = self.formulas.find_streams(ref) if is_formula_ref(ref) else [ref] * self.is_stream(ref)
        counting_condition = f"!stall_{module.name} && ({self.write_enable_condition(count)})"
        return " && ".join([counting_condition, *map(self.write_move_condition, streams)])


def _is_same_stream(left: Ref, right: Ref) -> bool:
    return (left.module, left.name, left.index) == (right.module, right.name, right.index)


class Formulas:
    """Formulas (R13) of the modules of a datapath, as nested signed expressions of 64 bits."""

    def __init__(self, expressions: PortExpressions) -> None:
        self._expressions = expressions

    def name_wire(self, ref: Ref) -> str:
        """Return the wire of a formula."""
        return f"formula_{ref.module}_{ref.name.removeprefix(FORMULA_PREFIX)}"

    def write_lines(self, module: Module) -> Iterator[str]:
        """Yield the lines of the formulas of a module, each with its wire."""
        for index, operand in enumerate(module.values):
            wire = self.name_wire(Ref(f"{FORMULA_PREFIX}{index}", module.name))
            yield f"logic signed [{FORMULA_WIDTH - 1}:0] {wire};"
            yield f"assign {wire} = {self.write_operand(operand)};"

    def find_streams(self, ref: Ref) -> list[Ref]:
        """Return the streams whose samples a formula reads."""
        module = self._expressions.datapath.module(ref.module or "")
        operand_refs = self._find_samples(module.values[int(ref.name.removeprefix(FORMULA_PREFIX))])
        return [operand_ref for operand_ref in operand_refs if self._expressions.is_stream(operand_ref)]

    def _find_samples(self, operand: Operand) -> Iterator[Ref]:
        if isinstance(operand, Ref):
            yield operand
        elif isinstance(operand, Operation) and operand.operator not in {"valid", "count", "target"}:
            for part in operand.operands:
                yield from self._find_samples(part)

    def write_operand(self, operand: Operand) -> str:
        """Return the signed expression of an operand, in `FORMULA_WIDTH` bits."""
        if isinstance(operand, int):
            return f"{FORMULA_WIDTH}'sd{operand}"
        if isinstance(operand, Ref):
            return f"$signed({self._expressions.find_sample_bits(operand).resize(FORMULA_WIDTH)})"
        first_operand = operand.operands[0]
        if isinstance(first_operand, Ref) and operand.operator in {"valid", "count", "target"}:
            return f"$signed({self._write_stored_value(operand.operator, first_operand)})"
        if operand.operator in {"<<", ">>", "slice", "concat"}:
            return self._write_bits(operand)
        parts = [self.write_operand(part) for part in operand.operands]
        if operand.operator == "table":
            entries = ((f"{parts[0]} == {entry_index}", entry) for entry_index, entry in enumerate(parts[1:]))
            return (
                f"({''.join(f'{condition} ? {entry} : ' for condition, entry in entries)}{FORMULA_WIDTH}'sd0)"
            )
        if operand.operator == "max":
            return reduce(lambda left, right: f"larger({left}, {right})", parts)
        if operand.operator == "min":
            return reduce(lambda left, right: f"smaller({left}, {right})", parts)
        return _OPERATOR_FORMATS.get(
            operand.operator, _COMPARISON_FORMAT.replace("@", operand.operator)
        ).format(*parts)

    def _write_bits(self, operation: Operation) -> str:
        """Return a shift, a slice, or a concatenation, whose operands are slices (R22 to R24)."""
        if operation.operator == "concat":
            text = f"{FORMULA_WIDTH}'sd0"
            for operand in operation.operands:
                assert isinstance(operand, Operation)
                high, low = (bit for bit in operand.operands[1:] if isinstance(bit, int))
                text = f"(({text} <<< {high - low + 1}) | {self.write_operand(operand)})"
            return text
        value, (shift_or_high_bit, *more_bits) = (
            self.write_operand(operation.operands[0]),
            operation.operands[1:],
        )
        if operation.operator != "slice":
            return f"({value} {'<<<' if operation.operator == '<<' else '>>>'} {shift_or_high_bit})"
        assert isinstance(shift_or_high_bit, int)
        (lowest_bit,) = (bit for bit in more_bits if isinstance(bit, int))
        return f"(({value} >>> {lowest_bit}) & {FORMULA_WIDTH}'sd{(1 << shift_or_high_bit - lowest_bit + 1) - 1})"

    def _write_stored_value(self, operator: str, ref: Ref) -> str:
        if operator == "valid":
            bits = f"{FORMULA_WIDTH - 1}'d0, {self._expressions.write_valid_bit(ref)}"
            return f"{{{bits}}}"
        module = self._expressions.datapath.module(ref.module or "")
        if operator == "count":
            return self._expressions.find_count_bits(module, module.count(ref.name)).resize(FORMULA_WIDTH)
        return self._expressions.find_target_bits(module, ref.name).resize(FORMULA_WIDTH)


_COMPARISON_FORMAT = f"$signed({{{{{FORMULA_WIDTH - 1}'d0, {{0}} @ {{1}}}}}})"
_OPERATOR_FORMATS = {
    "+": "({} + {})",
    "-": "({} - {})",
    "not": f"$signed({{{{{FORMULA_WIDTH - 1}'d0, {{}} == 0}}}})",
    "and": f"$signed({{{{{FORMULA_WIDTH - 1}'d0, ({{}} != 0) && ({{}} != 0)}}}})",
    "or": f"$signed({{{{{FORMULA_WIDTH - 1}'d0, ({{}} != 0) || ({{}} != 0)}}}})",
    "if": "({} != 0 ? {} : {})",
}


def _write_function(name: str, selection: str) -> Iterator[str]:
    """Yield a function that selects one of two values, `first` and `second`."""
    value = f"logic signed [{FORMULA_WIDTH - 1}:0]"
    yield f"function automatic {value} {name}(input {value} first, second);"
    yield f"{name} = {selection};"
    yield "endfunction"
