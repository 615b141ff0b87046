"""Tools for SystemVerilog: simulators, synthesis, and where to find them.

Boards and the fast simulator need none of them. `explain_missing` returns which tools are missing and how to install
them; `find_tool` raises `ToolMissing` with the same message.
"""

from fpga.hdl.design import Design, make_design
from fpga.hdl.tools import HdlError, Tool, ToolFailed, ToolMissing, explain_missing, find_tool

__all__ = [
    "Design",
    "HdlError",
    "Tool",
    "ToolFailed",
    "ToolMissing",
    "explain_missing",
    "find_tool",
    "make_design",
]
