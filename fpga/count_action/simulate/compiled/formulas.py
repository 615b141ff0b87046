"""Statements for formulas: every operation is a wire of its own, exact in 64 bits with sign (R13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fpga.count_action.actions.kind import when
from fpga.count_action.model import Operand, Operation, Ref
from fpga.count_action.simulate.compiled.expressions import any_of, literal, number, unsigned
from fpga.count_action.simulate.compiled.names import Names


def formula_lines(names: Names, ref: Ref) -> Iterator[str]:
    """Return the statements for a formula, whose wire has the bits that it needs."""
    writer = _Writer(names, names.value(ref))
    value = writer.operand(names.graph.formula(ref))
    yield from writer.lines
    source = names.graph.source(ref)
    yield f"{names.value(ref)} = {value} & {literal((1 << source.width) - 1)}"


@dataclass
class _Writer:
    names: Names
    prefix: str
    lines: list[str] = field(default_factory=list)
    _made: int = 0

    def operand(self, operand: Operand) -> str:
        """Return the name of what an operand comes to, or a constant."""
        if isinstance(operand, int):
            return self._kept(str(operand))
        if isinstance(operand, Ref):
            signed = self.names.graph.source(operand).signed
            return self._kept(number(self.names.now(operand), signed=signed))
        first = operand.operands[0]
        if isinstance(first, Ref) and operand.operator == "valid":
            return self._kept(unsigned(self.names.valid(first)))
        if isinstance(first, Ref) and operand.operator == "count":
            return self._kept(self.names.base(first.module or "", first.name))
        if isinstance(first, Ref) and operand.operator == "target":
            return self._kept(self.names.target(first.module or "", first.name))
        return self._operation(operand, [self.operand(each) for each in operand.operands])

    def _kept(self, text: str) -> str:
        self._made += 1
        name = f"{self.prefix}_{self._made}"
        self.lines.append(f"{name} = {text}")
        return name

    def _operation(self, operation: Operation, parts: list[str]) -> str:
        operator = operation.operator
        if operator in {"max", "min"}:
            made = self._kept(parts[0])
            for each in parts[1:]:
                further = f"{each} > {made}" if operator == "max" else f"{made} > {each}"
                self.lines.append(when(further, [f"{made} = {each}"]))
            return made
        if operator == "if":
            made = self._kept(parts[2])
            self.lines.append(when(f"{parts[0]} != 0", [f"{made} = {parts[1]}"]))
            return made
        if operator == "table":
            made = self._kept("0")
            for place, each in enumerate(parts[1:]):
                self.lines.append(when(f"{parts[0]} == {place}", [f"{made} = {each}"]))
            return made
        if operator in {"and", "or"}:
            bits = [f"({each} != 0)" for each in parts]
            return self._kept(any_of(bits) if operator == "or" else " & ".join(bits))
        return self._kept(_TEXTS[operator].format(*parts))


_TEXTS = {
    "+": "{} + {}",
    "-": "{} - {}",
    "==": "({} == {}) & 1",
    "!=": "({} != {}) & 1",
    ">": "({} > {}) & 1",
    "<": "({1} > {0}) & 1",
    ">=": "({1} > {0}) ^ 1",
    "<=": "({} > {}) ^ 1",
    "not": "({} == 0) & 1",
}
