"""Constant numbers of the language: integers, parameters and index names, combined with + - * /."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fpga.count_action.diagnostics import SourceError, quote, suggest_name
from fpga.count_action.language.syntax import (
    Formula,
    Index,
    Integer,
    Number,
    Operand,
    Operation,
    Range,
    RangedOperand,
    Reference,
)
from fpga.count_action.model import MAX_LANES, Location

MAX_MAGNITUDE = 2**56
"""Largest magnitude of an intermediate result; the results themselves are much smaller."""

Values = Mapping[str, int]


def evaluate(number: Number, values: Values) -> int:
    """Return the value of a number. Division rounds down. Raise `SourceError` for anything that is not constant."""
    if isinstance(number, Integer):
        return number.value
    if isinstance(number, Reference):
        name = number.plain_name
        if name in values and name is not None:
            return values[name]
        if name is None:
            message = f"{quote(str(number))} is a signal; a number must be known before the hardware is built"
            raise SourceError(number.location, message, "Use integers, parameters and index names.")
        message = f"{quote(name)} is not a number that is known here"
        declaration = (
            f"Declare it: module NAME ({name} = 16)." if len(name) < 40 else "Declare it as a parameter."
        )
        hint = f"{declaration} A signal cannot be an index or a bound."
        raise SourceError(number.location, message, f"{suggest_name(name, values)} {hint}".strip())
    left, right = evaluate(number.left, values), evaluate(number.right, values)
    result = _operate(number, left, right)
    if abs(result) > MAX_MAGNITUDE:
        message = f"this number is about 2^{result.bit_length() - 1}, which is too large"
        raise SourceError(number.location, message, "The largest count is 2^48 - 1.")
    return result


def _operate(number: Operation, left: int, right: int) -> int:
    if number.operator == "+":
        return left + right
    if number.operator == "-":
        return left - right
    if number.operator == "*":
        return left * right
    if right == 0:
        raise SourceError(
            number.location, f"division of {left} by zero", "Check the parameters in the divisor."
        )
    return left // right


def list_names(number: Number | Operand | None) -> Iterator[str]:
    """Yield the plain names in a number or a formula, including names in the indices of its signals."""
    if isinstance(number, Operation):
        yield from list_names(number.left)
        yield from list_names(number.right)
    elif isinstance(number, Formula):
        for operand in (*number.operands, *number.numbers):
            yield from list_names(operand)
    elif isinstance(number, RangedOperand):
        yield from list_names(number.value)
    elif isinstance(number, Reference):
        if number.plain_name is not None:
            yield number.plain_name
        for part in number.parts:
            yield from list_names(part.index)


def list_indices(operand: Operand) -> Iterator[Index]:
    """Yield the indices of the ranges in a formula."""
    if isinstance(operand, RangedOperand):
        yield operand.index
        yield from list_indices(operand.value)
    elif isinstance(operand, Formula):
        for part in operand.operands:
            yield from list_indices(part)


def evaluate_range(span: Range | Index, values: Values) -> range:
    """Return the values of an index, both ends included. Raise `SourceError` as `check_span` does."""
    low, high = evaluate(span.low, values), evaluate(span.high, values)
    return check_span(low, high, span.location)


def check_span(low: int, high: int, location: Location) -> range:
    """Return the range `low` to `high`, both included. Raise `SourceError` if it is empty, negative or too long."""
    if low < 0:
        raise SourceError(location, f"the range starts at {low}", "Start at 0 or 1.")
    if high < low:
        raise SourceError(
            location, f"the range from {low} to {high} is empty", "Its end must not be less than its start."
        )
    if high - low >= MAX_LANES:
        message = (
            f"the range from {low} to {high} has {high - low + 1} elements; at most {MAX_LANES} are allowed"
        )
        raise SourceError(location, message, "Split it, or use a smaller parameter (-P NAME=VALUE).")
    return range(low, high + 1)
