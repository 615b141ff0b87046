"""Flags that are set and cleared in one cycle: who wins, and whether the text says it (R9)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from fpga.count_action.diagnostics import Diagnostic, note, quoted
from fpga.count_action.graph import Graph
from fpga.count_action.model import Action, ActionKind, Count, Module

Diagnostics = Iterator[Diagnostic]


def contradicting_winners(graph: Graph) -> Diagnostics:
    """Return flags of which the text says both that their set wins and that their clear does."""
    for module in graph.datapath.modules:
        for flag, (sets, clears) in _flags(module).items():
            if any(each.wins for each in sets) and any(each.wins for each in clears):
                second = next(each for each in clears if each.wins)
                message = f"both the set and the clear of flag {quoted(flag)} win"
                yield note(second.at, message, "Leave one `wins` away (R9).")


def silent_winners(graph: Graph) -> Diagnostics:
    """Return flags that can be set and cleared in one cycle, with what does it, where the text names no winner."""
    for module in graph.datapath.modules:
        for flag, (sets, clears) in _flags(module).items():
            if any(each.wins for each in (*sets, *clears)):
                continue
            for one, other in product(sets, clears):
                if _can_meet(module.count(one.on), module.count(other.on)):
                    message = (
                        f"flag {quoted(flag)} is set and cleared when {quoted(one.on)} and {quoted(other.on)} fire"
                        " in one cycle, and is 1 then: the clear is lost (R9)"
                    )
                    hint = f"Write `set {flag} wins` if that is meant, `clear {flag} wins` if not."
                    yield note(other.at, message, hint)
                    break


def _flags(module: Module) -> dict[str, tuple[list[Action], list[Action]]]:
    """Return what sets and what clears each flag of a module that has both."""
    found: dict[str, tuple[list[Action], list[Action]]] = {}
    for place, kind in enumerate((ActionKind.SET, ActionKind.CLEAR_FLAG)):
        for action in module.drives(kind):
            found.setdefault(action.output, ([], []))[place].append(action)
    return {flag: both for flag, both in found.items() if all(both)}


def _can_meet(one: Count, other: Count) -> bool:
    """Return whether no condition keeps two counts from firing in one cycle."""
    asked = {(each.ref, each.negated) for each in one.gate}
    return not any((each.ref, not each.negated) in asked for each in other.gate)
