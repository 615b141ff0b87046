"""Elaboration of references and formulas: numbers are evaluated, ranges and tables are expanded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fpga.count_action.diagnostics import Report, SourceError, explain_memory_in_formula, quote
from fpga.count_action.elaboration.arithmetic import Values, evaluate, evaluate_range, list_names
from fpga.count_action.elaboration.flat import (
    FlatFormula,
    FlatOperand,
    FlatReference,
    Suffix,
    list_references,
)
from fpga.count_action.expressions import MAX_BITS
from fpga.count_action.language.syntax import (
    CountText,
    Formula,
    Index,
    Integer,
    Number,
    Operand,
    Operation,
    RangedOperand,
    Reference,
    Term,
)
from fpga.count_action.model import Location

END_SIGNALS = frozenset({"last", "keep"})
"""Fields of a beat of a packet besides its samples (R18)."""
_MAX_ITEMS = 65_536
"""Largest number of terms, samples, counts and actions of a datapath after expansion."""


@dataclass
class FormulaElaborator:
    """Expands the formulas of one module after the other, up to a limit on the number of items."""

    report: Report
    _item_count: int = 0
    _shadowing_targets: frozenset[str] = frozenset()
    """Targets that share their name with a parameter of the module. In a formula the name refers to the target."""
    _target_names: frozenset[str] = frozenset()
    _table_ranges: dict[str, range] = field(default_factory=dict)
    """Tables of the module, and their indices."""
    _memory_names: frozenset[str] = frozenset()
    """Memories of the module, which formulas cannot read."""

    def _check_item_limit(self, location: Location) -> None:
        """Count an item of the datapath. Raise the errors of the report if there are too many."""
        self._item_count += 1
        if self._item_count > _MAX_ITEMS:
            message = f"these ranges expand to more than {_MAX_ITEMS} terms, samples, counts and actions"
            self.report.add_error(SourceError(location, message, "Use smaller ranges.").diagnostic)
            self.report.raise_errors()

    def _expand_operand(self, operand: Operand, values: Values) -> Iterator[FlatOperand]:
        """Yield the operands that a part of a formula, condition or sample expands to: several if it has a range."""
        if isinstance(operand, RangedOperand):
            for index_values in iterate_term(operand, values):
                yield from self._expand_operand(operand.value, index_values)
            return
        self._check_item_limit(operand.location)
        if isinstance(operand, Formula):
            parts = tuple(
                part
                for part_operand in operand.operands
                if not (isinstance(part_operand, RangedOperand) and _is_empty(part_operand.index, values))
                for part in self._expand_operand(part_operand, values)
            )
            if not parts:
                message = f"{quote(operand.operator)} has no operands: all its ranges are empty"
                raise SourceError(operand.location, message, "Give it one more value, such as 0.")
            if operand.operator == "concat" and any(isinstance(part, int) for part in parts):
                message = "a constant in `concat` has no width"
                raise SourceError(operand.location, message, "Say how many bits it has, here 8: `(0)[7:0]`.")
            yield FlatFormula(operand.operator, (*parts, *_evaluate_bits(operand, values)), operand.location)
        elif isinstance(operand, Integer):
            yield operand.value
        elif len(operand.parts) == 1 and operand.parts[0].name in self._table_ranges:
            yield self._expand_table_entry(operand, values)
        elif len(operand.parts) == 1 and operand.parts[0].name in self._memory_names:
            raise SourceError(operand.location, *explain_memory_in_formula(operand.parts[0].name))
        elif is_signal(operand, values) or operand.plain_name in self._shadowing_targets:
            yield flatten_reference(operand, values)
        else:
            yield evaluate(operand, values)

    def _expand_table_entry(self, reference: Reference, values: Values) -> FlatFormula:
        """Return the formula for the entry of a table at an index, which may be a signal."""
        (part,) = reference.parts
        span = self._table_ranges[part.name]
        if part.index is None:
            message = f"{quote(part.name)} is a table, and no index says which entry"
            raise SourceError(
                reference.location, message, f"Write {part.name}[{span.start}], or the name of a number."
            )
        index = self._expand_index(part.index, values)
        if isinstance(index, int):
            if index not in span:
                message = f"{quote(part.name)} has entries {span.start} to {span.stop - 1}, not {index}"
                raise SourceError(
                    part.index.location, message, "Change the index, or the range of the table."
                )
            span, index = range(index, index + 1), 0
        elif span.start:
            index = FlatFormula("-", (index, span.start), reference.location)
        entry_references = (
            FlatReference(part.name, None, entry_index, "", None, reference.location) for entry_index in span
        )
        return FlatFormula("table", (index, *entry_references), reference.location)

    def _expand_index(self, number: Number, values: Values) -> FlatOperand:
        """Return an index: its value if it is constant, otherwise a formula."""
        if all(name in values for name in list_names(number)) and not _has_signals(number):
            return evaluate(number, values)
        if isinstance(number, Operation):
            if number.operator not in {"+", "-"}:
                message = f"this index applies `{number.operator}` to a signal"
                raise SourceError(number.location, message, "Add and subtract only.")
            parts = (self._expand_index(number.left, values), self._expand_index(number.right, values))
            return FlatFormula("+" if number.operator == "+" else "-", parts, number.location)
        (operand,) = self._expand_operand(number, values)
        return operand

    def _elaborate_target(
        self, count_text: CountText, values: Values
    ) -> tuple[str | None, FlatFormula | None]:
        """Return the name of the target in `to`, and the formula if `to` has one; None for a part that is absent."""
        if count_text.target is None:
            return None, None
        if isinstance(count_text.target, Reference) and count_text.target.plain_name is not None:
            return count_text.target.plain_name, None
        (formula,) = self._expand_operand(count_text.target, values)
        first_signal = next(
            (reference for reference in list_references(formula) if reference.suffix == ""), None
        )
        targets = [reference for reference in list_references(formula) if self._is_target(reference)]
        if not isinstance(formula, FlatFormula) or first_signal is None or not targets:
            message = "this is neither a target nor a formula of targets"
            raise SourceError(
                count_text.target.location,
                message,
                "Write `to NAME`, `to TABLE[index]` or `to max(NAME, ...)`.",
            )
        return targets[0].label, formula

    def _elaborate_bound(self, count_text: CountText, values: Values) -> FlatFormula | None:
        """Return the bound of a count as a formula (a number or target alone is wrapped in `min`), or None."""
        if count_text.bound is None:
            return None
        (formula,) = self._expand_operand(count_text.bound, values)
        return (
            formula
            if isinstance(formula, FlatFormula)
            else FlatFormula("min", (formula,), count_text.bound.location)
        )

    def _is_target(self, reference: FlatReference) -> bool:
        return reference.module is None and not reference.suffix and reference.label in self._target_names


def iterate_term(term: Term | RangedOperand, values: Values) -> Iterator[Values]:
    """Yield `values` extended by each value of the index of a term; `values` alone if the term has no index.

    Raise `SourceError` if the term does not use the index.
    """
    if term.index and term.index.name not in list_names(term.value):
        message = f"the index {quote(term.index.name)} is not used in its term"
        raise SourceError(
            term.index.location, message, f"Write NAME[{term.index.name}], or remove the range."
        )
    yield from iterate_index(term.index, values)


def flatten_reference(reference: Reference, values: Values) -> FlatReference:
    """Return a reference with its numbers evaluated. Raise `SourceError` if its parts do not form a signal."""
    parts = [
        (part.name, None if part.index is None else evaluate_element(part.index, values))
        for part in reference.parts
    ]
    suffix: Suffix = ""
    lane = None
    if len(parts) > 1 and parts[-1][0] in {"valid", "data"}:
        suffix_name, lane = parts.pop()
        suffix = "valid" if suffix_name == "valid" else "data"
    if suffix == "valid" and lane is not None:
        raise SourceError(
            reference.location,
            f"`valid[{lane}]`: a beat has one valid bit",
            "Write the index after the name.",
        )
    # `last` and `keep` of a stream are signals of their own, STREAM_last and STREAM_keep.
    if len(parts) == 3 and parts[-1][0] in END_SIGNALS:
        name, lane_of_end = parts.pop()
        stream, _ = parts.pop()
        parts.append((f"{stream}_{name}", lane_of_end))
    if len(parts) > 2 or parts[-1][0] in {"valid", "data"}:
        message = f"{quote(str(reference))} is not a signal"
        raise SourceError(
            reference.location, message, "Write NAME, MODULE.NAME, and .valid or .data after a stream."
        )
    owner = None
    if len(parts) == 2:
        name, replica = parts.pop(0)
        owner = name if replica is None else f"{name}_{replica}"
    return FlatReference(parts[0][0], owner, parts[0][1], suffix, lane, reference.location)


def evaluate_element(number: Number, values: Values) -> int:
    """Return the index of an element. Raise `SourceError` if it is negative or not constant."""
    index = evaluate(number, values)
    if index < 0:
        raise SourceError(
            number.location, f"the index is {index}, which is negative", "Elements are numbered from 0 or 1."
        )
    return index


def is_signal(value: Number, values: Values) -> bool:
    """Return whether a term is a signal rather than a constant."""
    return isinstance(value, Reference) and not (value.plain_name is not None and value.plain_name in values)


def iterate_index(index: Index | None, values: Values) -> Iterator[Values]:
    """Yield `values` extended by each value of an index; `values` alone if `index` is None."""
    if index is None:
        yield values
        return
    for value in evaluate_range(index, values):
        yield {**values, index.name: value}


def _evaluate_bits(formula: Formula, values: Values) -> Iterator[int]:
    """Yield the number of bits of a shift, or the highest and the lowest bit of a slice."""
    if not formula.numbers:
        return
    if any(name not in values for number in formula.numbers for name in list_names(number)):
        if formula.operator == "slice":
            message, hint = (
                "the bits of a slice are not constant",
                "Select among slices: `table(n, x[3:0], x[7:4])`.",
            )
        else:
            message, hint = (
                "the number of bits of a shift is not constant",
                "Write `table(n, x, x << 1, x << 2)`.",
            )
        raise SourceError(formula.numbers[0].location, message, hint)
    bits = [evaluate(number, values) for number in formula.numbers]
    if not all(0 <= number <= MAX_BITS for number in bits):
        is_slice = formula.operator == "slice"
        message = f"{'the slice' if is_slice else 'a shift by'} {':'.join(map(str, bits))} is outside 0 to {MAX_BITS}"
        hint = (
            "Count bits from 0, the lowest."
            if is_slice
            else f"Shift by 0 to {MAX_BITS}; for less than 0 use `>>`."
        )
        raise SourceError(formula.numbers[0].location, message, hint)
    if formula.operator == "slice" and bits[0] < bits[1]:
        message = f"the slice [{bits[0]}:{bits[1]}] begins at its lowest bit"
        raise SourceError(
            formula.numbers[0].location, message, f"Write the highest bit first: [{bits[1]}:{bits[0]}]."
        )
    yield from bits


def _is_empty(index: Index, values: Values) -> bool:
    """Return whether a range ends just before it begins (`1 to 0`): operands of a formula may have such a range."""
    return evaluate(index.high, values) == evaluate(index.low, values) - 1


def _has_signals(number: Number) -> bool:
    """Return whether a number contains a reference that is more than a plain name."""
    if isinstance(number, Operation):
        return _has_signals(number.left) or _has_signals(number.right)
    return isinstance(number, Reference) and number.plain_name is None
