"""Compiler of the statements of a cycle to machine code: one loop over the rows.

numba could compile the same text, but needs ten milliseconds a line to infer that every value is a 64-bit integer.
This module therefore generates LLVM instructions directly, and compiles a datapath of fifty modules in a few seconds.
The code is cached on disk for other processes. This module needs llvmlite, a dependency of numba.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding, ir

from fpga.count_action.simulate.compiled.generator import CycleProgram
from lightbed.machine_code import compute_digest, make_folder
from lightbed.output_file import replace_file

CompiledLoop = Callable[[Any, Any, Any], None]
"""Function of the registers, the input rows and the output rows, all of 64-bit signed integers."""

_WORD_TYPE = ir.IntType(64)
_POINTER_TYPE = _WORD_TYPE.as_pointer()
_INPUT, _OUTPUT_PATTERN = re.compile(r"i(\d+)"), re.compile(r"o(\d+)")
_CALL_TYPE = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_int64)
_FUNCTION_NAME = "run"
_PROGRAM_NUMBERS = itertools.count()
_MAX_CACHED_PROGRAMS = 2000
"""Largest number of cached programs; the least recently used are removed first."""


def compile_program(program: CycleProgram) -> CompiledLoop:
    """Return the compiled loop of a program."""
    library = binding.JITLibraryBuilder().add_object_img(_load_object_code(program)).add_current_process()
    tracker = library.export_symbol(_FUNCTION_NAME).link(_make_linker(), f"program{next(_PROGRAM_NUMBERS)}")
    compiled_function = _CALL_TYPE(tracker[_FUNCTION_NAME])

    def run(state: Any, rows: Any, outputs: Any) -> None:
        compiled_function(state.ctypes.data, rows.ctypes.data, outputs.ctypes.data, len(rows))

    run.tracker = tracker  # type: ignore[attr-defined]  # the code lives as long as its tracker
    return run


@cache
def _make_linker() -> binding.LLJIT:
    return binding.create_lljit_compiler(_make_machine())


def _make_machine() -> binding.TargetMachine:
    """Return a description of this processor. Call this for each compiler: LLVM takes ownership of the result."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features().flatten()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(binding.get_host_cpu_name(), features, opt=3, jit=True)


def _load_object_code(program: CycleProgram) -> bytes:
    """Return the object file of a program, from the cache or newly compiled."""
    program_hash = hashlib.sha256(repr(program).encode()).hexdigest()
    try:
        path = _make_cache_folder() / f"{program_hash[:32]}.o"
    except OSError:
        return _compile_to_object_code(program)
    with suppress(OSError):
        content = path.read_bytes()
        digest, code = content[:32], content[32:]
        if hashlib.sha256(code).digest() == digest:  # LLVM ends the process if it reads a damaged file
            os.utime(path)
            return code
    code = _compile_to_object_code(program)
    with suppress(OSError):
        _write_cache(path, hashlib.sha256(code).digest() + code)
    return code


@cache
def _make_cache_folder() -> Path:
    """Return the cache folder for this version of the compiler and this processor. Raise `OSError` if there is none."""
    machine_description = (
        llvmlite.__version__,
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    )
    machine_hash = hashlib.sha256(repr(machine_description).encode() + compute_digest(Path(__file__)))
    return make_folder(f"count-action-{machine_hash.hexdigest()[:24]}")


def _write_cache(path: Path, content: bytes) -> None:
    """Write a file atomically, and remove the oldest tenth if the cache is full."""
    with replace_file(path) as file:
        file.write(content)
    files = list(path.parent.iterdir())
    if len(files) > _MAX_CACHED_PROGRAMS:
        for oldest_file in sorted(files, key=lambda cached_file: cached_file.stat().st_mtime)[
            : _MAX_CACHED_PROGRAMS // 10
        ]:
            oldest_file.unlink(missing_ok=True)


def _compile_to_object_code(program: CycleProgram) -> bytes:
    """Compile a program, and return its object file."""
    module = ir.Module()
    function = ir.Function(
        module, ir.FunctionType(ir.VoidType(), [_POINTER_TYPE] * 3 + [_WORD_TYPE]), _FUNCTION_NAME
    )
    for pointer in function.args[:3]:
        pointer.add_attribute("noalias")
    _LoopEmitter(ir.IRBuilder(function.append_basic_block()), program).emit(*function.args)
    module_reference = binding.parse_assembly(str(module))
    options = binding.create_pipeline_tuning_options(speed_level=3)
    machine = _make_machine()
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module_reference, passes)
    return machine.emit_object(module_reference)  # type: ignore[no-any-return, unused-ignore]


class _LoopEmitter:
    """Translates one program. Every variable is a 64-bit stack slot, which LLVM turns into a register."""

    def __init__(self, builder: Any, program: CycleProgram) -> None:
        self._builder, self._program = builder, program
        self._syntax_tree = ast.parse("\n".join(program.statements))
        names = {node.id for node in ast.walk(self._syntax_tree) if isinstance(node, ast.Name)} - {"ones"}
        names -= program.array_word_counts.keys()
        self._slots = {
            name: builder.alloca(_WORD_TYPE, name=name)
            for name in sorted(names | program.initial_registers.keys())
        }
        self._arrays: dict[str, Any] = {}

    def emit(self, state: Any, rows: Any, outputs: Any, cycle_count: Any) -> None:
        """Emit the loading of the registers, the loop, and the storing of the registers."""
        builder = self._builder
        index = len(self._program.initial_registers)
        for name, word_count in self._program.array_word_counts.items():
            self._arrays[name] = self._find_element(state, index)
            index += word_count
        for index, name in enumerate(self._program.initial_registers):
            self._copy(self._find_element(state, index), self._slots[name])
        entry_block = builder.block
        head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        cycle = builder.phi(_WORD_TYPE)
        cycle.add_incoming(_WORD_TYPE(0), entry_block)
        builder.cbranch(builder.icmp_signed("<", cycle, cycle_count), body, end)
        builder.position_at_end(body)
        row_in = self._find_row(rows, cycle, self._program.input_column_count)
        row_out = self._find_row(outputs, cycle, self._program.output_column_count)
        for name, column in self._find_columns(_INPUT):
            self._copy(self._find_element(row_in, column), self._slots[name])
        self._emit_block(self._syntax_tree.body)
        for name, column in self._find_columns(_OUTPUT_PATTERN):
            self._copy(self._slots[name], self._find_element(row_out, column))
        cycle.add_incoming(builder.add(cycle, _WORD_TYPE(1)), builder.block)
        builder.branch(head)
        builder.position_at_end(end)
        for index, name in enumerate(self._program.initial_registers):
            self._copy(self._slots[name], self._find_element(state, index))
        builder.ret_void()

    def _find_columns(self, pattern: re.Pattern[str]) -> list[tuple[str, int]]:
        matches = ((name, pattern.fullmatch(name)) for name in self._slots)
        return [(name, int(match[1])) for name, match in matches if match]

    def _find_element(self, base: Any, index: int) -> Any:
        return self._builder.gep(base, [_WORD_TYPE(index)])

    def _find_row(self, base: Any, index: Any, column_count: int) -> Any:
        return self._builder.gep(base, [self._builder.mul(index, _WORD_TYPE(column_count))])

    def _copy(self, source: Any, destination: Any) -> None:
        self._builder.store(self._builder.load(source), destination)

    # ------------------------------------------------------------------------------------ statements
    def _emit_block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.If):
                with self._emit_if(statement.test):
                    self._emit_block(statement.body)
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._builder.store(self._emit_value(statement.value), self._slots[statement.targets[0].id])
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
                self._builder.store(self._emit_value(statement.value), self._find_word(statement.targets[0]))
            else:
                raise TypeError(f"unsupported statement: {ast.unparse(statement)}")

    def _find_word(self, node: ast.Subscript) -> Any:
        """Return the address of a word of an array; the statements check that the index is inside."""
        assert isinstance(node.value, ast.Name)
        return self._builder.gep(self._arrays[node.value.id], [self._emit_value(node.slice)])

    def _emit_if(self, test: ast.expr) -> AbstractContextManager[Any]:
        condition = self._builder.icmp_signed("!=", self._emit_value(test), _WORD_TYPE(0))
        return self._builder.if_then(condition)  # type: ignore[no-any-return, unused-ignore]

    def _emit_value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return _WORD_TYPE(node.value)
        if isinstance(node, ast.Name):
            return self._builder.load(self._slots[node.id])
        if isinstance(node, ast.Subscript):
            return self._builder.load(self._find_word(node))
        if isinstance(node, ast.BinOp):
            return getattr(self._builder, _OPERATIONS[type(node.op)])(
                self._emit_value(node.left), self._emit_value(node.right)
            )
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._builder.neg(self._emit_value(node.operand))
        if isinstance(node, ast.Compare):
            relation = _RELATIONS[type(node.ops[0])]
            bit = self._builder.icmp_signed(
                relation, self._emit_value(node.left), self._emit_value(node.comparators[0])
            )
            return self._builder.zext(bit, _WORD_TYPE)
        if isinstance(node, ast.Call):
            return self._builder.ctpop(self._emit_value(node.args[0]))
        raise TypeError(f"unsupported expression: {ast.unparse(node)}")


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
