"""Resolution of elaborated modules to the datapath model: names become references to signals, counts or targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from fpga.count_action import arbitration
from fpga.count_action.actions import VERBS
from fpga.count_action.actions.kind import Shape
from fpga.count_action.diagnostics import Report, SourceError, quote, suggest_name
from fpga.count_action.elaboration.choices import list_merged_streams, make_end_signal_reference
from fpga.count_action.elaboration.flat import (
    FlatAction,
    FlatCount,
    FlatFormula,
    FlatInput,
    FlatModule,
    FlatOperand,
    FlatReference,
    Output,
    StoredValue,
)
from fpga.count_action.elaboration.names import NameTable
from fpga.count_action.elaboration.targets import find_count, find_target, find_target_width, resolve_target
from fpga.count_action.expressions import Interval, combine_intervals, count_bits, get_bit_interval
from fpga.count_action.model import (
    FORMULA_PREFIX,
    Action,
    ActionKind,
    Claim,
    Condition,
    Count,
    Datapath,
    Module,
    Operand,
    Operation,
    Ref,
    SignalKind,
)

Context: TypeAlias = Literal["sum", "condition", "sample"]

_CLAUSE_WORDS = {"sum": "sum", "condition": "while"}


class Beats:
    """Lanes, width and sign of the signals of a datapath."""

    def __init__(self, names: NameTable, report: Report) -> None:
        self._names = names
        self._report = report
        self._beats: dict[Output, Shape | None] = {}

    def check_wires(self) -> None:
        """Check that every wire connects signals of one kind and shape. Errors go to the report."""
        for module in self._names.modules.values():
            for module_input in module.inputs:
                if module_input.name in module.wires:
                    with self._report.catch_errors():
                        self._check_wire(module_input, *module.wires[module_input.name])

    def _check_wire(self, input_declaration: FlatInput, reference: FlatReference, wire: object) -> None:
        if reference.module is None:
            return
        output = self._names.resolve_output(reference)
        kind = self._find_kind(output)
        if kind is not input_declaration.kind:
            message = (
                f"{quote(input_declaration.name)} is a {input_declaration.kind.value} and {reference} is a"
                f" {kind.value}"
            )
            raise SourceError(reference.location, message, f"Wire it to a {input_declaration.kind.value}.")
        if input_declaration.index_range is not None and len(input_declaration.index_range) > 1:
            message = (
                f"{quote(input_declaration.name)} has {len(input_declaration.index_range)} elements, and {reference}"
                " is one signal"
            )
            raise SourceError(
                reference.location, message, "Wire it to an external input that has as many elements."
            )
        shape = self._find_shape(output)
        if shape != Shape(input_declaration.lanes, input_declaration.width, input_declaration.signed):
            own_shape = Shape(input_declaration.lanes, input_declaration.width, input_declaration.signed)
            shapes_text = f"has {_describe_shape(own_shape)}, and {reference} has {_describe_shape(shape)}"
            message = f"{quote(input_declaration.name)} {shapes_text}"
            raise SourceError(reference.location, message, "Change one of them.")

    def find_beat_shape(self, module: FlatModule, action: FlatAction) -> Shape:
        """Return the shape of the output of an action. Raise `SourceError` if its samples come from itself."""
        output = Output(module.name, action.name)
        return (
            self._find_shape(output)
            if self._names.drivers.get(output) is action
            else self._compute_shape(output, action)
        )

    def _find_shape(self, output: Output) -> Shape:
        """Return the shape of an output. Raise `SourceError` if its samples come from itself."""
        if output not in self._beats:
            self._beats[output] = None
            self._beats[output] = self._compute_shape(output, self._names.drivers[output])
        shape = self._beats[output]
        if shape is None:
            location, name = self._names.drivers[output].location, f"{output.module}.{output.name}"
            if self._find_kind(output) is SignalKind.NUMBER:
                message = f"the width of {quote(name)} depends on itself"
                raise SourceError(location, message, "Write it before `as`, for example `width 16`.")
            message = f"the samples of {name} come from itself: streams form a cycle (R7)"
            raise SourceError(location, message, "Use an external stream for one of them.")
        return shape

    def get_kind(self, resolved_signal: Output | FlatReference) -> SignalKind:
        """Return the kind of an output, or of an external input."""
        if isinstance(resolved_signal, Output):
            return self._find_kind(resolved_signal)
        signal = self._names.external_inputs.find_signal(resolved_signal.name)
        assert signal is not None
        return signal.kind

    def _find_kind(self, output: Output) -> SignalKind:
        kind = VERBS[self._names.drivers[output].verb].kind.drives
        assert kind is not None
        return kind

    def _compute_shape(self, output: Output, action: FlatAction) -> Shape:
        module = self._names.modules[output.module]

        def samples() -> list[Shape]:
            if action.verb == "merge":
                return self._merge_shapes(module, action)
            if action.part_of:
                return [self._find_shape(Output(output.module, action.part_of))]
            return [self._find_operand_shape(module, operand) for operand in action.samples]

        return VERBS[action.verb].compute_shape(action, samples)

    def _merge_shapes(self, module: FlatModule, action: FlatAction) -> list[Shape]:
        """Return the shapes of the streams of a `merge`. Raise `SourceError` if their numbers of lanes differ (R19)."""
        streams = list_merged_streams(module, action)
        shapes = [self._find_source(module, stream) for stream in streams]
        for stream, shape in zip(streams, shapes, strict=True):
            if shape.lanes != shapes[0].lanes:
                first_lanes_text = f"{quote(str(streams[0]))} has {shapes[0].lanes}"
                message = f"{quote(str(stream))} has {shape.lanes} lanes and {first_lanes_text}"
                raise SourceError(stream.location, message, "Merge streams with the same number of lanes.")
        return shapes

    def _find_operand_shape(self, module: FlatModule, operand: FlatOperand) -> Shape:
        """Return the shape of a sample; the width and sign of a formula follow from its interval."""
        if (
            isinstance(operand, FlatReference)
            and self._names.find_stored_value(module, operand, in_formula=False) is None
        ):
            shape = self._find_source(module, operand)
            return shape if operand.lane is None else replace(shape, lanes=1)
        width, signed = count_bits(*self.compute_interval(module, operand))
        return Shape(1, width, signed)

    def compute_interval(self, module: FlatModule, operand: FlatOperand) -> Interval:
        """Return the interval of a formula, or of a part of one."""
        if isinstance(operand, int):
            return operand, operand
        if isinstance(operand, FlatFormula):
            parts = [
                self.compute_interval(module, part)
                for part in operand.operands
                for _ in range(self._count_lanes(module, part) if operand.operator == "concat" else 1)
            ]
            return combine_intervals(operand.operator, parts)
        if stored_value := self._names.find_stored_value(module, operand, in_formula=True):
            return get_bit_interval(
                _find_stored_width(self._names.modules[stored_value.module], stored_value), signed=False
            )
        if operand.suffix == "valid":
            return 0, 1
        if lanes := self._names.count_kept_lanes(module, operand):
            return get_bit_interval(lanes, signed=False)
        shape = self._find_source(module, operand)
        return get_bit_interval(shape.width, signed=shape.signed)

    def _count_lanes(self, module: FlatModule, operand: FlatOperand) -> int:
        """Return the number of values of an operand: several for all lanes of a beat."""
        if not isinstance(operand, FlatReference) or operand.suffix != "data" or operand.lane is not None:
            return 1
        return self._find_source(module, operand).lanes

    def _find_source(self, module: FlatModule, reference: FlatReference) -> Shape:
        resolved_signal = self._names.resolve(module, reference)
        if isinstance(resolved_signal, Output):
            return self._find_shape(resolved_signal)
        signal = self._names.external_inputs.find_signal(resolved_signal.name)
        assert signal is not None
        return Shape(signal.lanes, signal.width, signal.signed)

    def make_refs(self, module: FlatModule, reference: FlatReference, role: Context) -> Iterator[Ref]:
        """Yield the resolved references of a reference: several if it names all lanes of a beat."""
        resolved_signal = self._names.resolve(module, reference)
        if isinstance(resolved_signal, Output):
            kind, index = self._find_kind(resolved_signal), 0
            name, owner, first_lane = (
                resolved_signal.name,
                resolved_signal.module,
                self._names.find_first_lane(resolved_signal),
            )
        else:
            signal = self._names.external_inputs.find_signal(resolved_signal.name)
            assert signal is not None
            kind, index = signal.kind, self._names.external_inputs.get_element_index(resolved_signal)
            name, owner, first_lane = (
                resolved_signal.name,
                None,
                self._names.external_inputs.find_first_lane(resolved_signal.name),
            )
        _check_suffix(reference, kind, role)
        if role != "sample" or kind is not SignalKind.STREAM:
            yield Ref(name, owner, index, 0, reference.location)
            return
        lanes = self._find_source(module, reference).lanes
        if reference.lane is None:
            yield from (Ref(name, owner, index, lane, reference.location) for lane in range(lanes))
            return
        if not first_lane <= reference.lane < first_lane + lanes:
            last_lane = first_lane + lanes - 1
            message = f"{quote(str(reference))} has lanes {first_lane} to {last_lane}, not {reference.lane}"
            raise SourceError(
                reference.location, message, "Declare the lanes: stream NAME of 16 lanes of 8 bits."
            )
        yield Ref(name, owner, index, reference.lane - first_lane, reference.location)


def _find_stored_width(module: FlatModule, stored_value: StoredValue) -> int:
    if stored_value.operator == "count":
        return next(count.width for count in module.counts if count.name == stored_value.name)
    target = next(candidate for candidate in module.targets if candidate.name == stored_value.name)
    return find_target_width(target, module)


def _describe_shape(shape: Shape) -> str:
    lanes_text = f"{shape.lanes} lanes of " if shape.lanes > 1 else ""
    return f"{lanes_text}{shape.width} bits{' signed' if shape.signed else ''}"


def _check_suffix(reference: FlatReference, kind: SignalKind, role: Context) -> None:
    quoted_name = quote(str(reference))
    if kind is not SignalKind.STREAM:
        if reference.suffix:
            message = f"{quoted_name} is a {kind.value} and has no `.{reference.suffix}`"
            raise SourceError(reference.location, message, "Write its name alone, or declare it as a stream.")
        return
    if role == "sample" and reference.suffix != "data":
        message = f"{quoted_name} is a stream, and this position needs its samples"
        hint = f"Write {reference}.data."
        if reference.suffix == "valid":
            message = (
                f"{quote(f'{reference}.valid')} says whether there is a beat, and this position needs samples"
            )
            hint = f"Write {reference}.data for the samples, or `{reference}.valid == 1` for the bit."
        raise SourceError(reference.location, message, hint)
    if role == "condition" and reference.suffix == "data":
        lane = "" if reference.lane is None else f"[{reference.lane}]"
        sample = f"{reference}.data{lane}"
        message = f"{quote(sample)} is a sample, and a condition needs a comparison"
        raise SourceError(
            reference.location,
            message,
            f"Write `{sample} != 0`, or {reference}.valid for whether there is a beat.",
        )
    if role != "sample" and reference.suffix != "valid":
        meaning = "counts its beats" if role == "sum" else "needs a bit"
        raise SourceError(
            reference.location,
            f"{quoted_name} is a stream, and `{_CLAUSE_WORDS[role]}` {meaning}",
            f"Write {reference}.valid.",
        )


def resolve(name: str, modules: list[FlatModule], inputs: list[FlatInput], report: Report) -> Datapath:
    """Return the datapath of these modules. Raise `CountActionError` with all errors."""
    name_table = NameTable(modules, inputs, report)
    name_table.infer_inputs()
    shapes = Beats(name_table, report)
    shapes.check_wires()
    resolver = _Resolver(name_table, shapes, report)
    resolved_modules = tuple(resolver.resolve_module(module) for module in modules)
    report.raise_errors()
    return Datapath(name, name_table.external_inputs.list_signals(), resolved_modules)


class _Resolver:
    """Resolves the parts of modules. Errors go to the report."""

    def __init__(self, name_table: NameTable, shapes: Beats, report: Report) -> None:
        self._name_table, self._shapes, self._report = name_table, shapes, report

    def resolve_module(self, module: FlatModule) -> Module:
        counts: list[Count] = []
        actions: list[Action] = []
        module_formulas: list[Operand] = []
        for index, count in enumerate(module.counts):
            with self._report.catch_errors():
                counts.append(self._resolve_count(module, count, index, module_formulas))
        counts_by_name = {count.name: count for count in counts}
        for action in module.actions:
            with self._report.catch_errors():
                actions.append(self._resolve_action(module, action, counts_by_name, module_formulas))
        targets = tuple(resolve_target(target, module) for target in module.targets)
        claims: list[Claim] = []
        for claim in module.claims:
            with self._report.catch_errors():
                (condition,) = self._resolve_operands(module, claim.formula)
                claims.append(Claim(claim.kind, claim.name, condition, claim.location))
        formulas = tuple(module_formulas)
        return Module(
            module.name, tuple(counts), targets, tuple(actions), module.location, formulas, tuple(claims)
        )

    def _resolve_count(
        self, module: FlatModule, count: FlatCount, index: int, module_formulas: list[Operand]
    ) -> Count:
        terms, subtracted_terms = (
            tuple(ref for reference in part for ref in self._shapes.make_refs(module, reference, "sum"))
            for part in (count.terms, count.subtracted_terms)
        )
        target_ref = (
            None
            if count.target_formula is None
            else self._resolve_refs(module, count.target_formula, "condition", module_formulas)[0]
        )
        bound = (
            None
            if count.bound is None
            else self._resolve_refs(module, count.bound, "condition", module_formulas)[0]
        )
        gate = [
            Condition(ref, negated)
            for operand, negated in count.conditions
            for ref in self._resolve_refs(module, operand, "condition", module_formulas)
        ]
        resolved_count = Count(
            name=count.name,
            kind=count.kind,
            target=find_target(module, count, index),
            terms=terms,
            taken=subtracted_terms,
            bound=bound,
            constant=count.constant,
            gate=tuple(gate),
            width=count.width,
            location=count.location,
            aim=target_ref,
            order=count.arbitration_order,
            whole=count.takes_whole_frames,
        )
        if not resolved_count.order:
            return resolved_count
        picks = (
            self._add_formula(module, pick, module_formulas)
            for pick in arbitration.make_picks(resolved_count, module.name)
        )
        return replace(resolved_count, picks=tuple(picks))

    def _add_formula(self, module: FlatModule, formula: Operand, module_formulas: list[Operand]) -> Ref:
        module_formulas.append(formula)
        return Ref(f"{FORMULA_PREFIX}{len(module_formulas) - 1}", module.name)

    def _resolve_refs(
        self, module: FlatModule, operand: FlatOperand, role: Context, module_formulas: list[Operand]
    ) -> list[Ref]:
        """Return the references of a condition or a sample; a formula is first added to `module_formulas`."""
        if (
            isinstance(operand, FlatReference)
            and self._name_table.find_stored_value(module, operand, in_formula=False) is None
        ):
            return list(self._shapes.make_refs(module, operand, role))
        (value,) = self._resolve_operands(module, operand)
        module_formulas.append(value)
        location = None if isinstance(operand, int) else operand.location
        return [Ref(f"{FORMULA_PREFIX}{len(module_formulas) - 1}", module.name, location=location)]

    def _resolve_operands(
        self, module: FlatModule, operand: FlatOperand, *, takes_all_lanes: bool = False
    ) -> list[Operand]:
        """Return the resolved operand.

        With `takes_all_lanes` (in `max`, `min` and `concat`), return an operand for each lane of a beat.
        """
        if isinstance(operand, int):
            return [operand]
        if isinstance(operand, FlatFormula):
            if operand.operator == "slice":
                self._check_slice(module, operand)
            takes_operand_list = operand.operator in {"max", "min", "concat"}
            parts = []
            for part_operand in operand.operands:
                resolved_operands = self._resolve_operands(
                    module, part_operand, takes_all_lanes=takes_operand_list
                )
                if operand.operator == "concat":
                    resolved_operands = [
                        self._make_slice(module, part_operand, part) for part in resolved_operands
                    ]
                parts += resolved_operands
            return [Operation(operand.operator, tuple(parts))]
        if stored_value := self._name_table.find_stored_value(module, operand, in_formula=True):
            return [
                Operation(
                    stored_value.operator,
                    (Ref(stored_value.name, stored_value.module, location=operand.location),),
                )
            ]
        if operand.suffix == "valid":
            refs = self._shapes.make_refs(module, operand, "condition")
            return [Operation("valid", (ref,)) for ref in refs]
        if lanes := self._name_table.count_kept_lanes(module, operand):
            return [self._pack_kept_lanes(module, operand, lanes)]
        samples = list(self._shapes.make_refs(module, operand, "sample"))
        if len(samples) > 1 and not takes_all_lanes:
            message = f"{quote(f'{operand}.data')} has {len(samples)} lanes, and no index says which one"
            hint = f"Write {operand}.data[1] for a lane, {operand}.data[1][7:0] for its bits, or a range."
            raise SourceError(operand.location, message, hint)
        return list(samples)

    def _check_slice(self, module: FlatModule, formula: FlatFormula) -> None:
        """Raise `SourceError` if a slice is of a stream, or exceeds the bits of its value (R23)."""
        value, high, low = formula.operands
        if isinstance(value, int) or not isinstance(high, int):
            return
        if isinstance(value, FlatReference) and self._is_stream(module, value):
            message = f"{quote(str(value))} is a stream, and only its samples have bits"
            raise SourceError(value.location, message, f"Write {value}.data[{high}:{low}].")
        width, _ = count_bits(*self._shapes.compute_interval(module, value))
        if high >= width:
            message = f"the slice has bit {high}, and its value has bits {width - 1} to 0"
            raise SourceError(formula.location, message, f"The highest bit is [{width - 1}:{width - 1}].")

    def _is_stream(self, module: FlatModule, reference: FlatReference) -> bool:
        """Return whether a reference is the name of a stream, without a suffix."""
        if reference.suffix or self._name_table.find_stored_value(module, reference, in_formula=True):
            return False
        resolved_signal = self._name_table.resolve(module, reference)
        return self._shapes.get_kind(resolved_signal) is SignalKind.STREAM

    def _make_slice(self, module: FlatModule, flat_operand: FlatOperand, part: Operand) -> Operand:
        """Return `part` if it is a slice, otherwise the slice of all its bits: `concat` takes only slices (R24)."""
        if isinstance(part, Operation) and part.operator == "slice":
            return part
        width, _ = count_bits(*self._shapes.compute_interval(module, flat_operand))
        return Operation("slice", (part, width - 1, 0))

    def _pack_kept_lanes(self, module: FlatModule, reference: FlatReference, lanes: int) -> Operand:
        """Return the formula for the kept lanes of a beat as a number; the first lane is bit 0 (R18)."""
        total: Operand = 0
        for lane in range(lanes):
            (ref,) = self._shapes.make_refs(module, replace(reference, index=lane + 1), "condition")
            bit = Operation("if", (ref, 1 << lane, 0))
            total = Operation("+", (total, bit)) if lane else bit
        return total

    def _resolve_action(
        self, module: FlatModule, action: FlatAction, counts: dict[str, Count], module_formulas: list[Operand]
    ) -> Action:
        count_name = find_count(module, action)
        if action.cleared_reference is not None:
            return self._resolve_clear(module, action.cleared_reference, count_name, action)
        samples = action.samples
        if action.part_of and action.name == f"{action.part_of}_last":
            samples = tuple(self._make_condition(module, sample) for sample in samples)
        refs = [
            ref
            for operand in samples
            for ref in self._resolve_refs(module, operand, "sample", module_formulas)
        ]
        shape = self._shapes.find_beat_shape(module, action)
        if not action.samples and count_name in counts:
            formulas = self._find_arbiter_formulas(module, action, counts[count_name], shape.lanes)
            refs = [self._add_formula(module, formula, module_formulas) for formula in formulas]
        return Action(
            kind=VERBS[action.verb].kind,
            on=count_name,
            output=action.name,
            refs=tuple(refs),
            width=shape.width,
            signed=shape.signed,
            part_of=action.part_of,
            merges=action.verb == "merge",
            location=action.location,
            **action.numbers,
            **action.words,
        )

    def _make_condition(self, module: FlatModule, operand: FlatOperand) -> FlatOperand:
        """Return the operand if it can only be 0 or 1, otherwise the formula that it is not 0."""
        low, high = self._shapes.compute_interval(module, operand)
        if low >= 0 and high <= 1:
            return operand
        assert not isinstance(operand, int)
        is_wrapped_operand = (
            isinstance(operand, FlatFormula) and operand.operator == "max" and len(operand.operands) == 1
        )
        value = operand.operands[0] if is_wrapped_operand and isinstance(operand, FlatFormula) else operand
        return FlatFormula("!=", (value, 0), operand.location)

    def _find_arbiter_formulas(
        self, module: FlatModule, action: FlatAction, count: Count, lanes: int
    ) -> list[Operand]:
        """Return the formulas that an action without samples sends or stores for an arbiter (R19).

        They are the samples of a `merge`, the next turn, or the `last` and kept lanes of the selected beat.
        """
        if action.verb == "merge":
            return arbitration.select_samples(count, module.name, lanes)
        if action.verb != "store":
            return []
        suffix = action.name.removeprefix(f"{action.part_of}_")
        next_values = arbitration.make_next_values(count, module.name) if action.part_of == count.name else {}
        if suffix in next_values:  # if a stream has the name of its count, its `last` and `keep` follow below
            return [next_values[suffix]]
        streams = (
            make_end_signal_reference(merged_stream, suffix)
            for merged_stream in list_merged_streams(module, action)
        )
        options = [part for stream in streams for part in self._resolve_operands(module, stream)]
        return [arbitration.make_selection(count, module.name, options)]

    def _resolve_clear(
        self, module: FlatModule, reference: FlatReference, count_name: str, action: FlatAction
    ) -> Action:
        if reference.suffix:
            raise SourceError(
                reference.location,
                f"{quote(str(reference))} is a stream and cannot be cleared",
                "Clear a count or a flag.",
            )
        driver = self._name_table.drivers.get(Output(module.name, reference.label))
        clearing_kind = None if driver is None else VERBS[driver.verb].cleared_by
        if reference.module is None and clearing_kind is not None:
            return Action(
                clearing_kind, count_name, reference.label, location=action.location, **action.words
            )
        if action.words["wins"]:
            raise SourceError(action.location, "`wins` applies to flags only", "Remove `wins`.")
        owner = module if reference.module is None else self._name_table.modules.get(reference.module)
        if owner is None:
            hint = suggest_name(str(reference.module), self._name_table.modules)
            raise SourceError(reference.location, f"there is no module {quote(str(reference.module))}", hint)
        if reference.label in self._name_table.count_names[owner.name]:
            return Action(
                ActionKind.CLEAR_COUNT,
                count_name,
                clears=(owner.name, reference.label),
                location=action.location,
            )
        own_actions = module.actions if owner is module else ()
        flag_names = [own_action.name for own_action in own_actions if VERBS[own_action.verb].cleared_by]
        hint = suggest_name(reference.label, [*(count.name for count in owner.counts), *flag_names])
        if owner is not module and Output(owner.name, reference.label) in self._name_table.drivers:
            hint = f"Send a pulse, count it in {owner.name}, and clear {reference.label} there."
        if owner is module and driver is not None and driver.verb == "store":
            hint = f"Write `store 0 as {reference.label} by priority`."
        message = f"{quote(str(reference))} is neither a count nor a flag that {quote(module.name)} sets"
        raise SourceError(reference.location, message, hint)
