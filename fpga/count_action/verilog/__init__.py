"""SystemVerilog of a datapath: thin instances of the hand-written blocks in `fpga/rtl`, and the wires between them.

The text depends on the datapath alone, is meant to be read, and stays in the subset that Icarus, Verilator and
yosys take. The top is called like the datapath and has the ports of `ports_of`, after `clk_i` and `rst_i`
(synchronous, active high). Which rule a part follows: docs/reference/count-action.md.
"""

from fpga.count_action.verilog.top import core_files, emit

__all__ = ["core_files", "emit"]
