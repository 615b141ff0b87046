"""The fast simulator: runs the compiled loop of a datapath."""

from __future__ import annotations

import numpy as np

from fpga.count_action.actions.memory import find_memory
from fpga.count_action.graph import Graph
from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows, make_ports, split_targets
from fpga.count_action.simulate.compiled.generator import make_program
from fpga.count_action.simulate.port_values import check_inputs
from lightbed.wording import describe_extra


class Simulator:
    """A compiled datapath and its registers. `run` continues from the current state; `reset` starts again."""

    def __init__(self, datapath: Datapath) -> None:
        """Compile a datapath, and reset it.

        Raise ImportError if numba is not installed, KeyError for a reference that names no signal, and ValueError if
        streams form a cycle.
        """
        self.datapath = datapath
        self.ports = make_ports(datapath)
        program = make_program(datapath)
        try:
            from fpga.count_action.simulate.compiled.native import compile_program
        except ImportError as error:
            raise ImportError(f"the fast simulator needs numba: {describe_extra('fpga')}") from error
        self._run_loop = compile_program(program)
        self._reset_values = np.array(list(program.initial_registers.values()), np.int64)
        self._output_positions = {key: position for position, key in enumerate(Graph(datapath).drivers)}
        self._register_positions = {name: position for position, name in enumerate(program.initial_registers)}
        self._array_positions, position = {}, len(self._reset_values)
        for name, word_count in program.array_word_counts.items():
            self._array_positions[name] = position
            position += word_count
        array_words = np.zeros(position - len(self._reset_values), np.int64)
        self._state = np.concatenate([self._reset_values, array_words])

    def run(self, rows: Rows, out: Rows | None = None) -> Rows:
        """Return the outputs of every cycle, sampled before its clock edge.

        If `out` is given, write them to it, because allocating memory takes longer than the simulation. Raise
        ValueError for rows of another width, and for an `out` of another shape or type.
        """
        inputs = check_inputs(self.ports, rows)
        shape = (len(inputs), self.ports.output_column_count)
        outputs = np.empty(shape, np.uint64) if out is None else out
        if outputs.shape != shape or outputs.dtype != np.uint64 or not outputs.flags.c_contiguous:
            raise ValueError(
                f"out is {outputs.dtype}{list(outputs.shape)}, not a contiguous uint64{list(shape)}."
            )
        self._run_loop(self._state, inputs.view(np.int64), outputs.view(np.int64))
        return outputs

    def load_word(self, module: str, memory: str, address: int, word: int) -> None:
        """Load a word of a memory without a cycle; ignore an address beyond the memory (R25).

        Raise KeyError if there is no such memory.
        """
        action = find_memory(self.datapath, module, memory)
        if 0 <= address < action.words:
            array_position = self._array_positions[f"a{self._output_positions[module, memory]}"]
            self._state[array_position + address] = word & (1 << action.width) - 1

    def reset(self, shadow_bank: int | None = None) -> None:
        """Reset all registers, but not the words of memories (R12, R25).

        With `shadow_bank`, commit these targets, as hardware does in reset.
        """
        self._state[: len(self._reset_values)] = self._reset_values
        if shadow_bank is not None:
            for index, value in enumerate(split_targets(self.datapath, shadow_bank).values()):
                self._state[self._register_positions[f"t{index}"]] = value


def compile_datapath(datapath: Datapath) -> Simulator:
    """Return a fast simulator of a datapath, in reset. Raise as `Simulator` does."""
    return Simulator(datapath)


def simulate(datapath: Datapath, inputs: Rows) -> Rows:
    """Return the outputs of a run from reset. Raise as `Simulator` does, and ValueError for rows of another width."""
    return Simulator(datapath).run(inputs)
