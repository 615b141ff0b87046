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

    def _elaborate_claim(self, text: ClaimText, values: Values, index: int) -> FlatClaim:
        """Return a claim; a lone name or number becomes the claim that it is not 0."""
        (formula,) = self._expand_operand(text.operand, values)
        if not isinstance(formula, FlatFormula):
            formula = FlatFormula("!=", (formula, 0), text.operand.location)
        return FlatClaim(
            text.kind, text.name or _make_default_name("property", index), formula, text.location
        )

    def elaborate_inputs(self, input_texts: tuple[InputText, ...], values: Values) -> list[FlatInput]:
        """Return the declared inputs. Errors go to the report."""
        inputs = []
        for text in input_texts:
            with self.report.catch_errors():
                inputs += _make_inputs(text, values)
        return inputs

    def _elaborate_count(self, text: CountText, values: Values, index: int) -> FlatCount:
        self._check_item_limit(text.location)
        references_by_sign: dict[int, list[FlatReference]] = {1: [], -1: []}
        constant = 0
        for term in text.terms:
            for index_values in self._expand_index_values(term, values):
                if is_signal(term.value, index_values):
                    assert isinstance(term.value, Reference)
                    references_by_sign[term.sign].append(flatten_reference(term.value, index_values))
                else:
                    constant += term.sign * evaluate(term.value, index_values)
        bound = self._elaborate_bound(text, values)
        if not text.accumulates and (constant < 0 or references_by_sign[-1] or bound):
            message = "a level count cannot go down or have a bound, because it stores no value (R17)"
            raise SourceError(text.location, message, "Write `over cycles`, or remove `-` and `at most`.")
        if text.arbitration:
            check_arbitration(text, text.arbitration, references_by_sign[1], constant)
        target, target_formula = self._elaborate_target(text, values)
        return FlatCount(
            name=_expand_label(text.label, values) or _make_default_name("count", index),
            kind=CountKind.ACCUMULATE if text.accumulates else CountKind.LEVEL,
            terms=tuple(references_by_sign[1]),
            subtracted_terms=tuple(references_by_sign[-1]),
            constant=constant,
            conditions=tuple(
                (holds, condition.is_negated)
                for condition in text.conditions
                for holds in self._expand_operand(condition.operand, values)
            ),
            width=_evaluate_or_default(text.width, values, COUNT_WIDTH),
            bound=bound,
            target=target,
            target_formula=target_formula,
            target_location=text.target.location if text.target else text.location,
            location=text.label.location if text.label else text.location,
            arbitration_order=text.arbitration.order if text.arbitration else "",
            takes_whole_frames=text.arbitration is not None and text.arbitration.takes_whole_frames,
        )

    def _elaborate_memory(
        self, text: VerbText, module: str, values: Values
    ) -> tuple[FlatAction, list[FlatInput]]:
        """Return a memory, and the inputs through which a driver loads it (R25)."""
        assert text.name is not None
        if text.name.index is not None:
            message = f"memory {quote(text.name.name)} has elements"
            raise SourceError(text.location, message, "Give each memory a name of its own.")
        words, width = (
            _evaluate_or_default(number, values, 0) for number in (text.numbers["words"], text.width)
        )
        if not (2 <= words <= MAX_WORDS and 1 <= width <= MAX_WIDTH):
            message = f"memory {quote(text.name.name)} has {words} words of {width} bits"
            hint = f"2 to {MAX_WORDS} words of 1 to {MAX_WIDTH} bits are possible."
            raise SourceError(text.location, message, hint)
        inputs = [
            FlatInput(
                signal.name,
                signal.kind,
                None,
                1,
                signal.width,
                signed=False,
                location=text.location,
                part_of=signal.part_of,
            )
            for signal in make_load_inputs(module, text.name.name, words, width)
        ]
        refs = tuple(FlatReference(signal.name, None, None, "", None, text.location) for signal in inputs)
        memory = FlatAction(
            verb=text.verb, name=text.name.name, count_name="", count_location=text.location, samples=refs, width=width,
            sign=None, cleared_reference=None, location=text.location, numbers={"words": words},
        )  # fmt: skip
        return memory, inputs

    def _elaborate_action(
        self, text: ActionText, values: Values, memories: Mapping[str, FlatAction]
    ) -> list[FlatAction]:
        """Return an action, and the actions that store the `last` flag and kept lanes of its beats (R18)."""
        self._check_item_limit(text.location)
        verb = text.verb_text
        samples = [sample for operand in verb.samples for sample in self._expand_operand(operand, values)]
        sends_stream = VERBS[verb.verb].kind.drives is SignalKind.STREAM
        width = None if verb.width is None else evaluate(verb.width, values)
        if "memory" in verb.words:
            name = verb.words["memory"]
            if name not in memories:
                hint = suggest_name(name, memories) or DECLARE_MEMORY
                raise SourceError(verb.location, f"there is no memory {quote(name)} in this module", hint)
            width = memories[name].width
        elif verb.verb == "store" and verb.name is not None and verb.name.name in memories:
            name = verb.name.name
            message = f"{quote(name)} is a memory, and `as` names a number"
            raise SourceError(verb.name.location, message, f"Write `in {name}[ADDRESS]`.")
        flat_action = FlatAction(
            verb=verb.verb,
            name=_expand_label(verb.name, values) or ("out" if sends_stream else ""),
            count_name=_expand_label(text.count_label, values) or None,
            count_location=text.count_label.location if text.count_label else text.location,
            samples=tuple(samples),
            width=width,
            sign=verb.sign,
            numbers={
                name: evaluate(number, values) for name, number in verb.numbers.items() if number is not None
            },
            words=verb.words,
            cleared_reference=None if verb.cleared is None else flatten_reference(verb.cleared, values),
            location=verb.location,
        )
        end_signal_actions = [
            self._make_end_signal_action(flat_action, *end_signal, values)
            for end_signal in zip(("last", "keep"), verb.ends, strict=False)
        ]
        return [flat_action, *end_signal_actions, *make_end_signal_actions(flat_action, verb.merged_ends)]

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


def _make_target(text: TargetText, values: Values, earlier_targets: list[FlatTarget]) -> FlatTarget:
    reset = 0 if text.value is None else evaluate(text.value, values)
    if text.value is not None and reset <= 0:
        message = f"a target of {reset} is never reached (R3)"
        raise SourceError(text.value.location, message, "Write `never` if that is intended.")
    name = text.name
    if (
        name is None
        and isinstance(text.value, Reference)
        and all(text.value.plain_name != earlier_target.name for earlier_target in earlier_targets)
    ):
        name = text.value.plain_name
    name = name or _make_default_name("target", len(earlier_targets))
    if text.carry and not text.at_least:
        message = "`carry` needs `at least`: otherwise a count that fires is never above its target"
        raise SourceError(text.location, message, "Write `at least`.")
    width = None if text.width is None else evaluate(text.width, values)
    return FlatTarget(name, reset, width, text.location, text.at_least, text.carry)


def _make_inputs(text: InputText, values: Values) -> list[FlatInput]:
    """Return an input, and the flags for `last` and `keep` of its packets."""
    span = evaluate_range(text.index_range, values) if text.index_range else None
    lanes = _evaluate_or_default(text.lanes, values, 1)
    width = _evaluate_or_default(text.width, values, 1)
    signal = FlatInput(
        text.name, text.kind, span, lanes, width, text.signed, text.location, is_buffered=text.is_buffered
    )
    if text.end_signals and span is not None:
        message = f"{quote(text.name)} is several streams; only a single stream can have packets"
        raise SourceError(text.location, message, "Give each stream a name of its own.")
    if "keep" in text.end_signals and width % 8:
        message = f"`keep` with lanes of {width} bits: AXI-Stream keeps whole bytes"
        raise SourceError(text.location, message, "Make the samples 8, 16, 24, 32, 40 or 48 bits wide.")
    spans = {"last": None, "keep": range(1, lanes + 1)}
    flags = (
        FlatInput(
            f"{text.name}_{end}",
            SignalKind.FLAG,
            spans[end],
            1,
            1,
            signed=False,
            location=text.location,
            part_of=text.name,
        )
        for end in text.end_signals
    )
    return [signal, *flags]
