"""Access to the registers of a datapath, in simulators and on boards, selected by an address."""

from fpga.bus.address import load_datapath, make_simulated_bus, make_verilated_bus, open_bus
from fpga.bus.protocol import BusError, BusFault, BusUnavailable, RegisterBus
from fpga.bus.simulated import SimulatedBus

__all__ = [
    "BusError",
    "BusFault",
    "BusUnavailable",
    "RegisterBus",
    "SimulatedBus",
    "load_datapath",
    "make_simulated_bus",
    "make_verilated_bus",
    "open_bus",
]
