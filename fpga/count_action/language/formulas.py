"""Syntax nodes of formulas: conditions, comparisons and arithmetic that hardware works out in every cycle."""

from __future__ import annotations

from typing import Any

from fpga.count_action.diagnostics import note, quoted
from fpga.count_action.language.numbers import MAX_DEPTH, NumberBuilder
from fpga.count_action.language.operands import Formula, Index, Integer, Operand, Operator, Ranged, Reference
from fpga.count_action.model import Location

_FUNCTIONS: dict[str, Operator] = {"max": "max", "min": "min", "table": "table"}


class FormulaBuilder(NumberBuilder):
    """Makes the nodes of formulas: one method for each rule of the grammar."""

    def _either(self, at: Location, left: Operand, right: Operand) -> Operand:
        return self._formula(at, "or", left, right)

    def _both(self, at: Location, left: Operand, right: Operand) -> Operand:
        return self._formula(at, "and", left, right)

    def _inverse(self, at: Location, operand: Operand) -> Operand:
        return self._formula(at, "not", operand)

    def _compared(self, at: Location, left: Operand, relation: Any, right: Operand) -> Operand:
        operator: Any = str(relation)
        return self._formula(at, operator, left, right)

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
            message = f"{quoted(str(function))} is not a function of the language"
            hint = "There are `max(a, b, ...)`, `min(a, b, ...)` and `table(index, first, second, ...)`."
            hint = "Write `max(x, 0)`." if function.plain == "relu" else hint
            self.report.error(note(at, message, hint))
            return Integer(0, at)
        return self._formula(at, operator, *arguments)

    def _formula(self, at: Location, operator: Operator, *operands: Operand) -> Operand:
        depth = 1 + max(each.depth for each in operands)
        if depth > MAX_DEPTH:
            message = f"more than {MAX_DEPTH} operations within each other"
            self.report.error(note(at, message, "Work it out in two modules."))
            return Integer(0, at)
        return Formula(operator, operands, at, depth)
