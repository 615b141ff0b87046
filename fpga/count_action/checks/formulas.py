"""Checks of formulas: what they look at exists, they do not become too large, and comparisons are not decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fpga.count_action.diagnostics import Diagnostics, did_you_mean, note, quote
from fpga.count_action.expressions import (
    COMPARISONS,
    LARGEST_VALUE,
    OPERATORS,
    STORED,
    Interval,
    leaves,
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
    is_value,
)

RefCheck = Callable[[Ref, Location | None], Diagnostics]


def formula_problems(graph: Graph, module: Module, check_ref: RefCheck) -> Diagnostics:
    """Return what is wrong with the formulas of a module; `check_ref` says it of a reference to a signal."""
    for value in (*module.values, *(each.holds for each in module.claims)):
        found = [*_shapes(value), *_leaves(graph.datapath, module, value, check_ref)]
        yield from found
        if not found:
            yield from _too_large(graph, module, value)


def value_problems(module: Module, ref: Ref, at: Location | None) -> Diagnostics:
    """Return what is wrong with a reference to a formula."""
    try:
        module.value(ref)
    except (IndexError, ValueError):
        yield note(
            at, f"there is no formula {quote(ref.name)} in {quote(module.name)}", "Add it to `values`."
        )


def count_problems(graph: Graph, module: Module, count: Count) -> Diagnostics:
    """Return what is wrong with the formulas of a count that stand for its target or its bound."""
    yield from _aim_problems(graph, module, count)
    yield from _check_bounds(graph, module, count)
    for pick in count.picks:
        yield from value_problems(module, pick, count.at)


def _aim_problems(graph: Graph, module: Module, count: Count) -> Diagnostics:
    aim = count.aim
    if aim is None or [*value_problems(module, aim, count.at)]:
        return
    targets = [ref.name for operator, ref in leaves(module.value(aim)) if operator == "target"]
    if count.target not in targets[:1]:
        message = f"the formula that {quote(count.name)} is to reach looks at no target first"
        yield note(aim.at or count.at, message, "Name a target in it, or write a target alone.")
    elif min(graph.interval(module.value(aim))) < 0:
        message = f"what {quote(count.name)} is to reach can be negative"
        yield note(aim.at or count.at, message, "Write max(..., 0).")


def _check_bounds(graph: Graph, module: Module, count: Count) -> Diagnostics:
    if count.goes_down and count.kind is CountKind.LEVEL:
        yield note(count.at, f"level count {quote(count.name)} has nothing to go down from", "Accumulate.")
    if count.bound is None or [*value_problems(module, count.bound, count.at)]:
        return
    if min(graph.interval(module.value(count.bound))) < 0:
        message = f"what {quote(count.name)} never exceeds can be negative"
        yield note(count.bound.at or count.at, message, "Write max(..., 0).")


def _shapes(value: Operand) -> Diagnostics:
    if not isinstance(value, Operation):
        return
    operands = len(value.operands)
    if value.operator not in OPERATORS or operands not in _OPERANDS.get(value.operator, range(1, 1 << 20)):
        yield note(None, f"{quote(value.operator)} of {operands} operands", "See R13 for the operators.")
    for each in value.operands:
        yield from _shapes(each)


_OPERANDS: dict[str, range] = {
    **dict.fromkeys(["not", "valid", *STORED], range(1, 2)),
    **dict.fromkeys(["+", "-", "and", "or", *COMPARISONS], range(2, 3)),
    "if": range(3, 4),
    "table": range(2, 1 << 20),
}


def _leaves(datapath: Datapath, module: Module, value: Operand, check_ref: RefCheck) -> Diagnostics:
    for operator, ref in leaves(value):
        if is_value(ref):
            yield note(ref.at or module.at, "a formula refers to a formula", "Write the one into the other.")
        elif operator in STORED:
            owner = next((each for each in datapath.modules if each.name == ref.module), None)
            known = _name_stored(owner, operator) if owner else []
            if ref.name not in known:
                message = f"there is no {operator} {quote(f'{ref.module}.{ref.name}')}"
                yield note(ref.at or module.at, message, did_you_mean(ref.name, known))
        else:
            yield from check_ref(ref, module.at)


def _name_stored(owner: Module, operator: str) -> list[str]:
    if operator == "count":
        return [each.name for each in owner.counts]
    return [each.name for each in owner.targets]


def _too_large(graph: Graph, module: Module, value: Operand) -> Diagnostics:
    low, high = graph.interval(value)
    if max(-low, high) > LARGEST_VALUE:
        at = next((ref.at for _, ref in leaves(value)), None) or module.at
        message = f"this formula can come to {low} or {high}; at most 60 bits and a sign are possible"
        yield note(at, message, "Add less, or narrower samples.")


def find_constant_conditions(graph: Graph) -> Diagnostics:
    """Return the comparisons that always hold, or never, whatever happens."""
    for module in graph.datapath.modules:
        for count in module.counts:
            for condition in count.gate:
                if is_value(condition.ref):
                    for compared in _comparisons(module.value(condition.ref)):
                        yield from _find_constant(graph, compared, condition.ref.at or count.at)


def _comparisons(operand: Operand) -> Iterator[Operation]:
    if isinstance(operand, Operation):
        if operand.operator in COMPARISONS:
            yield operand
        for each in operand.operands:
            yield from _comparisons(each)


def _find_constant(graph: Graph, compared: Operation, at: Location | None) -> Diagnostics:
    left, right = (graph.interval(each) for each in compared.operands)
    outcomes = {_holds(compared.operator, left, right), _holds(compared.operator, left, right, other=True)}
    if len(outcomes) == 1:
        how = "always holds" if outcomes == {True} else "never holds"
        message = (
            f"the comparison `{compared.operator}` {how}: "
            f"{_describe_interval(left)} is compared with {_describe_interval(right)}"
        )
        yield note(at, message, "Compare with a value that can be reached, or remove it.")


def _holds(operator: str, left: Interval, right: Interval, *, other: bool = False) -> bool:
    """Return whether a comparison can hold; with `other`, whether it must."""
    (low, high), (first, last) = left, right
    possible = {
        "==": low <= last and first <= high,
        "<": low < last,
        "<=": low <= last,
        ">": high > first,
        ">=": high >= first,
        "!=": not low == high == first == last,
    }
    if not other:
        return possible[operator]
    return not _holds(_OPPOSITE[operator], left, right)


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _describe_interval(interval: Interval) -> str:
    low, high = interval
    return str(low) if low == high else f"{low} to {high}"
