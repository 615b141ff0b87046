"""Designs for simulators and synthesis: a top, its sources, and its ports."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Ports, make_ports
from fpga.count_action.verilog import list_core_files, write_top_module
from fpga.hdl.tools import HdlError

_FPGA_FOLDER = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Design:
    """A SystemVerilog design: the module `top` with clock `clk_i`, reset `rst_i` and the `ports` of a run.

    `sources` are pairs of file name and text. They are written again for every tool, so the digest of a design covers
    everything that a tool reads.
    """

    top: str
    sources: tuple[tuple[str, str], ...]
    ports: Ports

    @cached_property
    def digest(self) -> str:
        """SHA-256 of top, sources and ports."""
        return hashlib.sha256(repr((self.top, self.sources, self.ports)).encode()).hexdigest()

    def write(self, folder: Path) -> list[Path]:
        """Write the sources, and return their paths in the order in which tools should read them."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, text in self.sources:
            paths.append(folder / name)
            paths[-1].write_text(text, encoding="ascii")
        return paths


def make_design(datapath: Datapath) -> Design:
    """Return the design of a datapath: the generated top, after the hand-written blocks that it instantiates."""
    top = write_top_module(datapath)
    used_names = find_instances(top)
    blocks = tuple(
        (path.name, path.read_text(encoding="ascii")) for path in list_core_files() if path.stem in used_names
    )
    return Design(datapath.name, (*blocks, (f"{datapath.name}.sv", top)), make_ports(datapath))


def make_block_design(
    top: str, ports: Ports | None = None, texts_by_name: Mapping[str, str] | None = None
) -> Design:
    """Return the design of a hand-written module, with all blocks and library datapaths that it instantiates.

    Runs of rows need the `ports`; a custom harness does not. `texts_by_name` maps names of modules to texts that
    extend or replace `fpga/rtl`. Raise HdlError for an unknown module.
    """
    texts: dict[str, str] = {}
    pending_names = [top]
    while pending_names:
        name = pending_names.pop()
        if name not in texts:
            texts[name] = (texts_by_name or {}).get(name) or _read_module(name)
            pending_names += sorted(find_instances(texts[name]) - {"module"})
    return Design(top, tuple((f"{name}.sv", texts[name]) for name in reversed(texts)), ports or Ports((), ()))


def _read_module(name: str) -> str:
    from fpga.count_action.load import load

    block_path, datapath_path = _FPGA_FOLDER / "rtl" / f"{name}.sv", _FPGA_FOLDER / "library" / f"{name}.ca"
    if block_path.exists():
        return block_path.read_text(encoding="ascii")
    if datapath_path.exists():
        return write_top_module(load(datapath_path).datapath)
    raise HdlError(f"there is no module {name} in {block_path.parent} or {datapath_path.parent}.")


def find_instances(text: str) -> frozenset[str]:
    """Return the names of the modules that a generated module instantiates."""
    return frozenset(re.findall(r"^ *(\w+) (?:#\(|\w+ \()$", text, re.MULTILINE))
