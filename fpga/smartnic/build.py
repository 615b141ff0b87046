"""All files that a board with the smartNIC needs."""

from __future__ import annotations

from fpga.count_action.ports import Ports
from fpga.hdl.design import Design, make_block_design
from fpga.registers.build import read_board_files
from fpga.registers.register_file import emit_register_file
from fpga.registers.text import to_header, to_ip_registers, to_json, to_markdown, to_rdl
from fpga.smartnic.registers import make_smartnic_registers

TOP = "smartnic_axi"


def make_nic_design(top: str = TOP, ports: Ports | None = None, text: str = "") -> Design:
    """Return the design with the top module `top`. Pass its SystemVerilog as `text` if it is not in `fpga/rtl`."""
    register_map = make_smartnic_registers()
    texts = {f"{register_map.name}_registers": emit_register_file(register_map)} | (
        {top: text} if text else {}
    )
    return make_block_design(top, ports, texts)


def build_files(board: str = "zcu111") -> dict[str, str]:
    """Return the text of every file, by name.

    - the sources of `smartnic_axi`, and a list of the sources in order
    - the registers as SystemRDL, C header, JSON, Markdown and Tcl
    - the scripts of the board

    Raise ValueError for an unknown board.
    """
    register_map = make_smartnic_registers()
    sources = make_nic_design().sources
    return {
        **dict(sources),
        f"{TOP}.f": "".join(f"{name}\n" for name, _ in sources),
        f"{TOP}_ip_registers.tcl": to_ip_registers(register_map),
        f"{register_map.name}.rdl": to_rdl(register_map),
        f"{register_map.name}.h": to_header(register_map),
        f"{register_map.name}.registers.json": to_json(register_map),
        f"{register_map.name}.md": to_markdown(register_map),
        **read_board_files(board),
    }
