"""Possible mistakes in a datapath that breaks no rule."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.actions import KINDS
from fpga.count_action.checks.rules import compute_max_increment, describe_ref
from fpga.count_action.diagnostics import Diagnostics, make_diagnostic, quote
from fpga.count_action.expressions import LOGICAL_OPERATORS, list_leaves
from fpga.count_action.graph import Graph, can_stall, find_cycle, get_stream_key, list_read_signals
from fpga.count_action.model import (
    Action,
    ActionKind,
    Count,
    CountKind,
    Module,
    Operand,
    Operation,
    Ref,
    is_formula_ref,
)


def find_possible_mistakes(graph: Graph) -> Diagnostics:
    """Yield a warning for each possible mistake."""
    for module, count in graph.datapath.list_counts():
        yield from _find_overshoots(graph, module, count)
        yield from _find_missed_pulses(graph, module, count)
        yield from _find_stuck_level_counts(graph, module, count)
        yield from _find_greedy_rivals(graph, module, count)
        for ref in find_contradictions(count):
            message = f"count {quote(count.name)} waits for {quote(describe_ref(ref))} to be 1 and 0 at once"
            yield make_diagnostic(
                ref.location or count.location,
                message,
                "Remove one of the conditions: with both it never counts.",
            )
    yield from _find_uncounted_samples(graph)
    yield from _find_unused_names(graph)
    yield from _find_endless_triggers(graph)
    yield from _find_idle_clears(graph)
    yield from _find_lost_stores(graph)
    for kind in KINDS.values():
        yield from kind.find_mistakes(graph)


def _find_overshoots(graph: Graph, module: Module, count: Count) -> Diagnostics:
    max_increment = compute_max_increment(graph, count)
    target = module.target(count.target)
    if (
        count.kind is CountKind.LEVEL
        or max_increment <= 1
        or not count.terms
        or not target.reset
        or target.at_least
    ):
        return
    message = (
        f"count {quote(count.name)} can go up by {max_increment} in one cycle and jump over its target"
        f" {quote(target.name)};"
        " it then continues without firing (R4)"
    )
    yield make_diagnostic(
        count.location, message, "Make sure that it cannot, read its bit `overshoot`, or write `at least`."
    )


def _find_stuck_level_counts(graph: Graph, module: Module, count: Count) -> Diagnostics:
    """Yield warnings of level counts that stop if more beats wait than their target, or fire with missing beats."""
    streams = [term for term in dict.fromkeys(count.terms) if graph.is_stream(term)]
    target = module.target(count.target)
    if count.kind is not CountKind.LEVEL or len(streams) < 2 or not target.reset or count.aim is not None:
        return
    if count.order:
        return
    name, reset = quote(count.name), target.reset
    rival_streams = {
        get_stream_key(term)
        for rival in module.counts
        if rival is not count and rival.kind is CountKind.LEVEL
        for term in rival.counted
    }
    # Rivals can take the beats of other streams (R26).
    exclusive_streams = [ref for ref in streams if get_stream_key(ref) not in rival_streams]
    if len(exclusive_streams) + count.constant > reset and not target.at_least:
        waiting_streams = ", ".join(
            _describe_stream(graph, ref) for ref in exclusive_streams[: reset - count.constant + 1]
        )
        message = (
            f"level count {name} never fires again once beats of {waiting_streams} wait together: "
            f"the sum is above its target {reset}, and waiting beats stay (R7)"
        )
        yield make_diagnostic(
            count.location, message, "Count all of them (raise the target), or write `at least`."
        )
    sample_streams = {
        get_stream_key(ref) for action in module.actions if action.on == count.name for ref in action.refs
    }
    if (
        reset - count.constant < len(streams)
        and len(sample_streams & {get_stream_key(ref) for ref in streams}) > 1
    ):
        message = (
            f"level count {name} fires with {reset} of {len(streams)} beats, but the samples of all streams are sent:"
            " those of the streams without a beat are not valid"
        )
        yield make_diagnostic(count.location, message, f"Set the target to {len(streams) + count.constant}.")


def _describe_stream(graph: Graph, ref: Ref) -> str:
    """Return a stream in the syntax of the language, with its bit if several streams share the name."""
    return describe_ref(ref) + (f" (bit {ref.index})" if graph.find_source(ref).size > 1 else "")


def _find_greedy_rivals(graph: Graph, module: Module, count: Count) -> Diagnostics:
    """Yield warnings of level counts that never fire, because another takes every beat of a stream first (R26).

    The terms that are left do not reach the target of such a count.
    """
    for rival in graph.find_rivals(module, count):
        rival_streams = {get_stream_key(term) for term in rival.terms}
        is_unconditional = not rival.gate and not rival.order and rival.aim is None and not rival.constant
        takes_all = (
            is_unconditional
            and len(rival_streams) == len(rival.terms) == 1
            and module.target(rival.target).reset == 1
        )
        largest_increment = compute_max_increment(graph, count) - len(rival_streams)
        min_target = 1 if count.aim is not None else module.target(count.target).reset
        if takes_all and not count.order and largest_increment < min_target:
            message = (
                f"level count {quote(count.name)} never fires: {quote(rival.name)} precedes it and takes every beat of"
                f" {quote(describe_ref(rival.terms[0]))} (R26)"
            )
            yield make_diagnostic(
                count.location, message, "Exchange them, or give the first one a condition (`while`)."
            )


def find_contradictions(count: Count) -> list[Ref]:
    """Return the signals that a count requires to be both 1 and 0, so that it never counts."""
    negated_refs = {
        (condition.ref.module, condition.ref.name, condition.ref.index)
        for condition in count.gate
        if condition.negated
    }
    positive_refs = (condition.ref for condition in count.gate if not condition.negated)
    return [ref for ref in positive_refs if (ref.module, ref.name, ref.index) in negated_refs]


def _find_missed_pulses(graph: Graph, module: Module, count: Count) -> Diagnostics:
    for condition in count.gate:
        pulses = [ref for ref in _find_condition_signals(graph, condition.ref) if graph.is_pulse(ref)]
        if can_stall(module) and pulses:
            message = (
                f"count {quote(count.name)} waits for the pulse {quote(describe_ref(pulses[0]))}, and module"
                f" {quote(module.name)} can stall: a pulse in a stalled cycle is not seen (R7)"
            )
            yield make_diagnostic(
                condition.ref.location or count.location, message, "Set a flag instead of the pulse."
            )


def _find_condition_signals(graph: Graph, ref: Ref) -> Iterator[Ref]:
    """Yield the signals whose bits a condition combines, except operands of comparisons and sums."""
    pending_operands: list[Operand] = [graph.find_formula(ref) if is_formula_ref(ref) else ref]
    while pending_operands:
        operand = pending_operands.pop()
        if isinstance(operand, Ref):
            yield operand
        elif isinstance(operand, Operation) and operand.operator in LOGICAL_OPERATORS:
            pending_operands += operand.operands


def _find_uncounted_samples(graph: Graph) -> Diagnostics:
    for module in graph.datapath.modules:
        for action in (candidate for candidate in module.actions if candidate.on):
            counted_streams = {get_stream_key(term) for term in module.count(action.on).counted}
            for ref in (stream for sample in action.refs for stream in graph.find_streams(sample)):
                if get_stream_key(ref) not in counted_streams:
                    name = quote(action.output or action.memory)
                    message = (
                        f"{name} sends samples of {quote(describe_ref(ref))}, whose beats"
                        f" {quote(action.on)} does not count"
                    )
                    yield make_diagnostic(
                        ref.location or action.location,
                        message,
                        f"Add {describe_ref(ref)}.valid to the count if the count must wait for these samples.",
                    )
                    break


def _find_unused_names(graph: Graph) -> Diagnostics:
    input_names = {
        ref.name
        for module in graph.datapath.modules
        for ref in list_read_signals(module)
        if ref.module is None
    }
    for signal in graph.datapath.inputs:
        if signal.name not in input_names:
            yield make_diagnostic(
                signal.location,
                f"input {quote(signal.name)} is not used",
                "Remove it if it is not needed.",
            )
    compared_targets = {
        (ref.module, ref.name)
        for module in graph.datapath.modules
        for value in module.values
        for operator, ref in list_leaves(value)
        if operator == "target"
    }
    for module in graph.datapath.modules:
        target_names = {count.target for count in module.counts}
        for target in module.targets:
            if target.name not in target_names and (module.name, target.name) not in compared_targets:
                yield make_diagnostic(
                    target.location, f"no count has the target {quote(target.name)}", "Remove it."
                )


def _find_endless_triggers(graph: Graph) -> Diagnostics:
    edges: dict[str, list[str]] = {}
    for link in graph.links:
        if link.relation == "counts" and link.action.kind.is_transient:
            edges.setdefault(f"{link.driver.name}.{link.action.on}", []).append(
                f"{link.reader.name}.{link.count.name}"
            )
    names = find_cycle(edges)
    if names:
        module = graph.datapath.module(names[0].partition(".")[0])
        message = f"these counts trigger each other in a cycle: {' -> '.join(names)}; once started, it may never end"
        yield make_diagnostic(
            module.location, message, "Gate one of them (`while ...`) if that is not intended."
        )


def _find_idle_clears(graph: Graph) -> Diagnostics:
    for module in graph.datapath.modules:
        for action in module.list_actions(ActionKind.CLEAR_COUNT):
            owner, name = action.clears or ("", "")
            if graph.datapath.module(owner).count(name).kind is CountKind.LEVEL:
                message = f"{quote(f'{owner}.{name}')} is a level count, which keeps nothing: clearing it has no effect"
                yield make_diagnostic(
                    action.location, message, "Remove it, or write `over cycles` in the count."
                )


def _find_lost_stores(graph: Graph) -> Diagnostics:
    """Yield warnings of stores by priority that always lose to a store on the same count (R18, R25)."""
    for module in graph.datapath.modules:
        first_stores: dict[tuple[str, str, str], Action] = {}
        for action in module.actions:
            if not action.ranked:
                continue
            first_store = first_stores.setdefault((action.output, action.memory, action.on), action)
            if first_store is not action:
                name = quote(action.output or action.memory)
                message = f"this store in {name} is always lost: one on the same count {quote(action.on)} precedes it"
                hint = "Remove one, or use a count of its own."
                yield make_diagnostic(action.location, message, hint)
