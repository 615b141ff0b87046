"""Tools for hardware description: simulators, linters, and where to find them.

Nothing here is needed to use a board or the fast simulator. What a machine lacks is said by `why_missing`, with
the hint; `find_tool` raises `ToolMissing` with the same words.
"""

from fpga.hdl.design import Design, design_of
from fpga.hdl.tools import HdlError, Tool, ToolFailed, ToolMissing, find_tool, why_missing

__all__ = ["Design", "HdlError", "Tool", "ToolFailed", "ToolMissing", "design_of", "find_tool", "why_missing"]
