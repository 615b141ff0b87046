"""Builder of syntax nodes from the parse tree of lark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from fpga.count_action.actions import VERBS
from fpga.count_action.diagnostics import Report, make_diagnostic, quote
from fpga.count_action.language.syntax import (
    MAX_NAME,
    RESERVED,
    ActionText,
    Argument,
    ClaimText,
    ConditionText,
    CountText,
    FileText,
    Formula,
    Import,
    Index,
    InputText,
    Integer,
    Label,
    ModuleText,
    Number,
    Operand,
    Operation,
    Operator,
    ParameterText,
    Part,
    Picking,
    Range,
    Ranged,
    Reference,
    Section,
    Sign,
    TableText,
    TargetText,
    Term,
    Use,
    VerbText,
    Wire,
)
from fpga.count_action.model import Location, SignalKind

MAX_DEPTH = 50
"""Largest depth of nested operations."""
_MAX_DIGITS = 15
_MAX_HEXADECIMAL_DIGITS = 12
_KEPT_TOKENS = frozenset({"NAME", "INTEGER", "STRING", "RELATION", "MOVE", "AT_LEAST", "EXACTLY"})
"""Tokens that become parts of a node; all others are keywords and punctuation."""
_KEYWORD_RULES = frozenset(
    {"and_keep", "buffered", "by_priority", "carry", "never", "over_cycles", "until", "wins", "with_index"}
)
"""Rules that consist of a keyword. Their node is the location of the keyword."""
_SINGLE_PART_RULES = frozenset(
    [
        "added",
        "added_sample",
        "addend",
        "as_name",
        "bound",
        "bracketed",
        "default",
        "each",
        "element",
        "lanes",
        "on",
        "over",
        "own_label",
        "reaches",
        "shift",
        "width",
    ]
)  # fmt: skip
"""Rules whose node is their only part."""
_TUPLE_RULES = frozenset({"arguments", "parameters", "terms", "wires"})
_SECTIONS = frozenset({"actions", "counts", "inputs", "tables", "targets"})
_EXTREMES = {"largest": "max", "smallest": "min"}
_FUNCTIONS: dict[str, Operator] = {"max": "max", "min": "min", "table": "table", "concat": "concat"}


class TreeBuilder:
    """Builds the nodes of `syntax` from the nodes of lark. Rules that no table above names have a private method.

    A method receives the location of its first token, and its parts: nodes, tokens, and None for an absent part. The
    kinds of actions build the verbs.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self.report = Report()

    def build(self, rule: str, children: list[Any]) -> Any:
        """Return the node of a rule, from the nodes of its parts."""
        at = next((self._location(each) for each in children if each is not None), Location(self._file, 1, 1))
        parts = [each for each in children if getattr(each, "type", "NAME") in _KEPT_TOKENS]
        if rule in _KEYWORD_RULES:
            node: Any = at
        elif rule in _SINGLE_PART_RULES:
            (node,) = parts
        elif rule in _TUPLE_RULES:
            node = tuple(parts)
        elif rule in _SECTIONS:
            node = Section(rule, tuple(parts), at)
        elif rule in _EXTREMES:
            node = _EXTREMES[rule]
        elif rule in VERBS:
            fields: dict[str, Any] = {"verb": rule, "at": at}
            node = VerbText(**fields | VERBS[rule].parse(rule, *parts))
        else:
            node = getattr(self, f"_{rule.strip('_')}")(at, *parts)
        return node

    # Files

    def _start(self, at: Location, *statements: Any) -> FileText:
        return FileText(statements)

    def _import(self, at: Location, path: Any) -> Import:
        return Import(str(path)[1:-1], self._location(path))

    def _use(
        self, at: Location, module: Any, arguments: Any, instance: Label, over: Index | None, wires: Any
    ) -> Use:
        return Use(str(module), arguments or (), instance, over, wires or (), self._location(module))

    def _argument(self, at: Location, name: Any, value: Number) -> Argument:
        return Argument(str(name), value, at)

    def _wire(self, at: Location, name: Any, reference: Reference) -> Wire:
        return Wire(str(name), reference, at)

    # Modules

    def _module(self, at: Location, name: Any, parameters: Any, *sections: Section | VerbText) -> ModuleText:
        items: dict[str, Any] = {
            "inputs": (), "counts": (), "targets": (), "tables": (), "actions": (), "claims": (), "memories": ()
        }  # fmt: skip
        for section in sections:
            if isinstance(section, VerbText):
                items["memories"] += (section,)
                continue
            items[section.kind] += section.items
        return ModuleText(self._name(name), parameters or (), **items, at=self._location(name))

    def _parameter(self, at: Location, name: Any, default: Number | None) -> ParameterText:
        return ParameterText(self._name(name), default, at)

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

    def _with_ends(self, at: Location, keep: Location | None) -> tuple[str, ...]:
        return ("last",) if keep is None else ("last", "keep")

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

    def _term(self, at: Location, value: Number, over: Index | None) -> Term:
        return Term(value, over, at)

    def _subtracted(self, at: Location, term: Term) -> Term:
        return replace(term, sign=-1)

    def _while(self, at: Location, holds: Operand) -> tuple[ConditionText, ...]:
        return tuple(_conditions(holds))

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

    def _own_name(self, at: Location, name: Any) -> Part:
        return Part(self._name(name), None, at)

    # Actions

    def _action(self, at: Location, each: Index | None, on: Label | None, does: VerbText) -> ActionText:
        return ActionText(each, on, does, at)

    def _ends(self, at: Location, *ends: Operand | None) -> tuple[Operand, ...]:
        return tuple(each for each in ends if each is not None)

    def _minus_sample(self, at: Location, value: Operand) -> Operand:
        if isinstance(value, Ranged):
            return replace(value, value=self._opposite(at, value.value))
        return self._opposite(at, value)

    # Formulas

    def _either(self, at: Location, left: Operand, right: Operand) -> Operand:
        return self._formula(at, "or", left, right)

    def _both(self, at: Location, left: Operand, right: Operand) -> Operand:
        return self._formula(at, "and", left, right)

    def _inverse(self, at: Location, operand: Operand) -> Operand:
        return self._formula(at, "not", operand)

    def _compared(self, at: Location, left: Operand, relation: Any, right: Operand) -> Operand:
        operator: Any = str(relation)
        return self._formula(at, operator, left, right)

    def _moved(self, at: Location, value: Operand, direction: Any, bits: Number) -> Operand:
        operator: Any = str(direction)
        return self._formula(at, operator, value, numbers=(bits,))

    def _sliced(self, at: Location, value: Operand, bits: Range) -> Operand:
        return self._formula(at, "slice", value, numbers=(bits.high, bits.low))

    def _bits(self, at: Location, high: Number, low: Number) -> Range:
        return Range(low, high, at)

    def _part_of_bits(self, at: Location, name: Any, index: Number | None, bits: Range) -> Operand:
        return self._sliced(at, Reference((self._part(at, name, index),), at), bits)

    def _bits_of_name(self, at: Location, *parts: Any) -> Operand:
        *owners, formula = parts
        before = tuple(part for owner in owners for part in owner.parts)
        (last,) = formula.operands
        return Formula("slice", (Reference((*before, *last.parts), at),), at, formula.depth, formula.numbers)

    def _total(self, at: Location, left: Operand, right: Operand) -> Operand:
        return self._formula(at, "+", left, right)

    def _difference(self, at: Location, left: Operand, right: Operand) -> Operand:
        return self._formula(at, "-", left, right)

    def _opposite(self, at: Location, operand: Operand) -> Operand:
        return self._formula(at, "-", Integer(0, at), operand)

    def _choice(self, at: Location, value: Operand, condition: Operand, other: Operand) -> Operand:
        return self._formula(at, "if", condition, value, other)

    def _ranged(self, at: Location, value: Operand, over: Index) -> Ranged:
        return Ranged(value, over, at)

    def _call(self, at: Location, function: Reference, *arguments: Operand) -> Operand:
        operator = _FUNCTIONS.get(function.plain or "")
        if operator is None:
            message = f"{quote(str(function))} is not a function of the language"
            hint = "Use `max(a, b, ...)`, `min(a, b, ...)`, `concat(a, b, ...)` or `table(index, first, second, ...)`."
            hint = "Write `max(x, 0)`." if function.plain == "relu" else hint
            self.report.error(make_diagnostic(at, message, hint))
            return Integer(0, at)
        return self._formula(at, operator, *arguments)

    def _formula(
        self, at: Location, operator: Operator, *operands: Operand, numbers: tuple[Number, ...] = ()
    ) -> Operand:
        depth = 1 + max(each.depth for each in operands)
        if depth > MAX_DEPTH:
            message = f"the formula nests more than {MAX_DEPTH} operations"
            self.report.error(make_diagnostic(at, message, "Split it between two modules."))
            return Integer(0, at)
        return Formula(operator, operands, at, depth, numbers)

    # Names and numbers

    def _location(self, node: Any) -> Location:
        if isinstance(node, Location):
            return node
        line = getattr(node, "line", None)
        return node.at if line is None else Location(self._file, line, node.column)

    def _name(self, token: Any) -> str:
        name = str(token)
        if name in RESERVED:
            message = f"{quote(name)} is a keyword of the language and cannot be a name"
            self.report.error(
                make_diagnostic(self._location(token), message, f"Use another name, such as {name}_1.")
            )
        if len(name) > MAX_NAME:
            message = f"this name has {len(name)} characters; at most {MAX_NAME} are allowed"
            self.report.error(make_diagnostic(self._location(token), message, "Shorten it."))
        return name

    def _index(self, at: Location, name: Any, low: Number, high: Number) -> Index:
        return Index(self._name(name), low, high, at)

    def _label(self, at: Location, name: Any, index: Number | None) -> Label:
        return Label(self._name(name), index, at)

    def _reference(self, at: Location, part: Part) -> Reference:
        return Reference((part,), at)

    def _longer(self, at: Location, reference: Reference, part: Part) -> Reference:
        return Reference((*reference.parts, part), at)

    def _part(self, at: Location, name: Any, index: Number | None) -> Part:
        return Part(str(name), index, at)

    def _integer(self, at: Location, digits: Any) -> Integer:
        is_hexadecimal = str(digits)[:2].lower() == "0x"
        text = (str(digits)[2:] if is_hexadecimal else str(digits)).lstrip("0") or "0"
        if len(text) > (_MAX_HEXADECIMAL_DIGITS if is_hexadecimal else _MAX_DIGITS):
            message = f"this number has {len(text)} digits, which is too large"
            self.report.error(
                make_diagnostic(at, message, "The largest count is 2^48 - 1 = 281474976710655.")
            )
            return Integer(0, at)
        return Integer(int(text, 16 if is_hexadecimal else 10), at)

    def _add(self, at: Location, left: Number, right: Number) -> Number:
        return self._operation("+", left, right)

    def _subtract(self, at: Location, left: Number, right: Number) -> Number:
        return self._operation("-", left, right)

    def _multiply(self, at: Location, left: Number, right: Number) -> Number:
        return self._operation("*", left, right)

    def _divide(self, at: Location, left: Number, right: Number) -> Number:
        return self._operation("/", left, right)

    def _negative(self, at: Location, value: Number) -> Number:
        return self._operation("-", Integer(0, at), value)

    def _operation(self, operator: Literal["+", "-", "*", "/"], left: Number, right: Number) -> Number:
        depth = max(left.depth, right.depth) + 1
        if depth > MAX_DEPTH:
            message = f"this number nests more than {MAX_DEPTH} operations"
            self.report.error(make_diagnostic(left.at, message, "Write its value."))
            return Integer(0, left.at)
        return Operation(operator, left, right, left.at, depth)


def _conditions(holds: Operand) -> Iterator[ConditionText]:
    """Yield the conditions that must all hold: the operands of nested `and`, with `not` as negation."""
    if isinstance(holds, Formula) and holds.operator == "and":
        for each in holds.operands:
            yield from _conditions(each)
    elif isinstance(holds, Formula) and holds.operator == "not":
        yield ConditionText(holds.operands[0], negated=True)
    else:
        yield ConditionText(holds, negated=False)
