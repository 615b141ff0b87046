"""Tools for SystemVerilog: simulators, synthesis, and where to find them.

Boards and the fast simulator need none of them. `why_missing` returns which tools are missing and how to install them;
`find_tool` raises `ToolMissing` with the same message.
"""

from fpga.hdl.design import Design, make_design
from fpga.hdl.tools import HdlError, Tool, ToolFailed, ToolMissing, find_tool, why_missing

__all__ = [
    "Design",
    "HdlError",
    "Tool",
    "ToolFailed",
    "ToolMissing",
    "find_tool",
    "make_design",
    "why_missing",
]
