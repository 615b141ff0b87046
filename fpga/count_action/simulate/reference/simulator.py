"""The reference simulator, a direct implementation of the rules R1 to R26 of `docs/reference/count-action.md`.

It is the executable definition of the language: slow, exact, and best read with that page. `step` runs one cycle and
replaces all registers at once at its end. Tests compare every other simulator and the hardware with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fpga.count_action.actions import KINDS
from fpga.count_action.actions.memory import find_memory
from fpga.count_action.model import Count, Datapath, Module, Ref
from fpga.count_action.ports import Rows, make_ports, split_targets
from fpga.count_action.simulate.bit_slices import PartOfModule
from fpga.count_action.simulate.port_values import check_inputs, pack_row, unpack_row
from fpga.count_action.simulate.reference.evaluation import ConnectionCache, Evaluation
from fpga.count_action.simulate.reference.state import Cycle, State, compute_next_buffers, make_reset_state


class ReferenceSimulator:
    """A datapath and its registers. `run` continues from the current state; `reset` restores the initial state."""

    def __init__(self, datapath: Datapath) -> None:
        """Start with a datapath in reset.

        Raise KeyError for a reference that names no signal, and ValueError if streams form a cycle.
        """
        self.datapath = datapath
        self.ports = make_ports(datapath)
        self._wiring = ConnectionCache(datapath)
        self.state = make_reset_state(datapath)

    def reset(self, shadow_bank: int | None = None) -> None:
        """Reset all registers, but not the words of memories (R12, R25).

        With `shadow_bank`, commit these targets, as hardware does in reset.
        """
        previous_state = self.state
        self.state = make_reset_state(self.datapath, previous_state)
        if shadow_bank is not None:
            self.state = replace(self.state, targets=split_targets(self.datapath, shadow_bank))

    def load_word(self, module: str, memory: str, address: int, word: int) -> None:
        """Load a word of a memory without a cycle; ignore an address beyond the memory (R25).

        Raise KeyError if there is no such memory.
        """
        action = find_memory(self.datapath, module, memory)
        if 0 <= address < action.words:
            words = {**self.state.action_states[module, memory], address: word & (1 << action.width) - 1}
            self.state = replace(
                self.state, action_states={**self.state.action_states, (module, memory): words}
            )

    def run(self, rows: Rows) -> Rows:
        """Return the outputs of every cycle, sampled before its clock edge.

        Raise ValueError for rows of another width.
        """
        inputs = check_inputs(self.ports, rows)
        outputs = [pack_row(self.ports.outputs, cycle.outputs) for cycle in self.iterate_cycles(inputs)]
        return np.array(outputs, np.uint64).reshape(len(inputs), self.ports.output_column_count)

    def iterate_cycles(self, rows: Rows) -> Iterator[Cycle]:
        """Run the rows, and yield every cycle."""
        for row in check_inputs(self.ports, rows).tolist():
            yield self.step(unpack_row(self.ports.inputs, row))

    def find_violations(self, rows: Rows) -> Iterator[tuple[int, str, str, str]]:
        """Run the rows, and yield (cycle, module, kind, name) of each property that does not hold (R21)."""
        for cycle_index, row in enumerate(check_inputs(self.ports, rows).tolist()):
            evaluation = Evaluation(self._wiring, self.state, unpack_row(self.ports.inputs, row))
            yield from ((cycle_index, *violation) for violation in evaluation.find_violations())
            self.state = compute_next_state(evaluation)

    def step(self, inputs: Mapping[str, int]) -> Cycle:
        """Run one cycle with `inputs` by port; missing ports are 0."""
        evaluation = Evaluation(self._wiring, self.state, inputs)
        cycle, self.state = evaluation.make_cycle(), compute_next_state(evaluation)
        return cycle


def compute_next_state(evaluation: Evaluation) -> State:
    """Return the registers after the clock edge. Each register depends only on the cycle before the edge."""
    return ClockEdge(evaluation).make_state()


class ClockEdge:
    """The clock edge at the end of a cycle. Implements `actions.kind.Edge`."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation

    def make_state(self) -> State:
        """Return the registers after the edge."""
        evaluation, previous_state = self._evaluation, self._evaluation.state
        must_keep_status = not evaluation.inputs.get("clear_status_i", 0)
        datapath = evaluation.wiring.datapath
        outputs, action_states = dict(previous_state.outputs), dict(previous_state.action_states)
        for module in datapath.modules:
            for action in module.actions:
                key = (module.name, action.output)
                if action.kind.drives:
                    action_states[key] = KINDS[action.kind].keep(self, module, action)
                    value = KINDS[action.kind].drive(self, module, action)
                    outputs[key] = outputs[key] if value is None else value
        return State(
            counts={
                (module.name, count.name): self._compute_next_count(module, count)
                for module, count in datapath.list_counts()
            },
            overshoot_flags={
                key: count.overshoots or (previous_state.overshoot_flags[key] and must_keep_status)
                for key, count in evaluation.counts.items()
            },
            saturation_flags={
                key: count.saturates or (previous_state.saturation_flags[key] and must_keep_status)
                for key, count in evaluation.counts.items()
            },
            targets=self._compute_next_targets(),
            valid_bits={
                stream: self._sends_beat(stream) or evaluation.is_backpressured(stream)
                for stream in previous_state.valid_bits
            },
            outputs=outputs,
            action_states=action_states,
            buffers=compute_next_buffers(
                datapath, previous_state.buffers, evaluation.inputs, evaluation.moves
            ),
        )

    def _compute_next_count(self, module: Module, count: Count) -> int:
        """Return the next value of a count: 0 if it is a level count or is cleared (R5, R10)."""
        key = (module.name, count.name)
        return (
            self._evaluation.counts[key].next_value if count.accumulates and not self._is_cleared(key) else 0
        )

    def _is_cleared(self, key: PartOfModule) -> bool:
        return any(
            self._evaluation.fires(*clearing_count)
            for clearing_count in self._evaluation.wiring.clearing_counts.get(key, ())
        )

    def _compute_next_targets(self) -> dict[PartOfModule, int]:
        """Return the targets in force after the edge: the shadow bank if there is a commit (R8)."""
        if not self._evaluation.inputs.get("commit_i", 0):
            return dict(self._evaluation.state.targets)
        return split_targets(
            self._evaluation.wiring.datapath, self._evaluation.inputs.get("target_shadow_i", 0)
        )

    def _sends_beat(self, stream: PartOfModule) -> bool:
        module = self._evaluation.wiring.datapath.module(stream[0])
        return any(self.fires(module, driver.on) for driver in module.list_drivers(stream[1]))

    # Methods of `actions.kind.Edge`

    def fires(self, module: Module, count_name: str) -> bool:
        """Return whether a count fires (R1)."""
        return self._evaluation.fires(module.name, count_name)

    def restarts(self, module: Module, count_name: str) -> bool:
        """Return whether a count discards its value: it fires, is cleared, or is a level count."""
        key = (module.name, count_name)
        return (
            not module.count(count_name).accumulates or self._evaluation.fires(*key) or self._is_cleared(key)
        )

    def is_counting(self, module: Module, count_name: str) -> bool:
        """Return whether a count is enabled and its module is not stalled."""
        count_cycle = self._evaluation.counts[module.name, count_name]
        return count_cycle.is_enabled and not count_cycle.is_stalled

    def are_beats_moving(self, ref: Ref) -> bool:
        """Return whether every beat on which a sample depends moves (R7)."""
        return all(self._evaluation.moves(stream) for stream in self._evaluation.wiring.find_streams(ref))

    def read_sample(self, ref: Ref) -> int:
        """Return the value of a sample, a flag, a number or a formula."""
        return self._evaluation.read_sample(ref)

    def read_output(self, module: Module, name: str) -> int:
        """Return the current value of an output: the bits of a beat, a flag or a number."""
        return self._evaluation.state.outputs[module.name, name]

    def read_action_state(self, module: Module, name: str) -> Any:
        """Return the state that an action keeps between cycles besides its output."""
        return self._evaluation.state.action_states[module.name, name]
