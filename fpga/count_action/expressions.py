"""Formulas: their values, the intervals of their values, and their references (R13).

Arithmetic is exact; the width of a formula follows from the intervals of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fpga.count_action.model import Operand, Operation, Ref

MAX_BITS = 60
"""Largest number of bits of a shift, and highest bit of a slice."""
LARGEST_VALUE = 2**MAX_BITS
"""Largest magnitude of the value of a formula."""

Interval = tuple[int, int]
"""The smallest and the largest possible value."""

ARITHMETIC_OPERATORS = frozenset({"+", "-", "max", "min"})
COMPARISON_OPERATORS = frozenset({"==", "!=", "<", "<=", ">", ">="})
LOGICAL_OPERATORS = frozenset({"and", "or", "not"})
STORED_OPERATORS = frozenset({"count", "target"})
"""Operators that read the register of a count, or a target in force."""
BIT_OPERATORS = frozenset({"<<", ">>", "slice", "concat"})
"""Operators on the bits of a value (R22 to R24)."""
OPERATORS = (
    ARITHMETIC_OPERATORS
    | BIT_OPERATORS
    | COMPARISON_OPERATORS
    | LOGICAL_OPERATORS
    | STORED_OPERATORS
    | {"if", "table", "valid"}
)


def count_bits(low: int, high: int) -> tuple[int, bool]:
    """Return the number of bits for values from `low` to `high`, and whether they are signed.

    >>> count_bits(0, 255), count_bits(-3, 3), count_bits(0, 0)
    ((8, False), (3, True), (1, False))
    """
    if low < 0:
        return max(high.bit_length(), (-low - 1).bit_length()) + 1, True
    return max(1, high.bit_length()), False


def get_bit_interval(width: int, *, signed: bool) -> Interval:
    """Return the interval of a number of `width` bits."""
    return (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)


def combine_intervals(operator: str, operand_intervals: Sequence[Interval]) -> Interval:
    """Return the interval of an operation, from the intervals of its operands.

    >>> combine_intervals("-", [(0, 3), (0, 7)]), combine_intervals("max", [(-8, 7), (0, 0)])
    ((-7, 3), (0, 7))
    >>> combine_intervals("<<", [(-8, 7), (2, 2)]), combine_intervals("slice", [(-8, 7), (2, 2), (1, 1)])
    ((-32, 28), (0, 3))
    """
    lows, highs = [low for low, _ in operand_intervals], [high for _, high in operand_intervals]
    if operator in {"+", "-"}:
        is_sum = operator == "+"
        low, high = (lows[1], highs[1]) if is_sum else (-highs[1], -lows[1])
        return lows[0] + low, highs[0] + high
    if operator == "<<":
        return lows[0] << lows[1], highs[0] << highs[1]
    if operator == ">>":
        return lows[0] >> lows[1], highs[0] >> highs[1]
    if operator == "slice":
        return get_bit_interval(highs[1] - lows[2] + 1, signed=False)
    if operator == "concat":
        return get_bit_interval(sum(count_bits(*interval)[0] for interval in operand_intervals), signed=False)
    intervals: dict[str, Interval] = {
        "max": (max(lows), max(highs)),
        "min": (min(lows), min(highs)),
        "if": (min(lows[1:], default=0), max(highs[1:], default=0)),
        "table": (min(0, 0, *lows[1:]), max(0, 0, *highs[1:])),
    }
    return intervals.get(operator, (0, 1))


def list_leaves(operand: Operand) -> Iterator[tuple[str, Ref]]:
    """Yield (operator, reference) for each reference in a formula.

    The operator is `count`, `target` or `valid`; it is empty for a sample, a flag or a number.
    """
    if isinstance(operand, Ref):
        yield "", operand
    elif isinstance(operand, Operation):
        for part in operand.operands:
            for operator, ref in list_leaves(part):
                yield (
                    operator
                    or (operand.operator if operand.operator in STORED_OPERATORS | {"valid"} else ""),
                    ref,
                )


def get_constant(operand: Operand) -> int:
    """Return an operand that is a constant: the bits of a shift or of a slice."""
    assert isinstance(operand, int)
    return operand


def get_slice_width(operand: Operand) -> int:
    """Return the number of bits of a slice. Every operand of `concat` is a slice.

    >>> get_slice_width(Operation("slice", (Ref("x"), 7, 4)))
    4
    """
    assert isinstance(operand, Operation)
    _, high, low = operand.operands
    return get_constant(high) - get_constant(low) + 1


def concatenate(parts: Sequence[tuple[int, int]]) -> int:
    """Return the concatenation of (value, width) pairs, the first in the highest bits (R24).

    >>> concatenate([(0b10, 2), (0b011, 3)])
    19
    """
    total = 0
    for value, width in parts:
        total = total << width | value
    return total


def evaluate_operation(operator: str, operands: Sequence[int]) -> int:
    """Return the exact value of an operation.

    For `concat` use `concatenate`, which takes the widths of the operands.

    >>> (
    ...     evaluate_operation("if", [1, 5, 7]),
    ...     evaluate_operation("max", [-3, 0]),
    ...     evaluate_operation(">=", [2, 2]),
    ... )
    (5, 0, 1)
    """
    return int(_EVALUATORS[operator](operands))


_EVALUATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "+": sum,
    "-": lambda operands: operands[0] - operands[1],
    "max": max,
    "min": min,
    "<<": lambda operands: operands[0] << operands[1],
    ">>": lambda operands: operands[0] >> operands[1],
    "slice": lambda operands: operands[0] >> operands[2] & (1 << operands[1] - operands[2] + 1) - 1,
    "==": lambda operands: operands[0] == operands[1],
    "!=": lambda operands: operands[0] != operands[1],
    "<": lambda operands: operands[0] < operands[1],
    "<=": lambda operands: operands[0] <= operands[1],
    ">": lambda operands: operands[0] > operands[1],
    ">=": lambda operands: operands[0] >= operands[1],
    "and": lambda operands: all(operand != 0 for operand in operands),
    "or": lambda operands: any(operand != 0 for operand in operands),
    "not": lambda operands: operands[0] == 0,
    "if": lambda operands: operands[1] if operands[0] else operands[2],
    "table": lambda operands: operands[1 + operands[0]] if 0 <= operands[0] < len(operands) - 1 else 0,
}


def decode_number(bits: int, width: int, *, signed: bool) -> int:
    """Return the number encoded in `width` bits, two's complement if `signed`.

    >>> decode_number(0b110, 3, signed=True), decode_number(0b110, 3, signed=False)
    (-2, 6)
    """
    return bits - (1 << width) if signed and bits >> (width - 1) else bits
