"""Formulas in SystemVerilog: one wire for each operation, wide enough to be exact (R13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fpga.count_action.actions import samples_every_cycle
from fpga.count_action.expressions import get_constant, get_slice_width
from fpga.count_action.model import FORMULA_PREFIX, Module, Operand, Ref, is_formula_ref
from fpga.count_action.verilog.counts import find_target_bits
from fpga.count_action.verilog.text import declare_wire, extend_expression, write_bit
from fpga.count_action.verilog.wiring import Slice, Wiring, join_slices


def write_formulas(wiring: Wiring, module: Module) -> Iterator[str]:
    """Yield the lines of the formulas of a module, each with its wire."""
    for index in range(len(module.values)):
        ref = Ref(f"{FORMULA_PREFIX}{index}", module.name)
        writer = _FormulaWriter(wiring, wiring.find_value_wire(ref), wiring.compute_value_width(ref))
        value = writer.write_operand(wiring.graph.find_formula(ref))
        yield from writer.lines
        yield f"logic signed [{writer.width - 1}:0] {wiring.find_value_wire(ref)};"
        yield f"assign {wiring.find_value_wire(ref)} = {value};"


def write_move_wires(wiring: Wiring, module: Module) -> Iterator[str]:
    """Yield, for each formula in a sum, the wire that is 1 if all its beats move."""
    for ref in find_summed_formulas(wiring, module):
        streams = wiring.graph.find_streams(ref)
        move_bits = [str(wiring.find_source(stream).slice_move_bit(stream.index)) for stream in streams]
        yield declare_wire(wiring.find_move_wire(ref))
        yield f"assign {wiring.find_move_wire(ref)} = {' && '.join(move_bits)};"


def find_summed_formulas(wiring: Wiring, module: Module) -> list[Ref]:
    """Return the formulas of stream samples that a sum or another collecting action reads."""
    refs = (
        ref
        for action in filter(samples_every_cycle, module.actions)
        for ref in action.refs
        if is_formula_ref(ref)
    )
    return [ref for ref in dict.fromkeys(refs) if wiring.graph.find_streams(ref)]


@dataclass
class _FormulaWriter:
    wiring: Wiring
    prefix: str
    width: int
    lines: list[str] = field(default_factory=list)
    _wire_count: int = 0

    def write_operand(self, operand: Operand) -> str:
        """Return the wire of an operand, adding the lines that compute it."""
        if isinstance(operand, int):
            return self._add_wire(f"{self.width}'sd{operand}")
        if isinstance(operand, Ref):
            source = self.wiring.find_source(operand)
            return self._extend(source.slice_sample(operand.index, operand.lane), signed=source.signed)
        first_operand = operand.operands[0]
        if isinstance(first_operand, Ref) and operand.operator == "valid":
            return self._extend(self.wiring.find_source(first_operand).slice_valid_bit(first_operand.index))
        if isinstance(first_operand, Ref) and operand.operator == "count":
            owner = self.wiring.datapath.module(first_operand.module or "")
            count = owner.count(first_operand.name)
            if not count.accumulates:
                return self._add_wire("'0")
            wire = f"{self.wiring.find_prefix(owner.name, first_operand.name)}_count"
            return self._extend(Slice(wire, count.width, 0, count.width))
        if isinstance(first_operand, Ref) and operand.operator == "target":
            owner = self.wiring.datapath.module(first_operand.module or "")
            return self._extend(find_target_bits(self.wiring.datapath, owner, first_operand.name))
        operator = operand.operator
        if operator in {"<<", ">>", "slice"}:
            value, *bits = operand.operands
            return self._select_bits(operator, self.write_operand(value), *map(get_constant, bits))
        parts = [self.write_operand(part) for part in operand.operands]
        if operator == "concat":
            widths = [get_slice_width(part) for part in operand.operands]
            shifts = [sum(widths[index + 1 :]) for index in range(len(widths))]
            fields = [
                f"({part} <<< {shift})" if shift else part for part, shift in zip(parts, shifts, strict=True)
            ]
            return self._add_wire(" | ".join(fields))
        if operator in {"max", "min"}:
            result = parts[0]
            for part in parts[1:]:
                relation = ">" if operator == "max" else "<"
                result = self._add_wire(f"({part} {relation} {result}) ? {part} : {result}")
            return result
        if operator == "if":
            return self._add_wire(f"({parts[0]} != '0) ? {parts[1]} : {parts[2]}")
        if operator == "table":
            # An index beyond the table reads 0.
            result = f"{self.width}'sd0"
            for index, part in reversed(list(enumerate(parts[1:]))):
                result = self._add_wire(f"({parts[0]} == {self.width}'sd{index}) ? {part} : {result}")
            return result
        if operator in {"+", "-"}:
            return self._add_wire(f"{parts[0]} {operator} {parts[1]}")
        if operator == "not":
            condition = f"{parts[0]} == '0"
        elif operator in {"and", "or"}:
            symbol = "&&" if operator == "and" else "||"
            condition = f" {symbol} ".join(f"({part} != '0)" for part in parts)
        else:
            condition = f"{parts[0]} {operator} {parts[1]}"
        # A condition has one bit; it is extended, since all wires of a formula have the same width.
        return self._add_wire(f"$signed({{{{{self.width - 1}{{1'b0}}}}, {condition}}})")

    def _select_bits(self, operator: str, value: str, highest: int, lowest: int = 0) -> str:
        """Return the wire of a shift, or of a slice from bit `highest` down to bit `lowest`."""
        if operator == "<<":
            return self._add_wire(f"{value} <<< {highest}")
        if operator == ">>":
            return self._add_wire(f"{value} >>> {highest}")
        # Linters warn of unused bits. A mask, unlike a part-select, uses all bits of the wire.
        shifted_value = f"({value} >>> {lowest})" if lowest else value
        return self._add_wire(f"{shifted_value} & {self.width}'sd{(1 << highest - lowest + 1) - 1}")

    def _extend(self, bits: Slice, *, signed: bool = False) -> str:
        sign = str(Slice(bits.wire, bits.wire_width, bits.low + bits.width - 1)) if signed else write_bit(0)
        return self._add_wire(
            f"$signed({extend_expression(join_slices([bits]), bits.width, self.width, sign)})"
        )

    def _add_wire(self, text: str) -> str:
        self._wire_count += 1
        name = f"{self.prefix}_{self._wire_count}"
        self.lines.append(f"logic signed [{self.width - 1}:0] {name};")
        self.lines.append(f"assign {name} = {text};")
        return name
