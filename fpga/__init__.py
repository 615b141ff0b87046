"""Count-action modules: the language, its simulators, the generated hardware, and the driver.

fpga.count_action       the language, the model of a datapath, simulators and generated SystemVerilog
fpga.open_bus(address)  access to the registers of a datapath, in a simulator or on a board
fpga.Program            targets of each layer
fpga.Datapath(bus)      the driver: `.load(program)`, `.run(beats)`

| module | contents |
|---|---|
| `count_action` | the language |
| `library`, `rtl`, `boards` | modules in the language, hand-written blocks, scripts for boards |
| `hdl` | simulators, linters and synthesis of SystemVerilog |
| `formal` | proofs of blocks and of datapaths |
| `registers` | the register map, and the tops generated from it |
| `verify` | verification of built folders |
| `bus` | access to the registers: simulators, pins, boards |
| `program`, `beats`, `stream_portal`, `datapath` | the driver |
| `photonic_mac` | models of the photonic multiply-accumulate datapath |
| `smartnic` | programs of the photonic smartNIC, and the exact model of its answers |
| `cli` | the command `countaction` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes

if TYPE_CHECKING:
    from fpga.beats import Beats
    from fpga.bus import BusError, BusFault, BusUnavailable, RegisterBus, open_bus
    from fpga.datapath import BeatsNotTaken, Datapath, DatapathError, Status, WrongHardware
    from fpga.program import Program, ProgramError, program_from_json

__all__ = [
    "Beats",
    "BeatsNotTaken",
    "BusError",
    "BusFault",
    "BusUnavailable",
    "Datapath",
    "DatapathError",
    "Program",
    "ProgramError",
    "RegisterBus",
    "Status",
    "WrongHardware",
    "open_bus",
    "program_from_json",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(
        __name__,
        {
            "beats": "Beats",
            "bus": "BusError BusFault BusUnavailable RegisterBus open_bus",
            "datapath": "BeatsNotTaken Datapath DatapathError Status WrongHardware",
            "program": "Program ProgramError program_from_json",
        },
    )
