"""Simulation of a design as a shared library, built by Verilator and called through `ctypes`: millions of cycles/s.

The harness has C++ functions to create, run and delete a model; a run passes complete arrays instead of single cycles.
Libraries are cached by a digest of the design, the harness, the path of Verilator and the optimisation; so are objects
of Verilator's own library, which are the same in every design.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Port, Rows
from fpga.hdl.design import Design, make_design
from fpga.hdl.tools import HdlError, find_tool

_REVISION = "1"
"""Part of the digest: change it when the build changes."""

_PCH_MAKE_VARIABLE = "CFG_CXXFLAGS_PCH_I=-include"
"""Make variable with the option that uses precompiled headers: the packaged Verilator was configured without it."""

_RUNTIME_OBJECTS = ("verilated.o", "verilated_threads.o")
"""Objects of Verilator's own library. They are the same in every model, and take longer than a small model."""

_HARNESS = """\
// Runs the verilated top on arrays: a row of 64-bit words in and a row out, for every cycle.
#include "Vtop.h"
#include <cstdint>
#include <cstring>
#include <memory>

namespace {{

struct Run {{
  VerilatedContext context;
  std::unique_ptr<Vtop> top;
}};

template <typename Wide>
void set_wide(Wide &wide, const uint64_t *row, int words, uint64_t mask) {{
  for (int word = 0; word < words; ++word) {{
    const uint64_t bits = word == words - 1 ? row[word] & mask : row[word];
    wide[2 * word] = static_cast<uint32_t>(bits);
    if (2 * word + 1 < static_cast<int>(sizeof(wide) / 4)) wide[2 * word + 1] = bits >> 32;
  }}
}}

template <typename Wide>
void get_wide(const Wide &wide, uint64_t *row, int words) {{
  std::memset(row, 0, sizeof(uint64_t) * words);
  std::memcpy(row, &wide[0], sizeof(wide));
}}

void set_inputs(Vtop *top, const uint64_t *row) {{
{inputs}
}}

void get_outputs(const Vtop *top, uint64_t *row) {{
{outputs}
}}

}}  // namespace

extern "C" {{

void *run_new() {{
  Run *run = new Run;
  run->top = std::make_unique<Vtop>(&run->context);
  return run;
}}

void run_delete(void *pointer) {{
  Run *run = static_cast<Run *>(pointer);
  run->top->final();
  delete run;
}}

void run_rows(void *pointer, int reset, int64_t cycles, const uint64_t *in, uint64_t *out) {{
  Vtop *top = static_cast<Run *>(pointer)->top.get();
  top->rst_i = reset;
  for (int64_t cycle = 0; cycle < cycles; ++cycle) {{
    set_inputs(top, in + cycle * {input_columns});
    top->clk_i = 0;
    top->eval();
    get_outputs(top, out + cycle * {output_columns});
    top->clk_i = 1;
    top->eval();
  }}
}}

}}
"""


def build(
    design: Datapath | Design,
    folder: Path | None = None,
    *,
    optimise_flag: str = "-O3",
    timeout_s: float = 600,
) -> Simulator:
    """Return a simulator of the design, in reset. The library is built in `folder` unless it exists there.

    The default folder is the user's cache. `optimise_flag` is passed to Verilator and to the C++ compiler. Raise
    ToolMissing (verilator, make, g++) or ToolFailed (errors in the sources).
    """
    simulated_design = make_design(design) if isinstance(design, Datapath) else design
    library = build_library(
        simulated_design,
        _write_harness(simulated_design),
        folder,
        optimise_flag=optimise_flag,
        timeout_s=timeout_s,
    )
    return Simulator(simulated_design, library)


def build_library(
    design: Design,
    harness: str,
    folder: Path | None = None,
    *,
    optimise_flag: str = "-O3",
    timeout_s: float = 600,
) -> Path:
    """Return the shared library of the verilated design (class `Vtop`) and a harness in C++, as `build` does."""
    tool = find_tool("verilator")
    find_tool("make"), find_tool("g++")
    cache_key = repr((_REVISION, str(tool.path), design.digest, harness, optimise_flag))
    library = (
        folder or _find_cache_folder()
    ) / f"{design.top}-{hashlib.sha256(cache_key.encode()).hexdigest()[:16]}.so"
    with _lock_library(library):
        if not library.exists():
            with tempfile.TemporaryDirectory(prefix="verilator-") as work_folder:
                _compile(design, harness, library, Path(work_folder), optimise_flag, timeout_s)
    return library


@contextmanager
def _lock_library(library: Path) -> Iterator[None]:
    """Hold the lock of a library, so that one process builds it while the others wait for it."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with library.with_suffix(".lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


def _find_cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lightbed" / "verilator"


def _compile(
    design: Design, harness: str, library: Path, work_folder: Path, optimise_flag: str, timeout_s: float
) -> None:
    deadline, tool = time.monotonic() + timeout_s, find_tool("verilator")
    versions = [program.run(["--version"]) for program in (tool, find_tool("g++"))]
    runtime_cache_key = repr((_REVISION, str(tool.path), versions, optimise_flag))
    runtime_folder = library.parent / f"runtime-{hashlib.sha256(runtime_cache_key.encode()).hexdigest()[:16]}"
    sources = design.write(work_folder)
    (work_folder / "harness.cpp").write_text(harness, encoding="ascii")
    arguments = [
        *("--cc", "--exe", optimise_flag, "--x-assign", "fast", "--x-initial", "fast"),
        *("-Wno-fatal", "-Wno-lint", "-Wno-style", "--no-timing"),
        *("--top-module", design.top, "--prefix", "Vtop"),
        *("-CFLAGS", f"{optimise_flag} -fPIC", "-LDFLAGS", "-shared"),
        *("--Mdir", "build", "-o", "library.so", "harness.cpp", *(path.name for path in sources)),
    ]
    tool.run(arguments, folder=work_folder, timeout_s=timeout_s)
    build_folder = work_folder / "build"
    for name in _RUNTIME_OBJECTS:
        with suppress(FileNotFoundError):
            # The copy is newer than the Makefile, so make does not build it again.
            shutil.copyfile(runtime_folder / name, build_folder / name)
    remaining_s = max(deadline - time.monotonic(), 0.0)
    find_tool("make").run(
        ["-f", "Vtop.mk", _PCH_MAKE_VARIABLE, f"OPT_FAST={optimise_flag}"],
        folder=build_folder,
        timeout_s=remaining_s,
    )
    _copy_atomically(build_folder / "library.so", library)
    runtime_folder.mkdir(exist_ok=True)
    for name in _RUNTIME_OBJECTS:
        if not (runtime_folder / name).exists():
            _copy_atomically(build_folder / name, runtime_folder / name)


def _copy_atomically(source: Path, target: Path) -> None:
    """Copy a file so that other processes see it complete or not at all."""
    with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as temporary_file:
        shutil.copyfile(source, temporary_file.name)
    Path(temporary_file.name).replace(target)


def _write_harness(design: Design) -> str:
    ports = design.ports
    return _HARNESS.format(
        inputs="\n".join(_write_set_statement(port) for port in ports.inputs),
        outputs="\n".join(_write_get_statement(port) for port in ports.outputs),
        input_columns=ports.input_column_count,
        output_columns=ports.output_column_count,
    )


def _name_member(port: Port) -> str:
    """Return the C++ member of a port; Verilator encodes two underscores as `___05F`."""
    return f"top->{port.name.replace('__', '___05F')}"


def _format_mask(port: Port) -> str:
    bits = port.width - 64 * (port.word_count - 1)
    return f"{(1 << bits) - 1:#x}ULL"


def _write_set_statement(port: Port) -> str:
    if port.width > 64:
        return (
            f"  set_wide({_name_member(port)}, row + {port.column}, {port.word_count}, {_format_mask(port)});"
        )
    return f"  {_name_member(port)} = row[{port.column}] & {_format_mask(port)};"


def _write_get_statement(port: Port) -> str:
    if port.width > 64:
        return f"  get_wide({_name_member(port)}, row + {port.column}, {port.word_count});"
    return f"  row[{port.column}] = {_name_member(port)};"


class Simulator:
    """A verilated design with its state; each run continues from the state after the previous one."""

    def __init__(self, design: Design, library: Path) -> None:
        self.design = design
        self.library = library
        functions = ctypes.CDLL(str(library))
        functions.run_new.restype = ctypes.c_void_p
        functions.run_delete.argtypes = [ctypes.c_void_p]
        functions.run_rows.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        self._run_rows = functions.run_rows
        self._pointer = ctypes.c_void_p(functions.run_new())
        self._finalizer = weakref.finalize(self, functions.run_delete, self._pointer)
        self.reset()

    def run(self, rows: Rows) -> Rows:
        """Return the outputs of every cycle, sampled before its clock edge.

        Raise ValueError for rows of another width.
        """
        return self._run(rows, reset=False)

    def reset(self, shadow_bank: int | None = None) -> None:
        """Run two cycles of reset with all inputs 0.

        If `shadow_bank` is given, commit it as the targets in the second.
        """
        rows = np.zeros((2, self.design.ports.input_column_count), np.uint64)
        if shadow_bank is not None:
            port = self.design.ports.find_input("target_shadow_i")
            rows[1, self.design.ports.find_input("commit_i").column] = 1
            for word in range(port.word_count):
                rows[1, port.column + word] = shadow_bank >> 64 * word & (1 << 64) - 1
        self._run(rows, reset=True)

    def close(self) -> None:
        """Free the memory of the model. Closing it again does nothing."""
        self._finalizer()

    def _run(self, rows: Rows, *, reset: bool) -> Rows:
        if not self._finalizer.alive:
            raise HdlError("the simulator is closed. Build it again.")
        inputs = check_rows(self.design, rows)
        outputs = np.zeros((len(inputs), self.design.ports.output_column_count), np.uint64)
        self._run_rows(self._pointer, int(reset), len(inputs), inputs.ctypes.data, outputs.ctypes.data)
        return outputs


def check_rows(design: Design, rows: Rows) -> Rows:
    """Return the rows as a contiguous array. Raise ValueError unless they are `uint64[cycles, input_columns]`."""
    columns = design.ports.input_column_count
    if rows.ndim != 2 or rows.shape[1] != columns or rows.dtype != np.uint64:
        raise ValueError(f"{design.top} takes uint64[cycles, {columns}], not {rows.dtype}{list(rows.shape)}.")
    return np.ascontiguousarray(rows)
