"""Checks of formulas: their signals exist, their values are not too large, and their comparisons are not constant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fpga.count_action.diagnostics import Diagnostics, make_diagnostic, quote, suggest_name
from fpga.count_action.expressions import (
    COMPARISON_OPERATORS,
    LARGEST_VALUE,
    MAX_BITS,
    OPERATORS,
    STORED_OPERATORS,
    Interval,
    count_bits,
    get_constant,
    list_leaves,
)
from fpga.count_action.graph import Graph
from fpga.count_action.model import (
    Count,
    CountKind,
    Datapath,
    Location,
    Module,
    Operand,
    Operation,
    Ref,
    is_formula_ref,
)

RefCheck = Callable[[Ref, Location | None], Diagnostics]


def find_formula_errors(graph: Graph, module: Module, find_ref_errors: RefCheck) -> Diagnostics:
    """Yield the errors of the formulas of a module; `find_ref_errors` yields the errors of a reference to a signal."""
    for value in (*module.values, *(claim.holds for claim in module.claims)):
        errors = [
            *_find_operator_errors(value),
            *_find_reference_errors(graph.datapath, module, value, find_ref_errors),
        ]
        yield from errors
        if not errors:
            yield from _find_large_values(graph, module, value)


def find_value_errors(module: Module, ref: Ref, location: Location | None) -> Diagnostics:
    """Yield an error if a reference names a formula that does not exist."""
    try:
        module.value(ref)
    except (IndexError, ValueError):
        yield make_diagnostic(
            location, f"there is no formula {quote(ref.name)} in {quote(module.name)}", "Add it to `values`."
        )


def find_count_formula_errors(graph: Graph, module: Module, count: Count) -> Diagnostics:
    """Yield the errors of the formulas of a count: its target, its bound and its picks."""
    yield from _find_target_errors(graph, module, count)
    yield from _find_bound_errors(graph, module, count)
    for pick in count.picks:
        yield from find_value_errors(module, pick, count.location)


def _find_target_errors(graph: Graph, module: Module, count: Count) -> Diagnostics:
    target_ref = count.aim
    if target_ref is None or [*find_value_errors(module, target_ref, count.location)]:
        return
    targets = [ref.name for operator, ref in list_leaves(module.value(target_ref)) if operator == "target"]
    if count.target not in targets[:1]:
        message = (
            f"the formula that {quote(count.name)} has to reach does not name the target of this count first"
        )
        yield make_diagnostic(
            target_ref.location or count.location,
            message,
            "Name the target of the count first in the formula, or write a target alone.",
        )
    elif min(graph.compute_interval(module.value(target_ref))) < 0:
        message = f"the value that {quote(count.name)} has to reach can be negative"
        yield make_diagnostic(target_ref.location or count.location, message, "Write max(..., 0).")


def _find_bound_errors(graph: Graph, module: Module, count: Count) -> Diagnostics:
    if count.goes_down and count.kind is CountKind.LEVEL:
        message = (
            f"level count {quote(count.name)} cannot go down or have a bound, because it stores no value"
        )
        yield make_diagnostic(count.location, message, "Use CountKind.ACCUMULATE.")
    if count.bound is None or [*find_value_errors(module, count.bound, count.location)]:
        return
    if min(graph.compute_interval(module.value(count.bound))) < 0:
        message = f"the bound of {quote(count.name)} can be negative"
        yield make_diagnostic(count.bound.location or count.location, message, "Write max(..., 0).")


def _find_operator_errors(value: Operand) -> Diagnostics:
    if not isinstance(value, Operation):
        return
    operand_count = len(value.operands)
    if value.operator not in OPERATORS or operand_count not in _OPERAND_COUNTS.get(
        value.operator, range(1, 1 << 20)
    ):
        message = (
            f"a formula applies {quote(value.operator)} to {operand_count} operands, which is not possible"
        )
        yield make_diagnostic(None, message, "See R13 for the operators.")
    elif value.operator in {"<<", ">>", "slice"} and not _has_constant_bits(value):
        message = f"the bits of {quote(value.operator)} are not constants from {MAX_BITS} to 0"
        yield make_diagnostic(None, message, "Give constants, the highest bit of a slice first.")
    elif value.operator == "concat" and not all(map(_is_slice, value.operands)):
        yield make_diagnostic(None, "an operand of `concat` is no slice", "Give each operand a width.")
    for operand in value.operands:
        yield from _find_operator_errors(operand)


def _has_constant_bits(value: Operation) -> bool:
    bits = value.operands[1:]
    numbers = [bit for bit in bits if isinstance(bit, int) and 0 <= bit <= MAX_BITS]
    return len(numbers) == len(bits) and numbers == sorted(numbers, reverse=True)


def _is_slice(operand: Operand) -> bool:
    return isinstance(operand, Operation) and operand.operator == "slice"


_OPERAND_COUNTS: dict[str, range] = {
    **dict.fromkeys(["not", "valid", *STORED_OPERATORS], range(1, 2)),
    **dict.fromkeys(["+", "-", "<<", ">>", "and", "or", *COMPARISON_OPERATORS], range(2, 3)),
    **dict.fromkeys(["if", "slice"], range(3, 4)),
    "table": range(2, 1 << 20),
}


def _find_reference_errors(
    datapath: Datapath, module: Module, value: Operand, find_ref_errors: RefCheck
) -> Diagnostics:
    for operator, ref in list_leaves(value):
        if is_formula_ref(ref):
            yield make_diagnostic(
                ref.location or module.location, "a formula refers to a formula", "Insert the operand itself."
            )
        elif operator in STORED_OPERATORS:
            owner = next((candidate for candidate in datapath.modules if candidate.name == ref.module), None)
            stored_names = _list_stored_names(owner, operator) if owner else []
            if ref.name not in stored_names:
                message = f"there is no {operator} {quote(f'{ref.module}.{ref.name}')}"
                yield make_diagnostic(
                    ref.location or module.location, message, suggest_name(ref.name, stored_names)
                )
        else:
            yield from find_ref_errors(ref, module.location)


def _list_stored_names(owner: Module, operator: str) -> list[str]:
    if operator == "count":
        return [count.name for count in owner.counts]
    return [target.name for target in owner.targets]


def _find_large_values(graph: Graph, module: Module, value: Operand) -> Diagnostics:
    if isinstance(value, Operation) and value.operator not in STORED_OPERATORS | {"valid"}:
        errors = [error for operand in value.operands for error in _find_large_values(graph, module, operand)]
        if errors:
            yield errors[0]
            return
        yield from _find_missing_bits(graph, module, value)
    low, high = graph.compute_interval(value)
    if max(-low, high) > LARGEST_VALUE:
        location = next((ref.location for _, ref in list_leaves(value)), None) or module.location
        message = f"this formula ranges from {low} to {high}; at most 60 bits and a sign are possible"
        yield make_diagnostic(location, message, "Add, shift or join less, or narrower samples.")


def _find_missing_bits(graph: Graph, module: Module, value: Operation) -> Diagnostics:
    """Yield an error for a slice beyond the bits of its value. A constant has any number of bits."""
    if value.operator != "slice" or isinstance(value.operands[0], int):
        return
    width, _ = count_bits(*graph.compute_interval(value.operands[0]))
    if get_constant(value.operands[1]) >= width:
        location = next((ref.location for _, ref in list_leaves(value)), None) or module.location
        message = f"a slice has bit {value.operands[1]}, and its value has bits {width - 1} to 0"
        yield make_diagnostic(location, message, "Use bits that the value has.")


def find_constant_conditions(graph: Graph) -> Diagnostics:
    """Yield a warning for each comparison that is part of a condition and always has the same result."""
    for module in graph.datapath.modules:
        for count in module.counts:
            for condition in count.gate:
                if is_formula_ref(condition.ref):
                    for comparison in _find_comparisons(module.value(condition.ref)):
                        yield from _find_constant_result(
                            graph, comparison, condition.ref.location or count.location
                        )


def _find_comparisons(operand: Operand) -> Iterator[Operation]:
    if isinstance(operand, Operation):
        if operand.operator in COMPARISON_OPERATORS:
            yield operand
        for part in operand.operands:
            yield from _find_comparisons(part)


def _find_constant_result(graph: Graph, comparison: Operation, location: Location | None) -> Diagnostics:
    left_interval, right_interval = (graph.compute_interval(operand) for operand in comparison.operands)
    outcomes = {
        _can_hold(comparison.operator, left_interval, right_interval),
        _can_hold(comparison.operator, left_interval, right_interval, must_always_hold=True),
    }
    if len(outcomes) == 1:
        outcome = "always holds" if outcomes == {True} else "never holds"
        message = (
            f"the comparison `{comparison.operator}` {outcome}: "
            f"{_describe_interval(left_interval)} is compared with {_describe_interval(right_interval)}"
        )
        yield make_diagnostic(location, message, "Compare with a value that can be reached, or remove it.")


def _can_hold(operator: str, left: Interval, right: Interval, *, must_always_hold: bool = False) -> bool:
    """Return whether a comparison holds for some values of two intervals; with `must_always_hold`, for all values."""
    (left_low, left_high), (right_low, right_high) = left, right
    can_hold_by_operator = {
        "==": left_low <= right_high and right_low <= left_high,
        "<": left_low < right_high,
        "<=": left_low <= right_high,
        ">": left_high > right_low,
        ">=": left_high >= right_low,
        "!=": not left_low == left_high == right_low == right_high,
    }
    if not must_always_hold:
        return can_hold_by_operator[operator]
    return not _can_hold(_OPPOSITE_COMPARISON[operator], left, right)


_OPPOSITE_COMPARISON = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _describe_interval(interval: Interval) -> str:
    low, high = interval
    return str(low) if low == high else f"{low} to {high}"
