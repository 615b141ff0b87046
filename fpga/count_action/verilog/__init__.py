"""SystemVerilog of a datapath: instances of the hand-written blocks in `fpga/rtl`, and the wires between them.

The text depends on the datapath alone, is readable, and stays in the subset that Icarus, Verilator and yosys accept.
The top has the name of the datapath, and the ports of `make_ports` after `clk_i` and `rst_i`. The reset is synchronous
and active high.
docs/reference/count-action.md explains the rules that the text cites.
"""

from fpga.count_action.verilog.top import list_core_files, write_top_module

__all__ = ["list_core_files", "write_top_module"]
