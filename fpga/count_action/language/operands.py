"""Nodes of the syntax tree for names, numbers and formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fpga.count_action.model import Location


@dataclass(frozen=True, slots=True)
class Integer:
    """A number as it is written."""

    value: int
    at: Location
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """`name` or `name[index]`."""

    name: str
    index: Number | None
    at: Location


@dataclass(frozen=True, slots=True)
class Reference:
    """Parts with points between them: a parameter or an index name (in numbers), or a signal."""

    parts: tuple[Part, ...]
    at: Location
    depth: int = 0

    @property
    def plain(self) -> str | None:
        """The name when it is nothing but a name."""
        return self.parts[0].name if len(self.parts) == 1 and self.parts[0].index is None else None

    def __str__(self) -> str:
        return ".".join(part.name + ("[...]" if part.index else "") for part in self.parts)


@dataclass(frozen=True, slots=True)
class Operation:
    """Two numbers and what is done with them; `depth` is how deep expressions are nested in it."""

    operator: Literal["+", "-", "*", "/"]
    left: Number
    right: Number
    at: Location
    depth: int


Number: TypeAlias = Integer | Reference | Operation


@dataclass(frozen=True, slots=True)
class Range:
    """`[low to high]`."""

    low: Number
    high: Number
    at: Location


@dataclass(frozen=True, slots=True)
class Index:
    """`name = low to high`."""

    name: str
    low: Number
    high: Number
    at: Location


Operator: TypeAlias = Literal[
    "+", "-", "max", "min", "==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "if", "table"
]


@dataclass(frozen=True, slots=True)
class Formula:
    """Something worked out in hardware, in every cycle: an operator and what it is applied to.

    The operands of `if` are the condition, the value where it holds, and the other one.
    """

    operator: Operator
    operands: tuple[Operand, ...]
    at: Location
    depth: int


@dataclass(frozen=True, slots=True)
class Ranged:
    """A signal or a formula for every value of an index."""

    value: Operand
    over: Index
    at: Location

    @property
    def depth(self) -> int:
        """The depth to which formulas are nested in it."""
        return self.value.depth


Operand: TypeAlias = Integer | Reference | Formula | Ranged
