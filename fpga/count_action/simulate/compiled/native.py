"""Statements of a cycle into machine code: one loop over the rows, all registers in registers of the processor.

numba could compile the same text by itself, but takes ten milliseconds a line to find out that everything in it is a
64-bit integer. We know that, hence hand LLVM the instructions through an intrinsic, the way numba's own functions are
made; a datapath of fifty modules is compiled in a few seconds. Importing this needs numba.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from fpga.count_action.simulate.compiled.generator import CycleProgram

Run = Callable[[Any, Any, Any], None]
"""Takes the registers, the rows that come in and those that go out, all of 64-bit signed integers."""

_WORD = ir.IntType(64)
_ROWS = types.Array(types.int64, 2, "C")
_STATE = types.Array(types.int64, 1, "C")
_INPUT, _OUTPUT = re.compile(r"i(\d+)"), re.compile(r"o(\d+)")


def compiled(program: CycleProgram) -> Run:
    """Return the loop over a program, compiled."""

    @intrinsic  # type: ignore[untyped-decorator]
    def cycles(_typing: Any, state: Any, rows: Any, out: Any) -> Any:
        return types.void(state, rows, out), _code_generator(program)

    @njit(types.void(_STATE, _ROWS, _ROWS))  # type: ignore[untyped-decorator]
    def run(state: Any, rows: Any, out: Any) -> None:
        cycles(state, rows, out)

    return run  # type: ignore[no-any-return, unused-ignore]


def _code_generator(program: CycleProgram) -> Callable[..., None]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        arrays = [
            context.make_array(kind)(context, builder, each)
            for kind, each in zip(signature.args, arguments, strict=True)
        ]
        state, rows, out = (array.data for array in arrays)
        cycles = builder.extract_value(arrays[1].shape, 0)
        _Loop(builder, program).emit(state, rows, out, cycles)

    return generate


class _Loop:
    """Translates one program. Every name is a 64-bit cell on the stack, which LLVM turns into a register."""

    def __init__(self, builder: Any, program: CycleProgram) -> None:
        self._builder, self._program = builder, program
        self._tree = ast.parse("\n".join(program.statements))
        names = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)} - {"ones"}
        self._cells = {
            name: cgutils.alloca_once(builder, _WORD, name=name)
            for name in sorted(names | program.registers.keys())
        }

    def emit(self, state: Any, rows: Any, out: Any, cycles: Any) -> None:
        """Emit the loading of the registers, the loop, and the storing of the registers."""
        for place, name in enumerate(self._program.registers):
            self._copy(self._at(state, place), self._cells[name])
        with cgutils.for_range(self._builder, cycles) as loop:
            row_in = self._row(rows, loop.index, self._program.inputs)
            row_out = self._row(out, loop.index, self._program.outputs)
            for name, column in self._columns(_INPUT):
                self._copy(self._at(row_in, column), self._cells[name])
            self._block(self._tree.body)
            for name, column in self._columns(_OUTPUT):
                self._copy(self._cells[name], self._at(row_out, column))
        for place, name in enumerate(self._program.registers):
            self._copy(self._cells[name], self._at(state, place))

    def _columns(self, pattern: re.Pattern[str]) -> list[tuple[str, int]]:
        found = ((name, pattern.fullmatch(name)) for name in self._cells)
        return [(name, int(match[1])) for name, match in found if match]

    def _at(self, base: Any, place: int) -> Any:
        return self._builder.gep(base, [_WORD(place)])

    def _row(self, base: Any, index: Any, columns: int) -> Any:
        return self._builder.gep(base, [self._builder.mul(index, _WORD(columns))])

    def _copy(self, source: Any, destination: Any) -> None:
        self._builder.store(self._builder.load(source), destination)

    # ------------------------------------------------------------------------------------ statements
    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.If):
                with self._when(statement.test):
                    self._block(statement.body)
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._builder.store(self._value(statement.value), self._cells[statement.targets[0].id])
            else:
                raise TypeError(f"no statement of a cycle: {ast.unparse(statement)}")

    def _when(self, test: ast.expr) -> AbstractContextManager[Any]:
        condition = self._builder.icmp_signed("!=", self._value(test), _WORD(0))
        return self._builder.if_then(condition)  # type: ignore[no-any-return, unused-ignore]

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return _WORD(node.value)
        if isinstance(node, ast.Name):
            return self._builder.load(self._cells[node.id])
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._builder.neg(self._value(node.operand))
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, ast.Call):
            return self._builder.ctpop(self._value(node.args[0]))
        raise TypeError(f"no expression of a cycle: {ast.unparse(node)}")

    def _binary(self, node: ast.BinOp) -> Any:
        return getattr(self._builder, _OPERATIONS[type(node.op)])(
            self._value(node.left), self._value(node.right)
        )

    def _compared(self, node: ast.Compare) -> Any:
        relation = _RELATIONS[type(node.ops[0])]
        bit = self._builder.icmp_signed(relation, self._value(node.left), self._value(node.comparators[0]))
        return self._builder.zext(bit, _WORD)


_OPERATIONS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "ashr",
}
_RELATIONS: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">"}
