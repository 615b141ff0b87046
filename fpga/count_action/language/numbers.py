"""Syntax nodes of names and numbers, made of those of lark."""

from __future__ import annotations

from typing import Any, Literal

from fpga.count_action.diagnostics import Report, note, quoted
from fpga.count_action.language.operands import Index, Integer, Number, Operation, Part, Reference
from fpga.count_action.language.syntax import Label
from fpga.count_action.language.words import MAX_NAME, RESERVED
from fpga.count_action.model import Location

MAX_DEPTH = 50
"""Operations within operations in a number."""
_MAX_DIGITS = 15


class NumberBuilder:
    """Makes the nodes of names and numbers: one method for each rule of the grammar."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.report = Report()

    def _location(self, node: Any) -> Location:
        if isinstance(node, Location):
            return node
        line = getattr(node, "line", None)
        return node.at if line is None else Location(self._file, line, node.column)

    def _name(self, token: Any) -> str:
        name = str(token)
        if name in RESERVED:
            message = f"{quoted(name)} is a word of the language and cannot be a name"
            self.report.error(note(self._location(token), message, f"Call it {name}_1, or something else."))
        if len(name) > MAX_NAME:
            message = f"a name of {len(name)} characters; at most {MAX_NAME} are allowed"
            self.report.error(note(self._location(token), message, "Shorten it."))
        return name

    def _index(self, at: Location, name: Any, low: Number, high: Number) -> Index:
        return Index(self._name(name), low, high, at)

    def _label(self, at: Location, name: Any, index: Number | None) -> Label:
        return Label(self._name(name), index, at)

    def _reference(self, at: Location, *parts: Part) -> Reference:
        return Reference(parts, at)

    def _part(self, at: Location, name: Any, index: Number | None) -> Part:
        return Part(str(name), index, at)

    def _element(self, at: Location, index: Number) -> Number:
        return index

    def _integer(self, at: Location, digits: Any) -> Integer:
        text = str(digits).lstrip("0") or "0"
        if len(text) > _MAX_DIGITS:
            message = f"a number of {len(text)} digits; nothing here is as large as that"
            self.report.error(note(at, message, "The largest count is 2^48 - 1 = 281474976710655."))
            return Integer(0, at)
        return Integer(int(text), at)

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

    def _bracketed(self, at: Location, value: Number) -> Number:
        return value

    def _operation(self, operator: Literal["+", "-", "*", "/"], left: Number, right: Number) -> Number:
        depth = max(left.depth, right.depth) + 1
        if depth > MAX_DEPTH:
            message = f"more than {MAX_DEPTH} operations within each other in one number"
            self.report.error(note(left.at, message, "Write the number that it comes to."))
            return Integer(0, left.at)
        return Operation(operator, left, right, left.at, depth)
