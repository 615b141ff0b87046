"""A datapath in plain Python, straight from the rules R1 to R21 of `docs/reference/count-action.md`.

This is the meaning of the language in a form that runs: slow, exact, and to be read with the page. `step` answers
what one cycle does; the registers are replaced all at once at its end. Everything else is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows, ports_of, targets_of
from fpga.count_action.simulate.port_values import check_inputs, row_of, values_of
from fpga.count_action.simulate.reference.evaluation import Evaluation
from fpga.count_action.simulate.reference.next_state import next_state
from fpga.count_action.simulate.reference.state import Cycle, reset_state
from fpga.count_action.simulate.reference.wiring import Wiring


class Reference:
    """A datapath and its registers. `run` may be called again and again; `reset` makes it as after power-on."""

    def __init__(self, datapath: Datapath) -> None:
        """Prepare a datapath in reset.

        Raises KeyError for references to nothing, ValueError for streams in a circle.
        """
        self.datapath = datapath
        self.ports = ports_of(datapath)
        self._wiring = Wiring(datapath)
        self.reset()

    def reset(self, shadow: int | None = None) -> None:
        """Reset all registers as R12 says; a commit in reset puts what is in the shadow bank in force."""
        self.state = reset_state(self.datapath)
        if shadow is not None:
            self.state = replace(self.state, targets=targets_of(self.datapath, shadow))

    def run(self, rows: Rows) -> Rows:
        """Return the outputs of every cycle, read before its clock edge.

        Raises ValueError for rows of another width.
        """
        inputs = check_inputs(self.ports, rows)
        outputs = [row_of(self.ports.outputs, cycle.outputs) for cycle in self.cycles(inputs)]
        return np.array(outputs, np.uint64).reshape(len(inputs), self.ports.output_columns)

    def cycles(self, rows: Rows) -> Iterator[Cycle]:
        """Return what happens in every cycle."""
        for row in check_inputs(self.ports, rows).tolist():
            yield self.step(values_of(self.ports.inputs, row))

    def violations(self, rows: Rows) -> Iterator[tuple[int, str, str, str]]:
        """Return the properties that do not hold, cycle by cycle: cycle, module, kind and name (R21)."""
        for cycle, row in enumerate(check_inputs(self.ports, rows).tolist()):
            evaluation = Evaluation(self._wiring, self.state, values_of(self.ports.inputs, row))
            yield from ((cycle, *each) for each in evaluation.violated())
            self.state = next_state(evaluation)

    def step(self, inputs: Mapping[str, int]) -> Cycle:
        """Run one cycle: `inputs` by port; ports that are not named are 0."""
        evaluation = Evaluation(self._wiring, self.state, inputs)
        cycle, self.state = evaluation.cycle(), next_state(evaluation)
        return cycle
