"""Syntax nodes made of what lark has read, each with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fpga.count_action.language.actions import ActionBuilder
from fpga.count_action.language.operands import (
    Formula,
    Index,
    Number,
    Operand,
    Part,
    Range,
    Reference,
)
from fpga.count_action.language.syntax import (
    Argument,
    ClaimText,
    ConditionText,
    CountText,
    FileText,
    Import,
    InputText,
    Label,
    ModuleText,
    ParameterText,
    Picking,
    Section,
    Sign,
    TableText,
    TargetText,
    Term,
    Use,
    Wire,
)
from fpga.count_action.model import Location, SignalKind

_MEANT = frozenset({"NAME", "INTEGER", "STRING", "RELATION", "AT_LEAST", "EXACTLY"})


class TreeBuilder(ActionBuilder):
    """Makes the nodes of `syntax` of those of lark: one method for each rule of the grammar.

    A method gets the place of its first token, and its parts: nodes, names and None for what is left out.
    """

    def build(self, rule: str, children: list[Any]) -> Any:
        """Return the node for a rule whose parts are built."""
        at = next((self._location(each) for each in children if each is not None), Location(self._file, 1, 1))
        parts = [each for each in children if getattr(each, "type", "NAME") in _MEANT]
        return getattr(self, f"_{rule.strip('_')}")(at, *parts)

    # Files

    def _start(self, at: Location, *statements: Any) -> FileText:
        return FileText(statements)

    def _import(self, at: Location, path: Any) -> Import:
        return Import(str(path)[1:-1], self._location(path))

    def _use(
        self, at: Location, module: Any, arguments: Any, instance: Label, over: Index | None, wires: Any
    ) -> Use:
        return Use(str(module), arguments or (), instance, over, wires or (), self._location(module))

    def _arguments(self, at: Location, *arguments: Argument) -> tuple[Argument, ...]:
        return arguments

    def _argument(self, at: Location, name: Any, value: Number) -> Argument:
        return Argument(str(name), value, at)

    def _wires(self, at: Location, *wires: Wire) -> tuple[Wire, ...]:
        return wires

    def _wire(self, at: Location, name: Any, reference: Reference) -> Wire:
        return Wire(str(name), reference, at)

    # Modules

    def _module(self, at: Location, name: Any, parameters: Any, *sections: Section) -> ModuleText:
        items: dict[str, Any] = {
            "inputs": (), "counts": (), "targets": (), "tables": (), "actions": (), "claims": ()
        }  # fmt: skip
        for section in sections:
            items[section.kind] += section.items
        return ModuleText(self._name(name), parameters or (), **items, at=self._location(name))

    def _parameters(self, at: Location, *parameters: ParameterText) -> tuple[ParameterText, ...]:
        return parameters

    def _parameter(self, at: Location, name: Any, default: Number | None) -> ParameterText:
        return ParameterText(self._name(name), default, at)

    def _default(self, at: Location, value: Number) -> Number:
        return value

    def _inputs(self, at: Location, *items: Any) -> Section:
        return Section("inputs", items, at)

    def _counts(self, at: Location, *items: Any) -> Section:
        return Section("counts", items, at)

    def _targets(self, at: Location, *items: Any) -> Section:
        return Section("targets", items, at)

    def _tables(self, at: Location, *items: Any) -> Section:
        return Section("tables", items, at)

    def _table(self, at: Location, name: Any, span: Range, *parts: Any) -> TableText:
        *entries, width = parts
        values = tuple(None if isinstance(each, Location) else each for each in entries)
        return TableText(self._name(name), span, values, width, at)

    def _always(self, at: Location, *claims: ClaimText) -> Section:
        return Section("claims", tuple(replace(each, kind="always") for each in claims), at)

    def _nevers(self, at: Location, *claims: ClaimText) -> Section:
        return Section("claims", tuple(replace(each, kind="never") for each in claims), at)

    def _assume(self, at: Location, *claims: ClaimText) -> Section:
        return Section("claims", tuple(replace(each, kind="assume") for each in claims), at)

    def _claim(self, at: Location, name: Part | None, holds: Operand) -> ClaimText:
        return ClaimText("always", name.name if name else None, holds, at)

    def _actions(self, at: Location, *items: Any) -> Section:
        return Section("actions", items, at)

    # Inputs

    def _stream_input(self, at: Location, name: Any, span: Any, *shape: Any) -> InputText:
        lanes, width, signed, ends, buffered = shape
        place, sign = self._location(name), signed is not None
        return InputText(
            SignalKind.STREAM,
            self._name(name),
            span,
            lanes,
            width,
            sign,
            place,
            ends or (),
            buffered is not None,
        )

    def _buffered(self, at: Location) -> Location:
        return at

    def _with_ends(self, at: Location, keep: Location | None) -> tuple[str, ...]:
        return ("last",) if keep is None else ("last", "keep")

    def _and_keep(self, at: Location) -> Location:
        return at

    def _flag_input(self, at: Location, name: Any, span: Any) -> InputText:
        return InputText(
            SignalKind.FLAG, self._name(name), span, None, None, signed=False, at=self._location(name)
        )

    def _number_input(self, at: Location, name: Any, span: Any, width: Any) -> InputText:
        return InputText(
            SignalKind.NUMBER, self._name(name), span, None, width, signed=False, at=self._location(name)
        )

    def _range(self, at: Location, low: Number, high: Number) -> Range:
        return Range(low, high, at)

    def _lanes(self, at: Location, lanes: Number) -> Number:
        return lanes

    def _signed(self, at: Location) -> Sign:
        return Sign(at, signed=True)

    def _unsigned(self, at: Location) -> Sign:
        return Sign(at, signed=False)

    # Counts and targets

    def _count(
        self,
        at: Location,
        each: Index | None,
        label: Label | None,
        terms: tuple[Term, ...],
        picking: Picking | None,
        accumulates: Location | None,
        bound: Operand | None,
        target: Operand | None,
        gate: tuple[ConditionText, ...] | None,
        width: Number | None,
    ) -> CountText:
        return CountText(
            each, label, terms, accumulates is not None, bound, target, gate or (), width, at, picking
        )

    def _picking(self, at: Location, order: Picking, until: Location | None) -> Picking:
        return replace(order, whole=until is not None, at=at)

    def _turns(self, at: Location) -> Picking:
        return Picking("turns", whole=False, at=at)

    def _priority(self, at: Location) -> Picking:
        return Picking("priority", whole=False, at=at)

    def _until(self, at: Location) -> Location:
        return at

    def _own_label(self, at: Location, label: Label) -> Label:
        return label

    def _terms(self, at: Location, *terms: Term) -> tuple[Term, ...]:
        return terms

    def _term(self, at: Location, value: Number, over: Index | None) -> Term:
        return Term(value, over, at)

    def _added(self, at: Location, term: Term) -> Term:
        return term

    def _subtracted(self, at: Location, term: Term) -> Term:
        return replace(term, sign=-1)

    def _over(self, at: Location, index: Index) -> Index:
        return index

    def _over_cycles(self, at: Location) -> Location:
        return at

    def _bound(self, at: Location, bound: Operand) -> Operand:
        return bound

    def _reaches(self, at: Location, target: Operand) -> Operand:
        return target

    def _while(self, at: Location, holds: Operand) -> tuple[ConditionText, ...]:
        return tuple(_conditions(holds))

    def _width(self, at: Location, width: Number) -> Number:
        return width

    def _target(
        self, at: Location, name: Part | None, reach: Any, value: Any, carry: Any, width: Number | None
    ) -> TargetText:
        number = None if isinstance(value, Location) else value
        label = name.name if name else None
        return TargetText(
            label, number, reach is not None and reach.name == "at least", carry is not None, width, at
        )

    def _at_least(self, at: Location, word: Any) -> Part:
        return Part(" ".join(str(word).split()), None, self._location(word))

    def _carry(self, at: Location) -> Location:
        return at

    def _own_name(self, at: Location, name: Any) -> Part:
        return Part(self._name(name), None, at)

    def _never(self, at: Location) -> Location:
        return at


def _conditions(holds: Operand) -> Iterator[ConditionText]:
    """Return the conditions of which all must hold."""
    if isinstance(holds, Formula) and holds.operator == "and":
        for each in holds.operands:
            yield from _conditions(each)
    elif isinstance(holds, Formula) and holds.operator == "not":
        yield ConditionText(holds.operands[0], negated=True)
    else:
        yield ConditionText(holds, negated=False)
