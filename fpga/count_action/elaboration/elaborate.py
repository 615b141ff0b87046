"""Elaboration of syntax trees: every number is worked out and every range is written out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fpga.count_action.diagnostics import Refused, Report, quoted
from fpga.count_action.elaboration.arithmetic import Values, evaluate, names_in, span_of
from fpga.count_action.elaboration.flat import (
    FlatAction,
    FlatCount,
    FlatInput,
    FlatModule,
    FlatReference,
    FlatTarget,
    Suffix,
)
from fpga.count_action.elaboration.instances import Instance
from fpga.count_action.language.defaults import COUNT_WIDTH
from fpga.count_action.language.syntax import (
    ActionText,
    CountText,
    Index,
    InputText,
    Label,
    Number,
    Reference,
    TargetText,
    Term,
)
from fpga.count_action.model import CountKind, Location

_MAX_ITEMS = 65_536
"""Terms, samples, counts and actions of a datapath when all ranges are written out."""


@dataclass
class Elaborator:
    """Writes out the modules of one datapath, as long as they are not absurdly many things."""

    report: Report
    _items: int = 0

    def module(self, instance: Instance) -> FlatModule:
        """Elaborate a module: write its ranges out. Errors go to the report."""
        values = instance.values
        made = FlatModule(instance.name, instance.at, frozenset(values), {})
        for name, wire in instance.wires.items():
            with self.report.part():
                made.wires[name] = (_flat_reference(wire.reference, {}), wire)
        made.inputs = self.inputs(instance.text.inputs, values)
        for count in instance.text.counts:
            with self.report.part():
                for inner in _each(count.each, values):
                    made.counts.append(self._count(count, inner, len(made.counts)))
        for target in instance.text.targets:
            with self.report.part():
                made.targets.append(_target(target, values, made.targets))
        for action in instance.text.actions:
            with self.report.part():
                for inner in _each(action.each, values):
                    made.actions.append(self._action(action, inner))
        return made

    def inputs(self, declared: tuple[InputText, ...], values: Values) -> list[FlatInput]:
        """Elaborate declared inputs. Errors go to the report."""
        made = []
        for text in declared:
            with self.report.part():
                made.append(_input(text, values))
        return made

    def _spend(self, at: Location) -> None:
        self._items += 1
        if self._items > _MAX_ITEMS:
            message = f"more than {_MAX_ITEMS} terms, samples, counts and actions come out of these ranges"
            self.report.error(Refused(at, message, "Use smaller ranges.").diagnostic)
            self.report.settle()

    def _count(self, text: CountText, values: Values, place: int) -> FlatCount:
        self._spend(text.at)
        references: list[FlatReference] = []
        constant = 0
        for term in text.terms:
            for inner in self._over(term, values):
                if _is_signal(term.value, inner):
                    references.append(_added_reference(term, inner))
                else:
                    constant += term.sign * evaluate(term.value, inner)
        if constant < 0:
            raise Refused(
                text.at, f"the sum has {constant} in it; a count cannot go down", "Add, do not subtract."
            )
        return FlatCount(
            name=_label(text.label, values) or _numbered("count", place),
            kind=CountKind.ACCUMULATE if text.accumulates else CountKind.LEVEL,
            terms=tuple(references),
            constant=constant,
            gate=tuple((_flat_reference(each.reference, values), each.negated) for each in text.gate),
            width=_optional(text.width, values, COUNT_WIDTH),
            target=text.target.name if text.target else None,
            target_at=text.target.at if text.target else text.at,
            at=text.label.at if text.label else text.at,
        )

    def _action(self, text: ActionText, values: Values) -> FlatAction:
        self._spend(text.at)
        does = text.does
        samples = [
            _sample_reference(term, inner) for term in does.samples for inner in self._over(term, values)
        ]
        return FlatAction(
            verb=does.verb,
            name=_label(does.name, values) or ("out" if does.verb in {"stream", "emit"} else ""),
            on=_label(text.on, values) or None,
            on_at=text.on.at if text.on else text.at,
            samples=tuple(samples),
            width=None if does.width is None else evaluate(does.width, values),
            sign=does.sign,
            shift=_optional(does.shift, values, 0),
            modulo=_optional(does.modulo, values, 0),
            cleared=None if does.cleared is None else _flat_reference(does.cleared, values),
            at=does.at,
        )

    def _over(self, term: Term, values: Values) -> Iterator[Values]:
        if term.over and term.over.name not in names_in(term.value):
            message = f"the index {quoted(term.over.name)} does not stand in what it is for"
            raise Refused(term.over.at, message, f"Write NAME[{term.over.name}], or leave the range away.")
        for inner in _each(term.over, values):
            self._spend(term.at)
            yield inner


def _flat_reference(reference: Reference, values: Values) -> FlatReference:
    """Return a reference with its numbers worked out. Raises `Refused` when it cannot be one."""
    parts = [
        (part.name, None if part.index is None else _element(part.index, values)) for part in reference.parts
    ]
    suffix: Suffix = ""
    lane = None
    if len(parts) > 1 and parts[-1][0] in {"valid", "data"}:
        last, lane = parts.pop()
        suffix = "valid" if last == "valid" else "data"
    if suffix == "valid" and lane is not None:
        raise Refused(
            reference.at, f"`valid[{lane}]`: a beat has one valid bit", "Write the index after the name."
        )
    if len(parts) > 2 or parts[-1][0] in {"valid", "data"}:
        message = f"{quoted(str(reference))} is not a signal"
        raise Refused(reference.at, message, "Write NAME, MODULE.NAME, and .valid or .data after a stream.")
    module = parts.pop(0) if len(parts) == 2 else (None, None)
    if module[1] is not None:
        raise Refused(
            reference.at, f"{quoted(str(module[0]))} is a module and has no elements", "Leave `[...]` away."
        )
    return FlatReference(parts[0][0], module[0], parts[0][1], suffix, lane, reference.at)


def _element(number: Number, values: Values) -> int:
    value = evaluate(number, values)
    if value < 0:
        raise Refused(number.at, f"element {value} of something", "Elements are counted from 0 or 1.")
    return value


def _is_signal(value: Number, values: Values) -> bool:
    return isinstance(value, Reference) and not (value.plain is not None and value.plain in values)


def _added_reference(term: Term, values: Values) -> FlatReference:
    assert isinstance(term.value, Reference)
    if term.sign < 0:
        raise Refused(term.at, f"{quoted(str(term.value))} is subtracted; a count cannot go down", "Add it.")
    return _flat_reference(term.value, values)


def _sample_reference(term: Term, values: Values) -> FlatReference:
    assert isinstance(term.value, Reference)
    return _flat_reference(term.value, values)


def _each(index: Index | None, values: Values) -> Iterator[Values]:
    if index is None:
        yield values
        return
    for value in span_of(index, values):
        yield {**values, index.name: value}


def _label(label: Label | None, values: Values) -> str:
    if label is None:
        return ""
    return label.name if label.index is None else f"{label.name}_{_element(label.index, values)}"


def _numbered(word: str, place: int) -> str:
    return word if place == 0 else f"{word}_{place + 1}"


def _optional(number: Number | None, values: Values, default: int) -> int:
    return default if number is None else evaluate(number, values)


def _target(text: TargetText, values: Values, before: list[FlatTarget]) -> FlatTarget:
    reset = 0 if text.value is None else evaluate(text.value, values)
    if text.value is not None and reset <= 0:
        message = f"a target of {reset} is never reached (R3)"
        raise Refused(text.value.at, message, "Write `never` if that is meant.")
    name = text.name
    if (
        name is None
        and isinstance(text.value, Reference)
        and all(text.value.plain != each.name for each in before)
    ):
        name = text.value.plain
    name = name or _numbered("target", len(before))
    return FlatTarget(name, reset, None if text.width is None else evaluate(text.width, values), text.at)


def _input(text: InputText, values: Values) -> FlatInput:
    span = span_of(text.range, values) if text.range else None
    lanes = _optional(text.lanes, values, 1)
    width = _optional(text.width, values, 1)
    return FlatInput(text.name, text.kind, span, lanes, width, text.signed, text.at)
