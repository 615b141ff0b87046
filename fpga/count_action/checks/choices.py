"""Checks of counts that choose among their streams (R19): what a text makes of them is what there is."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action import arbitration
from fpga.count_action.diagnostics import Diagnostic, note, quoted
from fpga.count_action.graph import Graph
from fpga.count_action.model import Action, ActionKind, Count, CountKind, Module, Operand

Diagnostics = Iterator[Diagnostic]


def choice_problems(graph: Graph, module: Module) -> Diagnostics:
    """Return what is wrong with the choices of a module."""
    for count in module.counts:
        found = [*_count(graph, count)]
        yield from found
        if count.order and not found:
            yield from _registers(module, count)
    for action in module.actions:
        if action.merges:
            yield from _merge(graph, module, action)


def _count(graph: Graph, count: Count) -> Diagnostics:
    if not count.order:
        if count.whole or count.picks:
            yield note(count.at, f"count {quoted(count.name)} chooses without an order", "Give it one.")
        return
    name = quoted(count.name)
    if count.order not in arbitration.ORDERS:
        hint = f"There are {' and '.join(arbitration.ORDERS)}."
        yield note(count.at, f"count {name} chooses by {quoted(count.order)}", hint)
    elif count.kind is not CountKind.LEVEL or count.constant or count.taken or count.bound:
        message = f"count {name} chooses, and is not a level count of streams alone (R19)"
        yield note(count.at, message, "Add valid bits only, and count over cycles in another module.")
    elif not all(map(graph.is_stream, count.terms)) or len(set(count.terms)) != len(count.terms):
        yield note(count.at, f"count {name} chooses among streams, each once", "Name streams only.")
    elif not 2 <= len(count.terms) <= arbitration.MAX_STREAMS:
        message = f"count {name} chooses among {len(count.terms)} streams"
        yield note(count.at, message, f"2 to {arbitration.MAX_STREAMS} are possible.")


def _registers(module: Module, count: Count) -> Diagnostics:
    wanted = arbitration.picks(count, module.name)
    if [module.value(each) for each in count.picks] != wanted:
        yield note(
            count.at, f"the choice of {quoted(count.name)} is not {count.order}", "Use arbitration.picks."
        )
    for name, operand in arbitration.stored(count, module.name).items():
        made = next((each for each in module.actions if each.output == f"{count.name}_{name}"), None)
        if made is None or not _stores(module, made, count, operand):
            message = f"nothing stores `{count.name}_{name}` for the choice of {quoted(count.name)}"
            yield note(count.at, message, "Use arbitration.stored.")


def _stores(module: Module, action: Action, count: Count, operand: Operand) -> bool:
    held = (action.kind, action.on, action.part_of) == (ActionKind.STORE, count.name, count.name)
    return held and [module.value(ref) for ref in action.refs] == [operand]


def _merge(graph: Graph, module: Module, action: Action) -> Diagnostics:
    count = module.count(action.on)
    lanes = {graph.source(term).lanes for term in count.terms}
    right = bool(count.order) and len(lanes) == 1
    if right:
        wanted = arbitration.chosen_samples(count, module.name, lanes.pop())
        right = [module.value(ref) for ref in action.refs] == wanted
    if not right:
        message = f"{quoted(action.output)} merges, and does not send what {quoted(count.name)} chose (R19)"
        yield note(action.at, message, "Use arbitration.chosen_samples.")
