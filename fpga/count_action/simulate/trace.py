"""Trace of a run as text: what every count does in every cycle, and the effects when it fires."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fpga.count_action.actions import KINDS
from fpga.count_action.graph import Graph
from fpga.count_action.model import ActionKind, CountKind, Datapath, Module
from fpga.count_action.ports import Rows
from fpga.count_action.simulate.reference import ReferenceSimulator
from fpga.count_action.simulate.reference.state import CountCycle, Cycle


def explain_run(datapath: Datapath, inputs: Rows) -> Iterator[str]:
    """Yield the lines of the trace of a run from reset. Raise ValueError for rows of another width."""
    graph = Graph(datapath)
    for number, cycle in enumerate(ReferenceSimulator(datapath).iterate_cycles(inputs)):
        yield f"cycle {number}"
        yield from (f"  {line}" for line in _trace_cycle(graph, cycle))


def _trace_cycle(graph: Graph, cycle: Cycle) -> Iterator[str]:
    """Yield the lines of one cycle: one for each count, each effect, a commit, and a clearing of the status."""
    datapath = graph.datapath
    fired_counts = {
        (count_cycle.module, count_cycle.count) for count_cycle in cycle.counts if count_cycle.fires
    }
    for count_cycle in cycle.counts:
        module = datapath.module(count_cycle.module)
        rivals = graph.find_rivals(module, module.count(count_cycle.count))
        rival = next(
            (other_count.name for other_count in rivals if (module.name, other_count.name) in fired_counts),
            None,
        )
        if rival is None or count_cycle.is_stalled:
            yield f"{count_cycle.module}.{count_cycle.count}: {_describe_count(datapath, count_cycle)}"
        else:
            yield f"{count_cycle.module}.{count_cycle.count}: does not count, as {rival} precedes it and fires (R26)"
        yield from (
            f"  in the next cycle: {effect}"
            for effect in _describe_effects(module, count_cycle, cycle, fired_counts)
        )
    if cycle.inputs.get("commit_i", 0):
        yield "COMMIT: from the next cycle on the targets of the shadow bank are in force (R8)"
    if cycle.inputs.get("clear_status_i", 0):
        yield "the status bits are cleared (R12)"


def _describe_count(datapath: Datapath, count_cycle: CountCycle) -> str:
    if count_cycle.is_stalled:
        return f"stalled, as a beat of {count_cycle.module} waits to be taken; stays at {count_cycle.start_value} (R7)"
    if not count_cycle.is_enabled:
        return f"not enabled; stays at {count_cycle.start_value} (R2)"
    is_level = datapath.module(count_cycle.module).count(count_cycle.count).kind is CountKind.LEVEL
    sum_text = (
        f"level {count_cycle.value}"
        if is_level
        else f"{count_cycle.start_value} + {count_cycle.increment} = {count_cycle.value}"
    )
    return f"{sum_text}, target {_describe_target(count_cycle)}{_describe_outcome(count_cycle)}"


def _describe_target(count_cycle: CountCycle) -> str:
    return str(count_cycle.target) if count_cycle.target else "never (0, R3)"


def _describe_outcome(count_cycle: CountCycle) -> str:
    if count_cycle.fires:
        return ": FIRES"
    outcome = ""
    if count_cycle.overshoots:
        outcome += ": above its target, sets overshoot (R4)"
    if count_cycle.saturates:
        bound_text = "the largest value" if count_cycle.next_value else "0"
        outcome += f": does not fit, stays at {bound_text} and sets saturated (R10)"
    if not outcome and count_cycle.increment == 0 and count_cycle.value == count_cycle.target:
        outcome = ": reached before; without an increment it does not fire (R2)"
    return outcome


def _describe_effects(
    module: Module, count_cycle: CountCycle, cycle: Cycle, fired_counts: Collection[tuple[str, str]]
) -> Iterator[str]:
    """Yield the effects if the count fires. The first store wins, and a load wins over all stores (R18, R25)."""
    if not count_cycle.fires:
        return
    written_destinations = {
        (action.memory, "")
        for action in module.actions
        if cycle.inputs.get(f"{module.name}_{action.memory}_load_i")
    }
    for action in module.actions:
        destination = (action.memory, action.output)
        if (module.name, action.on) not in fired_counts:
            continue
        is_store = action.kind in {ActionKind.STORE, ActionKind.STORE_WORD}
        if action.on == count_cycle.count:
            name = f"{module.name}.{action.output}"
            is_lost = is_store and destination in written_destinations
            rule = "R25" if action.memory else "R18"
            yield (
                f"a store in {name}{action.memory} is lost ({rule})"
                if is_lost
                else KINDS[action.kind].describe(action, name)
            )
        if is_store:
            written_destinations.add(destination)
