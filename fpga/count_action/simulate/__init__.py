"""Cycle-accurate and bit-accurate simulators of a datapath.

simulate(datapath, inputs)      outputs of a run from reset, with the fast simulator
compile_datapath(datapath)      a fast simulator that keeps its state between runs
ReferenceSimulator(datapath)    the reference simulator in plain Python; does not need numba
explain_run(datapath, inputs)   a trace of every cycle as text

`reference` and `compiled` are the two simulators; `stimuli` reads inputs, `waveforms` writes plots and VCD files.
"""

from fpga.count_action.simulate.compiled.simulator import Simulator, compile_datapath, simulate
from fpga.count_action.simulate.reference import ReferenceSimulator
from fpga.count_action.simulate.reference.state import CountCycle, Cycle, State
from fpga.count_action.simulate.trace import explain_run

__all__ = [
    "CountCycle",
    "Cycle",
    "ReferenceSimulator",
    "Simulator",
    "State",
    "compile_datapath",
    "explain_run",
    "simulate",
]
