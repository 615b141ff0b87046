"""Meaning of formulas (R13), written a second time: from the model, over the ports, in 64 bits with sign."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fpga.count_action.model import VALUE, Module, Operand, Operation, Ref

if TYPE_CHECKING:
    from fpga.formal.meaning import Meaning

FORMULA_WIDTH = 64
"""Bits of every part of a formula in the checks: more than any formula needs."""


class Formulas:
    """Formulas of the modules of a datapath as nested expressions."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning

    def wire(self, ref: Ref) -> str:
        """Return the wire of a formula."""
        return f"formula_{ref.module}_{ref.name.removeprefix(VALUE)}"

    def lines(self, module: Module) -> Iterator[str]:
        """Return the formulas of a module, each with its wire."""
        for place, operand in enumerate(module.values):
            wire = self.wire(Ref(f"{VALUE}{place}", module.name))
            yield f"logic signed [{FORMULA_WIDTH - 1}:0] {wire};"
            yield f"assign {wire} = {self.text(operand)};"

    def streams(self, ref: Ref) -> list[Ref]:
        """Return the streams of whose samples a formula is made."""
        module = self._meaning.datapath.module(ref.module or "")
        found = self._samples(module.values[int(ref.name.removeprefix(VALUE))])
        return [each for each in found if self._meaning.is_stream(each)]

    def _samples(self, operand: Operand) -> Iterator[Ref]:
        if isinstance(operand, Ref):
            yield operand
        elif isinstance(operand, Operation) and operand.operator not in {"valid", "count", "target"}:
            for each in operand.operands:
                yield from self._samples(each)

    def text(self, operand: Operand) -> str:
        """Return an expression with a sign, of all bits."""
        if isinstance(operand, int):
            return f"{FORMULA_WIDTH}'sd{operand}"
        if isinstance(operand, Ref):
            return f"$signed({self._meaning.sample(operand).fitted(FORMULA_WIDTH)})"
        first = operand.operands[0]
        if isinstance(first, Ref) and operand.operator in {"valid", "count", "target"}:
            return f"$signed({self._stored(operand.operator, first)})"
        parts = [self.text(each) for each in operand.operands]
        return _applied(operand.operator, parts)

    def _stored(self, operator: str, ref: Ref) -> str:
        if operator == "valid":
            bits = f"{FORMULA_WIDTH - 1}'d0, {self._meaning.valid(ref)}"
            return f"{{{bits}}}"
        module = self._meaning.datapath.module(ref.module or "")
        if operator == "count":
            return self._meaning.base(module, module.count(ref.name)).fitted(FORMULA_WIDTH)
        return self._meaning.target(module, ref.name).fitted(FORMULA_WIDTH)


_COMPARED = f"$signed({{{{{FORMULA_WIDTH - 1}'d0, {{0}} @ {{1}}}}}})"
_TEXTS = {
    "+": "({} + {})",
    "-": "({} - {})",
    "not": f"$signed({{{{{FORMULA_WIDTH - 1}'d0, {{}} == 0}}}})",
    "and": f"$signed({{{{{FORMULA_WIDTH - 1}'d0, ({{}} != 0) && ({{}} != 0)}}}})",
    "or": f"$signed({{{{{FORMULA_WIDTH - 1}'d0, ({{}} != 0) || ({{}} != 0)}}}})",
    "if": "({} != 0 ? {} : {})",
}


def _applied(operator: str, parts: list[str]) -> str:
    if operator == "table":
        entries = ((f"{parts[0]} == {place}", each) for place, each in enumerate(parts[1:]))
        return f"({''.join(f'{when} ? {each} : ' for when, each in entries)}{FORMULA_WIDTH}'sd0)"
    if operator == "max":
        return _folded("({0} >= {1} ? {0} : {1})", parts)
    if operator == "min":
        return _folded("({0} <= {1} ? {0} : {1})", parts)
    return _TEXTS.get(operator, _COMPARED.replace("@", operator)).format(*parts)


def _folded(text: str, parts: list[str]) -> str:
    made = parts[0]
    for each in parts[1:]:
        made = text.format(made, each)
    return made
