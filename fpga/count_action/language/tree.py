"""Builder of syntax nodes from the parse tree of lark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from fpga.count_action.actions import VERBS
from fpga.count_action.diagnostics import Report, make_diagnostic, quote
from fpga.count_action.language.syntax import (
    MAX_NAME_LENGTH,
    RESERVED_WORDS,
    ActionText,
    ArbitrationText,
    Argument,
    ClaimText,
    ConditionText,
    CountText,
    FileText,
    Formula,
    ImportText,
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
    Range,
    RangedOperand,
    Reference,
    Section,
    Sign,
    TableText,
    TargetText,
    Term,
    UseText,
    VerbText,
    WireText,
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
        location = next(
            (self._location(child) for child in children if child is not None), Location(self._file, 1, 1)
        )
        parts = [child for child in children if getattr(child, "type", "NAME") in _KEPT_TOKENS]
        if rule in _KEYWORD_RULES:
            node: Any = location
        elif rule in _SINGLE_PART_RULES:
            (node,) = parts
        elif rule in _TUPLE_RULES:
            node = tuple(parts)
        elif rule in _SECTIONS:
            node = Section(rule, tuple(parts), location)
        elif rule in _EXTREMES:
            node = _EXTREMES[rule]
        elif rule in VERBS:
            fields: dict[str, Any] = {"verb": rule, "location": location}
            node = VerbText(**fields | VERBS[rule].parse(rule, *parts))
        else:
            node = getattr(self, f"_{rule.strip('_')}")(location, *parts)
        return node

    # Files

    def _start(self, location: Location, *statements: Any) -> FileText:
        return FileText(statements)

    def _import(self, location: Location, path: Any) -> ImportText:
        return ImportText(str(path)[1:-1], self._location(path))

    def _use(
        self,
        location: Location,
        module: Any,
        arguments: Any,
        instance: Label,
        index: Index | None,
        wires: Any,
    ) -> UseText:
        return UseText(str(module), arguments or (), instance, index, wires or (), self._location(module))

    def _argument(self, location: Location, name: Any, value: Number) -> Argument:
        return Argument(str(name), value, location)

    def _wire(self, location: Location, name: Any, reference: Reference) -> WireText:
        return WireText(str(name), reference, location)

    # Modules

    def _module(
        self, location: Location, name: Any, parameters: Any, *sections: Section | VerbText
    ) -> ModuleText:
        items: dict[str, Any] = {
            "inputs": (), "counts": (), "targets": (), "tables": (), "actions": (), "claims": (), "memories": ()
        }  # fmt: skip
        for section in sections:
            if isinstance(section, VerbText):
                items["memories"] += (section,)
                continue
            items[section.kind] += section.items
        return ModuleText(self._name(name), parameters or (), **items, location=self._location(name))

    def _parameter(self, location: Location, name: Any, default: Number | None) -> ParameterText:
        return ParameterText(self._name(name), default, location)

    def _table(self, location: Location, name: Any, span: Range, *parts: Any) -> TableText:
        *entries, width = parts
        values = tuple(None if isinstance(entry, Location) else entry for entry in entries)
        return TableText(self._name(name), span, values, width, location)

    def _always(self, location: Location, *claims: ClaimText) -> Section:
        return Section("claims", tuple(replace(claim, kind="always") for claim in claims), location)

    def _nevers(self, location: Location, *claims: ClaimText) -> Section:
        return Section("claims", tuple(replace(claim, kind="never") for claim in claims), location)

    def _assume(self, location: Location, *claims: ClaimText) -> Section:
        return Section("claims", tuple(replace(claim, kind="assume") for claim in claims), location)

    def _claim(self, location: Location, name: Part | None, condition: Operand) -> ClaimText:
        return ClaimText("always", name.name if name else None, condition, location)

    # Inputs

    def _stream_input(self, location: Location, name: Any, span: Any, *shape: Any) -> InputText:
        lanes, width, signed, end_kinds, buffered = shape
        name_location, is_signed = self._location(name), signed is not None
        return InputText(
            SignalKind.STREAM,
            self._name(name),
            span,
            lanes,
            width,
            is_signed,
            name_location,
            end_kinds or (),
            buffered is not None,
        )

    def _with_ends(self, location: Location, keep: Location | None) -> tuple[str, ...]:
        return ("last",) if keep is None else ("last", "keep")

    def _flag_input(self, location: Location, name: Any, span: Any) -> InputText:
        return InputText(
            SignalKind.FLAG, self._name(name), span, None, None, signed=False, location=self._location(name)
        )

    def _number_input(self, location: Location, name: Any, span: Any, width: Any) -> InputText:
        return InputText(
            SignalKind.NUMBER,
            self._name(name),
            span,
            None,
            width,
            signed=False,
            location=self._location(name),
        )

    def _range(self, location: Location, low: Number, high: Number) -> Range:
        return Range(low, high, location)

    def _signed(self, location: Location) -> Sign:
        return Sign(location, signed=True)

    def _unsigned(self, location: Location) -> Sign:
        return Sign(location, signed=False)

    # Counts and targets

    def _count(
        self,
        location: Location,
        index: Index | None,
        label: Label | None,
        terms: tuple[Term, ...],
        arbitration: ArbitrationText | None,
        over_cycles: Location | None,
        bound: Operand | None,
        target: Operand | None,
        conditions: tuple[ConditionText, ...] | None,
        width: Number | None,
    ) -> CountText:
        return CountText(
            index,
            label,
            terms,
            over_cycles is not None,
            bound,
            target,
            conditions or (),
            width,
            location,
            arbitration,
        )

    def _picking(
        self, location: Location, arbitration: ArbitrationText, until: Location | None
    ) -> ArbitrationText:
        return replace(arbitration, takes_whole_frames=until is not None, location=location)

    def _turns(self, location: Location) -> ArbitrationText:
        return ArbitrationText("turns", takes_whole_frames=False, location=location)

    def _priority(self, location: Location) -> ArbitrationText:
        return ArbitrationText("priority", takes_whole_frames=False, location=location)

    def _term(self, location: Location, value: Number, index: Index | None) -> Term:
        return Term(value, index, location)

    def _subtracted(self, location: Location, term: Term) -> Term:
        return replace(term, sign=-1)

    def _while(self, location: Location, condition: Operand) -> tuple[ConditionText, ...]:
        return tuple(_conditions(condition))

    def _target(
        self,
        location: Location,
        name: Part | None,
        comparison: Any,
        value: Any,
        carry: Any,
        width: Number | None,
    ) -> TargetText:
        number = None if isinstance(value, Location) else value
        target_name = name.name if name else None
        return TargetText(
            target_name,
            number,
            comparison is not None and comparison.name == "at least",
            carry is not None,
            width,
            location,
        )

    def _at_least(self, location: Location, word: Any) -> Part:
        return Part(" ".join(str(word).split()), None, self._location(word))

    def _own_name(self, location: Location, name: Any) -> Part:
        return Part(self._name(name), None, location)

    # Actions

    def _action(
        self, location: Location, index: Index | None, count_label: Label | None, verb_text: VerbText
    ) -> ActionText:
        return ActionText(index, count_label, verb_text, location)

    def _ends(self, location: Location, *conditions: Operand | None) -> tuple[Operand, ...]:
        return tuple(condition for condition in conditions if condition is not None)

    def _minus_sample(self, location: Location, value: Operand) -> Operand:
        if isinstance(value, RangedOperand):
            return replace(value, value=self._opposite(location, value.value))
        return self._opposite(location, value)

    # Formulas

    def _either(self, location: Location, left_operand: Operand, right_operand: Operand) -> Operand:
        return self._formula(location, "or", left_operand, right_operand)

    def _both(self, location: Location, left_operand: Operand, right_operand: Operand) -> Operand:
        return self._formula(location, "and", left_operand, right_operand)

    def _inverse(self, location: Location, operand: Operand) -> Operand:
        return self._formula(location, "not", operand)

    def _compared(
        self, location: Location, left_operand: Operand, relation: Any, right_operand: Operand
    ) -> Operand:
        operator: Any = str(relation)
        return self._formula(location, operator, left_operand, right_operand)

    def _moved(self, location: Location, value: Operand, direction: Any, bits: Number) -> Operand:
        operator: Any = str(direction)
        return self._formula(location, operator, value, numbers=(bits,))

    def _sliced(self, location: Location, value: Operand, bits: Range) -> Operand:
        return self._formula(location, "slice", value, numbers=(bits.high, bits.low))

    def _bits(self, location: Location, high: Number, low: Number) -> Range:
        return Range(low, high, location)

    def _part_of_bits(self, location: Location, name: Any, index: Number | None, bits: Range) -> Operand:
        return self._sliced(location, Reference((self._part(location, name, index),), location), bits)

    def _bits_of_name(self, location: Location, *parts: Any) -> Operand:
        *owners, formula = parts
        owner_parts = tuple(part for owner in owners for part in owner.parts)
        (name,) = formula.operands
        return Formula(
            "slice",
            (Reference((*owner_parts, *name.parts), location),),
            location,
            formula.depth,
            formula.numbers,
        )

    def _total(self, location: Location, left_operand: Operand, right_operand: Operand) -> Operand:
        return self._formula(location, "+", left_operand, right_operand)

    def _difference(self, location: Location, left_operand: Operand, right_operand: Operand) -> Operand:
        return self._formula(location, "-", left_operand, right_operand)

    def _opposite(self, location: Location, operand: Operand) -> Operand:
        return self._formula(location, "-", Integer(0, location), operand)

    def _choice(
        self, location: Location, value: Operand, condition: Operand, alternative: Operand
    ) -> Operand:
        return self._formula(location, "if", condition, value, alternative)

    def _ranged(self, location: Location, value: Operand, index: Index) -> RangedOperand:
        return RangedOperand(value, index, location)

    def _call(self, location: Location, function: Reference, *arguments: Operand) -> Operand:
        operator = _FUNCTIONS.get(function.plain_name or "")
        if operator is None:
            message = f"{quote(str(function))} is not a function of the language"
            hint = "Use `max(a, b, ...)`, `min(a, b, ...)`, `concat(a, b, ...)` or `table(index, first, second, ...)`."
            hint = "Write `max(x, 0)`." if function.plain_name == "relu" else hint
            self.report.add_error(make_diagnostic(location, message, hint))
            return Integer(0, location)
        return self._formula(location, operator, *arguments)

    def _formula(
        self, location: Location, operator: Operator, *operands: Operand, numbers: tuple[Number, ...] = ()
    ) -> Operand:
        depth = 1 + max(operand.depth for operand in operands)
        if depth > MAX_DEPTH:
            message = f"the formula nests more than {MAX_DEPTH} operations"
            self.report.add_error(make_diagnostic(location, message, "Split it between two modules."))
            return Integer(0, location)
        return Formula(operator, operands, location, depth, numbers)

    # Names and numbers

    def _location(self, node: Any) -> Location:
        if isinstance(node, Location):
            return node
        line = getattr(node, "line", None)
        return node.location if line is None else Location(self._file, line, node.column)

    def _name(self, token: Any) -> str:
        name = str(token)
        if name in RESERVED_WORDS:
            message = f"{quote(name)} is a keyword of the language and cannot be a name"
            self.report.add_error(
                make_diagnostic(self._location(token), message, f"Use another name, such as {name}_1.")
            )
        if len(name) > MAX_NAME_LENGTH:
            message = f"this name has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
            self.report.add_error(make_diagnostic(self._location(token), message, "Shorten it."))
        return name

    def _index(self, location: Location, name: Any, low: Number, high: Number) -> Index:
        return Index(self._name(name), low, high, location)

    def _label(self, location: Location, name: Any, index: Number | None) -> Label:
        return Label(self._name(name), index, location)

    def _reference(self, location: Location, part: Part) -> Reference:
        return Reference((part,), location)

    def _longer(self, location: Location, reference: Reference, part: Part) -> Reference:
        return Reference((*reference.parts, part), location)

    def _part(self, location: Location, name: Any, index: Number | None) -> Part:
        return Part(str(name), index, location)

    def _integer(self, location: Location, digits: Any) -> Integer:
        is_hexadecimal = str(digits)[:2].lower() == "0x"
        text = (str(digits)[2:] if is_hexadecimal else str(digits)).lstrip("0") or "0"
        if len(text) > (_MAX_HEXADECIMAL_DIGITS if is_hexadecimal else _MAX_DIGITS):
            message = f"this number has {len(text)} digits, which is too large"
            self.report.add_error(
                make_diagnostic(location, message, "The largest count is 2^48 - 1 = 281474976710655.")
            )
            return Integer(0, location)
        return Integer(int(text, 16 if is_hexadecimal else 10), location)

    def _add(self, location: Location, left_operand: Number, right_operand: Number) -> Number:
        return self._operation("+", left_operand, right_operand)

    def _subtract(self, location: Location, left_operand: Number, right_operand: Number) -> Number:
        return self._operation("-", left_operand, right_operand)

    def _multiply(self, location: Location, left_operand: Number, right_operand: Number) -> Number:
        return self._operation("*", left_operand, right_operand)

    def _divide(self, location: Location, left_operand: Number, right_operand: Number) -> Number:
        return self._operation("/", left_operand, right_operand)

    def _negative(self, location: Location, value: Number) -> Number:
        return self._operation("-", Integer(0, location), value)

    def _operation(
        self, operator: Literal["+", "-", "*", "/"], left_operand: Number, right_operand: Number
    ) -> Number:
        depth = max(left_operand.depth, right_operand.depth) + 1
        if depth > MAX_DEPTH:
            message = f"this number nests more than {MAX_DEPTH} operations"
            self.report.add_error(make_diagnostic(left_operand.location, message, "Write its value."))
            return Integer(0, left_operand.location)
        return Operation(operator, left_operand, right_operand, left_operand.location, depth)


def _conditions(condition: Operand) -> Iterator[ConditionText]:
    """Yield the conditions that must all hold: the operands of nested `and`, with `not` as negation."""
    if isinstance(condition, Formula) and condition.operator == "and":
        for operand in condition.operands:
            yield from _conditions(operand)
    elif isinstance(condition, Formula) and condition.operator == "not":
        yield ConditionText(condition.operands[0], is_negated=True)
    else:
        yield ConditionText(condition, is_negated=False)
