"""Cost of a design: look-up tables and flip-flops by yosys, as an estimate that is good for comparisons alone.

yosys maps UltraScale+ with the carry chains of older families, so the numbers are not those of Vivado. They show
growth: `fpga/rtl/synthesis.json` has what was last accepted, and `python -m fpga.hdl.synthesis --write` renews it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from fpga.count_action import load
from fpga.count_action.ports import Ports
from fpga.count_action.verilog import core_files
from fpga.hdl.design import Design, design_of
from fpga.hdl.tools import ToolFailed, ToolMissing
from lightbed.wording import install_extra

_FPGA = Path(__file__).resolve().parents[1]
BASELINE = _FPGA / "rtl" / "synthesis.json"
_ALLOWED_GROWTH = 0.10
"""Part by which a number may exceed the baseline; a few cells are allowed always."""
_ALLOWED_CELLS = 2


def subjects() -> Iterator[Design]:
    """Return the designs to estimate: blocks of the core with default parameters, every module of the library."""
    for path in core_files():
        text = path.read_text(encoding="ascii")
        yield Design(path.stem, ((path.name, text),), Ports((), ()))
    for path in sorted((_FPGA / "library").glob("*.ca")):
        yield design_of(load(path).datapath)


def estimate(designs: Iterable[Design], *, timeout_s: float = 600) -> dict[str, dict[str, int]]:
    """Return the look-up tables and flip-flops of each design, by its top. Raises ToolMissing and ToolFailed.

    Runs in a process of its own: yosys ends the process on errors.
    """
    if find_spec("pyosys") is None:
        raise ToolMissing(f"pyosys is not installed. Hint: {install_extra('hdl')}.")
    with tempfile.TemporaryDirectory(prefix="synthesis-") as name:
        folder = Path(name)
        tops = []
        script = ["from pyosys import libyosys as ys"]
        for design in designs:
            tops.append(design.top)
            script += _passes(design, folder)
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(script)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise ToolFailed(
                f"yosys ended with status {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
            )
        return {top: _cells((folder / f"{top}.json").read_text()) for top in tops}


def _passes(design: Design, folder: Path) -> Iterator[str]:
    files = " ".join(str(path) for path in design.write(folder / design.top))
    yield "design = ys.Design()"
    passes = (
        f"tee -q read_verilog -sv {files}",
        f"tee -q synth_xilinx -family xcup -noiopad -flatten -top {design.top}",
        f"tee -q -o {folder / design.top}.json stat -json",
    )
    yield from (f"ys.run_pass({each!r}, design)" for each in passes)


def _cells(stat: str) -> dict[str, int]:
    """Return the look-up tables of every size, and flip-flops of every kind, in what `stat` has counted."""
    kinds: Mapping[str, int] = json.loads(stat)["design"]["num_cells_by_type"]
    luts = sum(number for kind, number in kinds.items() if kind.startswith("LUT"))
    flops = sum(number for kind, number in kinds.items() if kind.startswith("FD"))
    return {"lut": luts, "ff": flops}


def find_growth(
    now: Mapping[str, Mapping[str, int]], before: Mapping[str, Mapping[str, int]]
) -> tuple[str, ...]:
    """Return what has grown by more than is allowed, or is not in the baseline, in words."""
    found = []
    for top, cells in now.items():
        if top not in before:
            found.append(f"{top} is not in the baseline")
            continue
        for kind, number in cells.items():
            allowed = max(before[top][kind] * (1 + _ALLOWED_GROWTH), before[top][kind] + _ALLOWED_CELLS)
            if number > allowed:
                found.append(f"{top}: {kind} {before[top][kind]} -> {number}")
    return tuple(found)


def main(arguments: list[str]) -> int:
    """Estimate everything; with `--write`, make that the baseline, else compare with it."""
    now = estimate(subjects())
    if "--write" in arguments:
        BASELINE.write_text(json.dumps(now, indent=2) + "\n", encoding="ascii")
        return 0
    found = find_growth(now, json.loads(BASELINE.read_text(encoding="ascii")))
    for line in found:
        sys.stderr.write(f"{line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
