"""The fast simulator: a datapath as one generated loop over the cycles, in machine code."""

from __future__ import annotations

import numpy as np

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows, ports_of
from fpga.count_action.simulate.generator import program_of
from fpga.count_action.simulate.words import checked_inputs


class Simulator:
    """A compiled datapath and its registers. `run` goes on where it stopped; `reset` is as after power-on."""

    def __init__(self, datapath: Datapath) -> None:
        """Compiles. Raises ImportError when numba is not installed, KeyError for references to nothing, ValueError
        for streams in a circle.
        """
        self.datapath = datapath
        self.ports = ports_of(datapath)
        program = program_of(datapath)
        try:
            from fpga.count_action.simulate.native import compiled
        except ImportError as error:
            raise ImportError("the fast simulator needs numba: pip install 'lightbed[fpga]'") from error
        self._run = compiled(program)
        self._reset = np.array(list(program.registers.values()), np.int64)
        self._state = self._reset.copy()

    def run(self, rows: Rows) -> Rows:
        """Outputs of every cycle, read before its clock edge. Raises ValueError for rows of another width."""
        inputs = checked_inputs(self.ports, rows)
        outputs = np.empty((len(inputs), self.ports.output_columns), np.uint64)
        self._run(self._state, inputs.view(np.int64), outputs.view(np.int64))
        return outputs

    def reset(self) -> None:
        """All registers as R12 says."""
        self._state[:] = self._reset


def compile_datapath(datapath: Datapath) -> Simulator:
    """A fast simulator of a datapath, reset. Raises as `Simulator`."""
    return Simulator(datapath)


def simulate(datapath: Datapath, inputs: Rows) -> Rows:
    """Outputs of a run from reset. Raises as `Simulator`, and ValueError for rows of another width."""
    return Simulator(datapath).run(inputs)
