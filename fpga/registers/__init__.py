"""The registers through which a driver controls a datapath, and the AXI4-Lite tops that contain them."""

from fpga.registers.model import Access, Register, RegisterMap
from fpga.registers.register_list import FIFO_DEPTH, StreamAccess, make_register_map
from fpga.registers.text import to_json, to_markdown, to_rdl

__all__ = [
    "FIFO_DEPTH",
    "Access",
    "Register",
    "RegisterMap",
    "StreamAccess",
    "make_register_map",
    "to_json",
    "to_markdown",
    "to_rdl",
]
