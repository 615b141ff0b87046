"""Cost of designs: look-up tables and flip-flops as estimated by yosys, for comparisons only.

yosys maps UltraScale+ with the carry chains of older families, so the numbers differ from Vivado's, but they
show growth. `fpga/rtl/synthesis.json` is the accepted baseline; `python -m fpga.hdl.synthesis --write` updates it.
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
from fpga.count_action.verilog import list_core_files
from fpga.hdl.design import Design, make_design
from fpga.hdl.tools import ToolFailed, ToolMissing
from lightbed.wording import describe_extra

_FPGA_FOLDER = Path(__file__).resolve().parents[1]
BASELINE_PATH = _FPGA_FOLDER / "rtl" / "synthesis.json"
_MAX_GROWTH_FRACTION = 0.10
"""Relative growth over the baseline that is allowed."""
_MAX_EXTRA_CELLS = 2
"""Growth in cells that is always allowed."""


def list_designs() -> Iterator[Design]:
    """Yield the designs to estimate: core blocks with default parameters, and every module of the library."""
    for path in list_core_files():
        text = path.read_text(encoding="ascii")
        yield Design(path.stem, ((path.name, text),), Ports((), ()))
    for path in sorted((_FPGA_FOLDER / "library").glob("*.ca")):
        yield make_design(load(path).datapath)


def estimate_cells(designs: Iterable[Design], *, timeout_s: float = 600) -> dict[str, dict[str, int]]:
    """Return the numbers of look-up tables and flip-flops of each design, by the name of its top-level module.

    Raise ToolMissing or ToolFailed. yosys runs in a process of its own, because it exits on errors.
    """
    if find_spec("pyosys") is None:
        raise ToolMissing(f"pyosys is not installed. Hint: {describe_extra('hdl')}.")
    with tempfile.TemporaryDirectory(prefix="synthesis-") as folder_name:
        folder = Path(folder_name)
        tops = []
        script = ["from pyosys import libyosys as ys"]
        for design in designs:
            tops.append(design.top)
            script += _write_passes(design, folder)
        process = subprocess.run(
            [sys.executable, "-c", "\n".join(script)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if process.returncode:
            raise ToolFailed(
                f"yosys ended with status {process.returncode}:\n{(process.stdout + process.stderr)[-2000:]}"
            )
        return {top: _count_cells((folder / f"{top}.json").read_text()) for top in tops}


def _write_passes(design: Design, folder: Path) -> Iterator[str]:
    file_list = " ".join(str(path) for path in design.write(folder / design.top))
    yield "design = ys.Design()"
    passes = (
        f"tee -q read_verilog -sv {file_list}",
        f"tee -q synth_xilinx -family xcup -noiopad -flatten -top {design.top}",
        f"tee -q -o {folder / design.top}.json stat -json",
    )
    yield from (f"ys.run_pass({pass_command!r}, design)" for pass_command in passes)


def _count_cells(stat_json: str) -> dict[str, int]:
    """Return the numbers of look-up tables of all sizes and of flip-flops of all kinds in the output of `stat_json`."""
    cell_counts: Mapping[str, int] = json.loads(stat_json)["design"]["num_cells_by_type"]
    lut_count = sum(number for kind, number in cell_counts.items() if kind.startswith("LUT"))
    flop_count = sum(number for kind, number in cell_counts.items() if kind.startswith("FD"))
    return {"lut": lut_count, "ff": flop_count}


def find_growth(
    estimates: Mapping[str, Mapping[str, int]], baseline: Mapping[str, Mapping[str, int]]
) -> tuple[str, ...]:
    """Return a message for each number that has grown more than allowed, or is not in the baseline."""
    messages = []
    for top, cells in estimates.items():
        if top not in baseline:
            messages.append(f"{top} is not in the baseline")
            continue
        for kind, number in cells.items():
            max_number = max(
                baseline[top][kind] * (1 + _MAX_GROWTH_FRACTION), baseline[top][kind] + _MAX_EXTRA_CELLS
            )
            if number > max_number:
                messages.append(f"{top}: {kind} {baseline[top][kind]} -> {number}")
    return tuple(messages)


def main(arguments: list[str]) -> int:
    """Estimate all designs. Return 1 if one has grown beyond the baseline; with `--write`, replace the baseline."""
    estimates = estimate_cells(list_designs())
    if "--write" in arguments:
        BASELINE_PATH.write_text(json.dumps(estimates, indent=2) + "\n", encoding="ascii")
        return 0
    messages = find_growth(estimates, json.loads(BASELINE_PATH.read_text(encoding="ascii")))
    for line in messages:
        sys.stderr.write(f"{line}\n")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
