"""Trace of a run as text: every count in every cycle, and the effects of its fires."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.actions import KINDS
from fpga.count_action.model import CountKind, Datapath
from fpga.count_action.ports import Rows
from fpga.count_action.simulate.reference import Reference
from fpga.count_action.simulate.reference.state import CountCycle, Cycle


def explain_run(datapath: Datapath, inputs: Rows) -> Iterator[str]:
    """Yield the lines of the trace of a run from reset. Raise ValueError for rows of another width."""
    for number, cycle in enumerate(Reference(datapath).cycles(inputs)):
        yield f"cycle {number}"
        yield from (f"  {line}" for line in _trace_cycle(datapath, cycle))


def _trace_cycle(datapath: Datapath, cycle: Cycle) -> Iterator[str]:
    """Yield the lines of one cycle: one for every count, its effects, commit and clear."""
    for count in cycle.counts:
        yield f"{count.module}.{count.count}: {_sentence(datapath, count)}"
        yield from (f"  in the next cycle: {effect}" for effect in _effects(datapath, count))
    if cycle.inputs.get("commit_i", 0):
        yield "COMMIT: from the next cycle on the targets of the shadow bank are in force (R8)"
    if cycle.inputs.get("clear_status_i", 0):
        yield "the status bits are cleared (R12)"


def _sentence(datapath: Datapath, count: CountCycle) -> str:
    if count.stalled:
        return f"stalled, as a beat of {count.module} waits to be taken; stays at {count.base} (R7)"
    if not count.enabled:
        return f"not enabled; stays at {count.base} (R2)"
    level = datapath.module(count.module).count(count.count).kind is CountKind.LEVEL
    added = f"level {count.value}" if level else f"{count.base} + {count.increment} = {count.value}"
    return f"{added}, target {_target(count)}{_outcome(count)}"


def _target(count: CountCycle) -> str:
    return str(count.target) if count.target else "never (0, R3)"


def _outcome(count: CountCycle) -> str:
    if count.fires:
        return ": FIRES"
    outcome = ""
    if count.overshoots:
        outcome += ": above its target, sets overshoot (R4)"
    if count.saturates:
        bound = "the largest value" if count.rest else "0"
        outcome += f": does not fit, stays at {bound} and sets saturated (R10)"
    if not outcome and count.increment == 0 and count.value == count.target:
        outcome = ": reached before; without an increment it does not fire (R2)"
    return outcome


def _effects(datapath: Datapath, count: CountCycle) -> Iterator[str]:
    if count.fires:
        for action in datapath.module(count.module).actions:
            if action.on == count.count:
                yield KINDS[action.kind].describe(action, f"{count.module}.{action.output}")
