"""Simulators of a datapath, exact to the cycle and the bit.

simulate(datapath, inputs)      outputs of a run from reset, fast
compile_datapath(datapath)      a fast simulator with its state, for many runs
Reference(datapath)             plain Python, straight from the rules; needs no numba
explain_run(datapath, inputs)   every cycle in words

`reference` and `compiled` are the two simulators, `stimuli` what goes into them, `waveforms` what is made of a run.
"""

from fpga.count_action.simulate.compiled.simulator import Simulator, compile_datapath, simulate
from fpga.count_action.simulate.reference import Reference
from fpga.count_action.simulate.reference.state import CountCycle, Cycle, State
from fpga.count_action.simulate.trace import explain_run

__all__ = [
    "CountCycle",
    "Cycle",
    "Reference",
    "Simulator",
    "State",
    "compile_datapath",
    "explain_run",
    "simulate",
]
