"""Elaboration of syntax trees: every number is evaluated and every range is expanded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fpga.count_action.actions import VERBS
from fpga.count_action.actions.memory import DECLARE_MEMORY, load_inputs
from fpga.count_action.defaults import COUNT_WIDTH
from fpga.count_action.diagnostics import Refused, did_you_mean, quote
from fpga.count_action.elaboration.arithmetic import Values, evaluate, span_of
from fpga.count_action.elaboration.choices import check_choice, merge_ends, registers_of
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
    each_value,
    element,
    flat_reference,
    is_signal,
    values_of,
)
from fpga.count_action.elaboration.instances import Instance
from fpga.count_action.elaboration.targets import entries_of, find_table_indices
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

    def module(self, instance: Instance) -> FlatModule:
        """Return a module with its ranges expanded. Errors go to the report."""
        values = instance.values
        module = FlatModule(instance.name, instance.at, frozenset(values), {})
        for name, wire in instance.wires.items():
            with self.report.part():
                module.wires[name] = (flat_reference(wire.reference, instance.index), wire)
        module.inputs = self.inputs(instance.text.inputs, values)
        for target in instance.text.targets:
            with self.report.part():
                module.targets.append(_make_target(target, values, module.targets))
        self._tables = {}
        with self.report.part():
            self._tables = find_table_indices(instance.text, values)
            for table in instance.text.tables:
                module.targets += entries_of(table, values)
        self._targets = frozenset(each.name for each in module.targets)
        self._registers = frozenset(each.name for each in module.targets) & values.keys()
        memories: dict[str, FlatAction] = {}
        for declared in instance.text.memories:
            with self.report.part():
                memory, inputs = self._elaborate_memory(declared, module.name, values)
                if memory.name in memories:
                    message = (
                        f"memory {quote(memory.name)} is declared twice, first at {memories[memory.name].at}"
                    )
                    raise Refused(memory.at, message, "Remove one.")
                memories[memory.name] = memory
                module.actions.append(memory)
                module.inputs += inputs
        self._memories = frozenset(memories)
        for count in instance.text.counts:
            with self.report.part():
                for inner in each_value(count.each, values):
                    module.counts.append(self._elaborate_count(count, inner, len(module.counts)))
                    module.actions += registers_of(module.counts[-1])
        for action in instance.text.actions:
            with self.report.part():
                for inner in each_value(action.each, values):
                    module.actions += self._elaborate_action(action, inner, memories)
        for claim in instance.text.claims:
            with self.report.part():
                module.claims.append(self._elaborate_claim(claim, values, len(module.claims)))
        return module

    def _elaborate_claim(self, text: ClaimText, values: Values, index: int) -> FlatClaim:
        """Return a claim; a lone name or number becomes the claim that it is not 0."""
        (formula,) = self._expand_operand(text.holds, values)
        if not isinstance(formula, FlatFormula):
            formula = FlatFormula("!=", (formula, 0), text.holds.at)
        return FlatClaim(text.kind, text.name or _make_default_name("property", index), formula, text.at)

    def inputs(self, declared: tuple[InputText, ...], values: Values) -> list[FlatInput]:
        """Return the declared inputs. Errors go to the report."""
        inputs = []
        for text in declared:
            with self.report.part():
                inputs += _make_inputs(text, values)
        return inputs

    def _elaborate_count(self, text: CountText, values: Values, index: int) -> FlatCount:
        self._count_item(text.at)
        references: dict[int, list[FlatReference]] = {1: [], -1: []}
        constant = 0
        for term in text.terms:
            for inner in self._expand_index_values(term, values):
                if is_signal(term.value, inner):
                    assert isinstance(term.value, Reference)
                    references[term.sign].append(flat_reference(term.value, inner))
                else:
                    constant += term.sign * evaluate(term.value, inner)
        bound = self._elaborate_bound(text, values)
        if not text.accumulates and (constant < 0 or references[-1] or bound):
            message = "a level count cannot go down or have a bound, because it stores no value (R17)"
            raise Refused(text.at, message, "Write `over cycles`, or remove `-` and `at most`.")
        if text.picking:
            check_choice(text, text.picking, references[1], constant)
        target, aim = self._elaborate_target(text, values)
        return FlatCount(
            name=_expand_label(text.label, values) or _make_default_name("count", index),
            kind=CountKind.ACCUMULATE if text.accumulates else CountKind.LEVEL,
            terms=tuple(references[1]),
            taken=tuple(references[-1]),
            constant=constant,
            gate=tuple(
                (holds, each.negated)
                for each in text.gate
                for holds in self._expand_operand(each.holds, values)
            ),
            width=_evaluate_or_default(text.width, values, COUNT_WIDTH),
            bound=bound,
            target=target,
            aim=aim,
            target_at=text.target.at if text.target else text.at,
            at=text.label.at if text.label else text.at,
            order=text.picking.order if text.picking else "",
            whole=text.picking is not None and text.picking.whole,
        )

    def _elaborate_memory(
        self, text: VerbText, module: str, values: Values
    ) -> tuple[FlatAction, list[FlatInput]]:
        """Return a memory, and the inputs through which a driver loads it (R25)."""
        assert text.name is not None
        if text.name.index is not None:
            message = f"memory {quote(text.name.name)} has elements"
            raise Refused(text.at, message, "Give each memory a name of its own.")
        words, width = (_evaluate_or_default(each, values, 0) for each in (text.numbers["words"], text.width))
        if not (2 <= words <= MAX_WORDS and 1 <= width <= MAX_WIDTH):
            message = f"memory {quote(text.name.name)} has {words} words of {width} bits"
            hint = f"2 to {MAX_WORDS} words of 1 to {MAX_WIDTH} bits are possible."
            raise Refused(text.at, message, hint)
        inputs = [
            FlatInput(
                each.name, each.kind, None, 1, each.width, signed=False, at=text.at, part_of=each.part_of
            )
            for each in load_inputs(module, text.name.name, words, width)
        ]
        refs = tuple(FlatReference(each.name, None, None, "", None, text.at) for each in inputs)
        memory = FlatAction(
            verb=text.verb, name=text.name.name, on="", on_at=text.at, samples=refs, width=width, sign=None,
            cleared=None, at=text.at, numbers={"words": words},
        )  # fmt: skip
        return memory, inputs

    def _elaborate_action(
        self, text: ActionText, values: Values, memories: Mapping[str, FlatAction]
    ) -> list[FlatAction]:
        """Return an action, and the actions that store the `last` flag and kept lanes of its beats (R18)."""
        self._count_item(text.at)
        does = text.does
        samples = [each for operand in does.samples for each in self._expand_operand(operand, values)]
        sends = VERBS[does.verb].kind.drives is SignalKind.STREAM
        width = None if does.width is None else evaluate(does.width, values)
        if "memory" in does.words:
            name = does.words["memory"]
            if name not in memories:
                hint = did_you_mean(name, memories) or DECLARE_MEMORY
                raise Refused(does.at, f"there is no memory {quote(name)} in this module", hint)
            width = memories[name].width
        elif does.verb == "store" and does.name is not None and does.name.name in memories:
            name = does.name.name
            message = f"{quote(name)} is a memory, and `as` names a number"
            raise Refused(does.name.at, message, f"Write `in {name}[ADDRESS]`.")
        flat = FlatAction(
            verb=does.verb,
            name=_expand_label(does.name, values) or ("out" if sends else ""),
            on=_expand_label(text.on, values) or None,
            on_at=text.on.at if text.on else text.at,
            samples=tuple(samples),
            width=width,
            sign=does.sign,
            numbers={
                name: evaluate(number, values) for name, number in does.numbers.items() if number is not None
            },
            words=does.words,
            cleared=None if does.cleared is None else flat_reference(does.cleared, values),
            at=does.at,
        )
        packet_flags = [
            self._make_packet_flag(flat, *each, values)
            for each in zip(("last", "keep"), does.ends, strict=False)
        ]
        return [flat, *packet_flags, *merge_ends(flat, does.merged_ends)]

    def _make_packet_flag(
        self, action: FlatAction, name: str, operand: Operand, values: Values
    ) -> FlatAction:
        """Return the action that stores the `last` flag or the kept lanes of a stream.

        A single operand is wrapped in `max`, because stored values have to be formulas.
        """
        samples = tuple(self._expand_operand(operand, values))
        if not isinstance(samples[0], FlatFormula):
            samples = (FlatFormula("max", samples, operand.at),)
        return replace(
            action, verb="store", name=f"{action.name}_{name}", samples=samples, part_of=action.name,
            width=1 if name == "last" else None, sign=None,
        )  # fmt: skip

    def _expand_index_values(self, term: Term, values: Values) -> Iterator[Values]:
        for inner in values_of(term, values):
            self._count_item(term.at)
            yield inner


def _expand_label(label: Label | None, values: Values) -> str:
    if label is None:
        return ""
    return label.name if label.index is None else f"{label.name}_{element(label.index, values)}"


def _make_default_name(kind: str, position: int) -> str:
    return kind if position == 0 else f"{kind}_{position + 1}"


def _evaluate_or_default(number: Number | None, values: Values, default: int) -> int:
    return default if number is None else evaluate(number, values)


def _make_target(text: TargetText, values: Values, earlier_targets: list[FlatTarget]) -> FlatTarget:
    reset = 0 if text.value is None else evaluate(text.value, values)
    if text.value is not None and reset <= 0:
        message = f"a target of {reset} is never reached (R3)"
        raise Refused(text.value.at, message, "Write `never` if that is intended.")
    name = text.name
    if (
        name is None
        and isinstance(text.value, Reference)
        and all(text.value.plain != each.name for each in earlier_targets)
    ):
        name = text.value.plain
    name = name or _make_default_name("target", len(earlier_targets))
    if text.carry and not text.at_least:
        message = "`carry` needs `at least`: otherwise a count that fires is never above its target"
        raise Refused(text.at, message, "Write `at least`.")
    width = None if text.width is None else evaluate(text.width, values)
    return FlatTarget(name, reset, width, text.at, text.at_least, text.carry)


def _make_inputs(text: InputText, values: Values) -> list[FlatInput]:
    """Return an input, and the flags for `last` and `keep` of its packets."""
    span = span_of(text.range, values) if text.range else None
    lanes = _evaluate_or_default(text.lanes, values, 1)
    width = _evaluate_or_default(text.width, values, 1)
    signal = FlatInput(text.name, text.kind, span, lanes, width, text.signed, text.at, buffered=text.buffered)
    if text.ends and span is not None:
        message = f"{quote(text.name)} is several streams; only a single stream can have packets"
        raise Refused(text.at, message, "Give each stream a name of its own.")
    if "keep" in text.ends and width % 8:
        message = f"`keep` with lanes of {width} bits: AXI-Stream keeps whole bytes"
        raise Refused(text.at, message, "Make the samples 8, 16, 24, 32, 40 or 48 bits wide.")
    spans = {"last": None, "keep": range(1, lanes + 1)}
    flags = (
        FlatInput(
            f"{text.name}_{end}",
            SignalKind.FLAG,
            spans[end],
            1,
            1,
            signed=False,
            at=text.at,
            part_of=text.name,
        )
        for end in text.ends
    )
    return [signal, *flags]
