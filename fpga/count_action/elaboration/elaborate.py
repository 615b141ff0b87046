"""Elaboration of syntax trees: every number is evaluated and every range is expanded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fpga.count_action.actions import VERBS
from fpga.count_action.actions.memory import DECLARE_MEMORY, make_load_inputs
from fpga.count_action.defaults import COUNT_WIDTH
from fpga.count_action.diagnostics import SourceError, quote, suggest_name
from fpga.count_action.elaboration.arithmetic import Values, evaluate, evaluate_range
from fpga.count_action.elaboration.choices import (
    check_arbitration,
    make_arbiter_actions,
    make_end_signal_actions,
)
from fpga.count_action.elaboration.flat import (
    FlatAction,
    FlatClaim,
    FlatCount,
    FlatFormula,
    FlatInput,
    FlatModule,
    FlatReference,
    FlatTarget,
)
from fpga.count_action.elaboration.formulas import (
    FormulaElaborator,
    evaluate_element,
    flatten_reference,
    is_signal,
    iterate_index,
    iterate_term,
)
from fpga.count_action.elaboration.instances import Instance
from fpga.count_action.elaboration.targets import find_table_indices, make_entry_targets
from fpga.count_action.language.syntax import (
    ActionText,
    ClaimText,
    CountText,
    InputText,
    Label,
    Number,
    Operand,
    Reference,
    TargetText,
    Term,
    VerbText,
)
from fpga.count_action.model import MAX_WIDTH, MAX_WORDS, CountKind, SignalKind


@dataclass
class Elaborator(FormulaElaborator):
    """Expands the modules of one datapath, up to a limit on the number of items."""

    def elaborate_module(self, instance: Instance) -> FlatModule:
        """Return a module with its ranges expanded. Errors go to the report."""
        values = instance.parameter_values
        module = FlatModule(instance.name, instance.location, frozenset(values), {})
        for name, wire in instance.wires.items():
            with self.report.catch_errors():
                module.wires[name] = (flatten_reference(wire.reference, instance.index_values), wire)
        module.inputs = self.elaborate_inputs(instance.module_text.inputs, values)
        for target in instance.module_text.targets:
            with self.report.catch_errors():
                module.targets.append(_make_target(target, values, module.targets))
        self._table_ranges = {}
        with self.report.catch_errors():
            self._table_ranges = find_table_indices(instance.module_text, values)
            for table in instance.module_text.tables:
                module.targets += make_entry_targets(table, values)
        self._target_names = frozenset(target.name for target in module.targets)
        self._shadowing_targets = frozenset(target.name for target in module.targets) & values.keys()
        memories: dict[str, FlatAction] = {}
        for memory_text in instance.module_text.memories:
            with self.report.catch_errors():
                memory, inputs = self._elaborate_memory(memory_text, module.name, values)
                if memory.name in memories:
                    first_location = memories[memory.name].location
                    message = f"memory {quote(memory.name)} is declared twice, first at {first_location}"
                    raise SourceError(memory.location, message, "Remove one.")
                memories[memory.name] = memory
                module.actions.append(memory)
                module.inputs += inputs
        self._memory_names = frozenset(memories)
        for count in instance.module_text.counts:
            with self.report.catch_errors():
                for index_values in iterate_index(count.index, values):
                    module.counts.append(self._elaborate_count(count, index_values, len(module.counts)))
                    module.actions += make_arbiter_actions(module.counts[-1])
        for action in instance.module_text.actions:
            with self.report.catch_errors():
                for index_values in iterate_index(action.index, values):
                    module.actions += self._elaborate_action(action, index_values, memories)
        for claim in instance.module_text.claims:
            with self.report.catch_errors():
                module.claims.append(self._elaborate_claim(claim, values, len(module.claims)))
        return module

    def _elaborate_claim(self, claim_text: ClaimText, values: Values, index: int) -> FlatClaim:
        """Return a claim; a lone name or number becomes the claim that it is not 0."""
        (formula,) = self._expand_operand(claim_text.operand, values)
        if not isinstance(formula, FlatFormula):
            formula = FlatFormula("!=", (formula, 0), claim_text.operand.location)
        return FlatClaim(
            claim_text.kind,
            claim_text.name or _make_default_name("property", index),
            formula,
            claim_text.location,
        )

    def elaborate_inputs(self, input_texts: tuple[InputText, ...], values: Values) -> list[FlatInput]:
        """Return the declared inputs. Errors go to the report."""
        inputs = []
        for input_text in input_texts:
            with self.report.catch_errors():
                inputs += _make_inputs(input_text, values)
        return inputs

    def _elaborate_count(self, count_text: CountText, values: Values, index: int) -> FlatCount:
        self._check_item_limit(count_text.location)
        references_by_sign: dict[int, list[FlatReference]] = {1: [], -1: []}
        constant = 0
        for term in count_text.terms:
            for index_values in self._expand_index_values(term, values):
                if is_signal(term.value, index_values):
                    assert isinstance(term.value, Reference)
                    references_by_sign[term.sign].append(flatten_reference(term.value, index_values))
                else:
                    constant += term.sign * evaluate(term.value, index_values)
        bound = self._elaborate_bound(count_text, values)
        if not count_text.accumulates and (constant < 0 or references_by_sign[-1] or bound):
            message = "a level count cannot go down or have a bound, because it stores no value (R17)"
            raise SourceError(
                count_text.location, message, "Write `over cycles`, or remove `-` and `at most`."
            )
        if count_text.arbitration:
            check_arbitration(count_text, count_text.arbitration, references_by_sign[1], constant)
        target, target_formula = self._elaborate_target(count_text, values)
        return FlatCount(
            name=_expand_label(count_text.label, values) or _make_default_name("count", index),
            kind=CountKind.ACCUMULATE if count_text.accumulates else CountKind.LEVEL,
            terms=tuple(references_by_sign[1]),
            subtracted_terms=tuple(references_by_sign[-1]),
            constant=constant,
            conditions=tuple(
                (operand, condition.is_negated)
                for condition in count_text.conditions
                for operand in self._expand_operand(condition.operand, values)
            ),
            width=_evaluate_or_default(count_text.width, values, COUNT_WIDTH),
            bound=bound,
            target=target,
            target_formula=target_formula,
            target_location=count_text.target.location if count_text.target else count_text.location,
            location=count_text.label.location if count_text.label else count_text.location,
            arbitration_order=count_text.arbitration.order if count_text.arbitration else "",
            takes_whole_frames=count_text.arbitration is not None
            and count_text.arbitration.takes_whole_frames,
        )

    def _elaborate_memory(
        self, memory_text: VerbText, module_name: str, values: Values
    ) -> tuple[FlatAction, list[FlatInput]]:
        """Return a memory, and the inputs through which a driver loads it (R25)."""
        assert memory_text.name is not None
        if memory_text.name.index is not None:
            message = f"memory {quote(memory_text.name.name)} has elements"
            raise SourceError(memory_text.location, message, "Give each memory a name of its own.")
        word_count, width = (
            _evaluate_or_default(number, values, 0)
            for number in (memory_text.numbers["words"], memory_text.width)
        )
        if not (2 <= word_count <= MAX_WORDS and 1 <= width <= MAX_WIDTH):
            message = f"memory {quote(memory_text.name.name)} has {word_count} words of {width} bits"
            hint = f"2 to {MAX_WORDS} words of 1 to {MAX_WIDTH} bits are possible."
            raise SourceError(memory_text.location, message, hint)
        inputs = [
            FlatInput(
                signal.name,
                signal.kind,
                None,
                1,
                signal.width,
                signed=False,
                location=memory_text.location,
                part_of=signal.part_of,
            )
            for signal in make_load_inputs(module_name, memory_text.name.name, word_count, width)
        ]
        load_references = tuple(
            FlatReference(signal.name, None, None, "", None, memory_text.location) for signal in inputs
        )
        memory = FlatAction(
            verb=memory_text.verb,
            name=memory_text.name.name,
            count_name="",
            count_location=memory_text.location,
            samples=load_references,
            width=width,
            sign=None, cleared_reference=None, location=memory_text.location, numbers={"words": word_count},
        )  # fmt: skip
        return memory, inputs

    def _elaborate_action(
        self, action_text: ActionText, values: Values, memories: Mapping[str, FlatAction]
    ) -> list[FlatAction]:
        """Return an action, and the actions that store the `last` flag and kept lanes of its beats (R18)."""
        self._check_item_limit(action_text.location)
        verb_text = action_text.verb_text
        samples = [
            sample for operand in verb_text.samples for sample in self._expand_operand(operand, values)
        ]
        sends_stream = VERBS[verb_text.verb].kind.drives is SignalKind.STREAM
        width = None if verb_text.width is None else evaluate(verb_text.width, values)
        if "memory" in verb_text.words:
            name = verb_text.words["memory"]
            if name not in memories:
                hint = suggest_name(name, memories) or DECLARE_MEMORY
                raise SourceError(
                    verb_text.location, f"there is no memory {quote(name)} in this module", hint
                )
            width = memories[name].width
        elif verb_text.verb == "store" and verb_text.name is not None and verb_text.name.name in memories:
            name = verb_text.name.name
            message = f"{quote(name)} is a memory, and `as` names a number"
            raise SourceError(verb_text.name.location, message, f"Write `in {name}[ADDRESS]`.")
        flat_action = FlatAction(
            verb=verb_text.verb,
            name=_expand_label(verb_text.name, values) or ("out" if sends_stream else ""),
            count_name=_expand_label(action_text.count_label, values) or None,
            count_location=action_text.count_label.location
            if action_text.count_label
            else action_text.location,
            samples=tuple(samples),
            width=width,
            sign=verb_text.sign,
            numbers={
                name: evaluate(number, values)
                for name, number in verb_text.numbers.items()
                if number is not None
            },
            words=verb_text.words,
            cleared_reference=None
            if verb_text.cleared is None
            else flatten_reference(verb_text.cleared, values),
            location=verb_text.location,
        )
        end_signal_actions = [
            self._make_end_signal_action(flat_action, *end_signal, values)
            for end_signal in zip(("last", "keep"), verb_text.ends, strict=False)
        ]
        return [
            flat_action,
            *end_signal_actions,
            *make_end_signal_actions(flat_action, verb_text.merged_ends),
        ]

    def _make_end_signal_action(
        self, action: FlatAction, end_signal: str, operand: Operand, values: Values
    ) -> FlatAction:
        """Return the action that stores the `last` flag or the kept lanes of a stream.

        A single operand is wrapped in `max`, because stored values have to be formulas.
        """
        samples = tuple(self._expand_operand(operand, values))
        if not isinstance(samples[0], FlatFormula):
            samples = (FlatFormula("max", samples, operand.location),)
        return replace(
            action, verb="store", name=f"{action.name}_{end_signal}", samples=samples, part_of=action.name,
            width=1 if end_signal == "last" else None, sign=None,
        )  # fmt: skip

    def _expand_index_values(self, term: Term, values: Values) -> Iterator[Values]:
        for term_values in iterate_term(term, values):
            self._check_item_limit(term.location)
            yield term_values


def _expand_label(label: Label | None, values: Values) -> str:
    if label is None:
        return ""
    return label.name if label.index is None else f"{label.name}_{evaluate_element(label.index, values)}"


def _make_default_name(kind: str, position: int) -> str:
    return kind if position == 0 else f"{kind}_{position + 1}"


def _evaluate_or_default(number: Number | None, values: Values, default: int) -> int:
    return default if number is None else evaluate(number, values)


def _make_target(target_text: TargetText, values: Values, earlier_targets: list[FlatTarget]) -> FlatTarget:
    reset_value = 0 if target_text.value is None else evaluate(target_text.value, values)
    if target_text.value is not None and reset_value <= 0:
        message = f"a target of {reset_value} is never reached (R3)"
        raise SourceError(target_text.value.location, message, "Write `never` if that is intended.")
    name = target_text.name
    if (
        name is None
        and isinstance(target_text.value, Reference)
        and all(target_text.value.plain_name != earlier_target.name for earlier_target in earlier_targets)
    ):
        name = target_text.value.plain_name
    name = name or _make_default_name("target", len(earlier_targets))
    if target_text.carry and not target_text.at_least:
        message = "`carry` needs `at least`: otherwise a count that fires is never above its target"
        raise SourceError(target_text.location, message, "Write `at least`.")
    width = None if target_text.width is None else evaluate(target_text.width, values)
    return FlatTarget(name, reset_value, width, target_text.location, target_text.at_least, target_text.carry)


def _make_inputs(input_text: InputText, values: Values) -> list[FlatInput]:
    """Return an input, and the flags for `last` and `keep` of its packets."""
    span = evaluate_range(input_text.index_range, values) if input_text.index_range else None
    lanes = _evaluate_or_default(input_text.lanes, values, 1)
    width = _evaluate_or_default(input_text.width, values, 1)
    signal = FlatInput(
        input_text.name,
        input_text.kind,
        span,
        lanes,
        width,
        input_text.signed,
        input_text.location,
        is_buffered=input_text.is_buffered,
    )
    if input_text.end_signals and span is not None:
        message = f"{quote(input_text.name)} is several streams; only a single stream can have packets"
        raise SourceError(input_text.location, message, "Give each stream a name of its own.")
    if "keep" in input_text.end_signals and width % 8:
        message = f"`keep` with lanes of {width} bits: AXI-Stream keeps whole bytes"
        raise SourceError(input_text.location, message, "Make the samples 8, 16, 24, 32, 40 or 48 bits wide.")
    spans = {"last": None, "keep": range(1, lanes + 1)}
    flags = (
        FlatInput(
            f"{input_text.name}_{end}",
            SignalKind.FLAG,
            spans[end],
            1,
            1,
            signed=False,
            location=input_text.location,
            part_of=input_text.name,
        )
        for end in input_text.end_signals
    )
    return [signal, *flags]
