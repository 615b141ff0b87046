"""A run as a trace in words: what every count does in every cycle, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.model import Action, ActionKind, CountKind, Datapath
from fpga.count_action.ports import Rows
from fpga.count_action.simulate.reference import Reference
from fpga.count_action.simulate.reference.state import CountCycle, Cycle


def explain_run(datapath: Datapath, inputs: Rows) -> Iterator[str]:
    """Return lines of text for a run from reset. Raises ValueError for rows of another width."""
    for number, cycle in enumerate(Reference(datapath).cycles(inputs)):
        yield f"cycle {number}"
        yield from (f"  {line}" for line in _trace_cycle(datapath, cycle))


def _trace_cycle(datapath: Datapath, cycle: Cycle) -> Iterator[str]:
    """Return what happens in one cycle; one line for every count."""
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
                yield _effect(count.module, action)


def _effect(module: str, action: Action) -> str:
    name = f"{module}.{action.output}"
    if action.clears is not None:
        return f"{'.'.join(action.clears)} begins again (R5)"
    if action.kind is ActionKind.STORE and action.part_of == action.on:
        return f"{name} follows the beat that was chosen (R19)"
    emitted = {"sum": "the sum", "max": "the largest sample", "min": "the smallest sample"}[action.reduction]
    return {
        ActionKind.STREAM: f"a beat of {len(action.refs)} samples on {name}",
        ActionKind.EMIT: f"{emitted} on {name} ({'R11' if action.reduction == 'sum' else 'R14'})",
        ActionKind.PULSE: f"{name} is 1 for one cycle",
        ActionKind.SET: f"{name} becomes 1",
        ActionKind.CLEAR_FLAG: f"{name} becomes 0{'' if action.wins else ', unless it is set as well'} (R9)",
        ActionKind.STORE: f"{name} keeps a sample (R18)",
        ActionKind.ADVANCE: f"{name} goes up by one, and from {action.modulo - 1} to 0",
    }[action.kind]
