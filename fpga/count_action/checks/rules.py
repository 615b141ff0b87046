"""Checks between the parts of a datapath: the language rules R1, R4, R7, R9, R10 and R19, and counts that never start.

These checks presume that each part is valid by itself, which `checks.check` has examined.
"""

from __future__ import annotations

from fpga.count_action import arbitration
from fpga.count_action.actions import KINDS
from fpga.count_action.diagnostics import Diagnostics, make_diagnostic, quote
from fpga.count_action.graph import Graph, can_stall, find_cycle
from fpga.count_action.model import (
    MAX_WIDTH,
    Action,
    ActionKind,
    Count,
    CountKind,
    Module,
    Operand,
    Ref,
    SignalKind,
    Target,
    is_formula_ref,
)


def find_broken_rules(graph: Graph) -> Diagnostics:
    """Yield an error for each broken rule of a datapath."""
    yield from _find_conflicting_drivers(graph)
    for kind in KINDS.values():
        yield from kind.find_broken_rules(graph)
    yield from _find_self_triggers(graph)
    yield from _find_shared_level_streams(graph)
    yield from _find_stream_cycles(graph)
    yield from _find_lost_pulses(graph)
    for module in graph.datapath.modules:
        yield from find_arbiter_errors(graph, module)
    for module, count in graph.datapath.list_counts():
        yield from _find_unreachable_targets(graph, module, count)
    yield from _find_dead_counts(graph)


# ----------------------------------------------------------------------------------- drivers (R9)


def _find_conflicting_drivers(graph: Graph) -> Diagnostics:
    for (name, output), drivers in graph.drivers.items():
        output_groups = {KINDS[action.kind].shared_output_group for _, action in drivers}
        if len(drivers) == 1 or (len(output_groups) == 1 and output_groups != {""}):
            continue
        first_action, second_action = drivers[0][1], drivers[1][1]
        first_location_text = f", the other one at {first_action.location}" if first_action.location else ""
        message = f"output {quote(output)} of module {quote(name)} has two drivers{first_location_text} (R9)"
        word_text = "as " if second_action.kind.drives is SignalKind.STREAM else ""
        yield make_diagnostic(
            second_action.location, message, f"Give this one another name: `{word_text}{output}_2`."
        )


def _find_self_triggers(graph: Graph) -> Diagnostics:
    for link in graph.links:
        is_same_count = link.driver is link.reader and link.action.on == link.count.name
        if is_same_count and link.relation == "counts" and link.action.kind.drives is not SignalKind.STREAM:
            name = link.action.output
            message = (
                f"{quote(link.count.name)} triggers itself: it counts {quote(name)}, which its action drives"
            )
            hint = "Count what comes from outside, or use another count for the action."
            if link.action.kind.drives is SignalKind.FLAG:
                hint = f"Write `sum 1 while {name}`, or use another count for the action."
            yield make_diagnostic(link.count.location, message, hint)


# ----------------------------------------------------------------------------------- streams (R7)


def _find_shared_level_streams(graph: Graph) -> Diagnostics:
    for (_, name, index), consumers in graph.consumers.items():
        level_consumer = next(
            ((owner, count) for owner, count in consumers if count.kind is CountKind.LEVEL), None
        )
        if level_consumer is None:
            continue
        foreign_consumer = next(
            (f"{owner.name}.{count.name}" for owner, count in consumers if owner != level_consumer[0]), None
        )
        if foreign_consumer is not None:
            level_name = f"{level_consumer[0].name}.{level_consumer[1].name}"
            message = (
                f"stream {quote(name)} (bit {index}) is taken by the level count {quote(level_name)}"
                f" and by {quote(foreign_consumer)} of another module (R7)"
            )
            hint = "Let the other one count what the level count streams, or move both counts into one module (R26)."
            yield make_diagnostic(level_consumer[1].location, message, hint)


def _find_stream_cycles(graph: Graph) -> Diagnostics:
    edges: dict[str, list[str]] = {module.name: [] for module in graph.datapath.modules}
    for (driver, _, _), consumers in graph.consumers.items():
        if driver is not None:
            edges[driver].extend(module.name for module, _ in consumers)
    names = find_cycle(edges)
    if names:
        module = graph.datapath.module(names[0])
        message = f"streams form a cycle: {' -> '.join(names)} (R7)"
        yield make_diagnostic(
            module.location, message, "Replace one with a flag or a pulse, which apply no backpressure."
        )


def _find_lost_pulses(graph: Graph) -> Diagnostics:
    for module, count in graph.datapath.list_counts():
        if not can_stall(module):
            continue
        for term in dict.fromkeys(count.counted):
            if graph.is_pulse(term):
                message = (
                    f"count {quote(count.name)} counts the pulse {quote(describe_ref(term))}, and module"
                    f" {quote(module.name)} can stall, as it sends a stream:"
                    " a pulse in a stalled cycle would be lost (R7)"
                )
                yield make_diagnostic(
                    term.location or count.location,
                    message,
                    "Count it in a module of its own that sends no stream.",
                )


def describe_ref(ref: Ref) -> str:
    """Return a reference in the syntax of the language, without its index."""
    return f"{ref.module}.{ref.name}" if ref.module else ref.name


# ------------------------------------------------------------------ what can be reached (R1, R4, R10)


def _find_unreachable_targets(graph: Graph, module: Module, count: Count) -> Diagnostics:
    max_change = max(compute_max_increment(graph, count), compute_max_decrement(graph, count))
    capacity = 2**count.width - 1
    name = quote(count.name)
    if max_change > capacity:
        needed_bits = max_change.bit_length()
        message = f"count {name} has {count.width} bits and can go up by {max_change} in one cycle (R10)"
        yield make_diagnostic(
            count.location,
            message,
            f"Write `width {needed_bits}`." if needed_bits <= MAX_WIDTH else "Add less at a time.",
        )
        return
    target = module.target(count.target)
    if target.reset and count.aim is None:
        yield from _find_unreachable_target(count, target, max_change)


def _find_unreachable_target(count: Count, target: Target, max_increment: int) -> Diagnostics:
    name = f"target {quote(target.name)} of count {quote(count.name)}"
    location = target.location or count.location
    if count.kind is CountKind.LEVEL:
        if target.reset > max_increment:
            message = (
                f"{name} is {target.reset}, and the sum is at most {max_increment}: it is never reached (R1)"
            )
            yield make_diagnostic(location, message, "Lower the target, or write `over cycles`.")
        elif target.reset < count.constant and not target.at_least:
            message = f"{name} is {target.reset}, and the sum is at least {count.constant}: it is never reached (R1)"
            yield make_diagnostic(location, message, "Raise the target.")
    elif target.reset > 2**count.width - 1 + max_increment:
        message = f"{name} is {target.reset}, and the count stays at {2**count.width - 1}: it is never reached (R10)"
        yield make_diagnostic(
            location, message, f"Write `width {target.reset.bit_length()}` after the count."
        )
    elif not count.counted and target.reset % count.constant and not target.at_least:
        message = f"{name} is {target.reset}, and the count goes up by {count.constant}: it jumps over the target (R4)"
        yield make_diagnostic(location, message, f"Choose a multiple of {count.constant}.")


def compute_max_increment(graph: Graph, count: Count) -> int:
    """Return the largest increment of a count in one cycle."""
    if count.order:
        return 1
    return max(count.constant, 0) + sum(_find_max_term(graph, term) for term in count.terms)


def compute_max_decrement(graph: Graph, count: Count) -> int:
    """Return the largest decrement of a count in one cycle."""
    return max(-count.constant, 0) + sum(_find_max_term(graph, term) for term in count.taken)


def _find_max_term(graph: Graph, term: Ref) -> int:
    shape = graph.find_source(term)
    if shape.kind is not SignalKind.NUMBER:
        return 1
    driver = None if term.module is None else graph.drivers[term.module, term.name][0][1]
    return 2**shape.width - 1 if driver is None else KINDS[driver.kind].compute_largest(driver)


def _find_dead_counts(graph: Graph) -> Diagnostics:
    """Yield an error for each count that can never start, because it waits for itself or for another such count."""
    triggerable_counts: set[tuple[str, str]] = set()
    while True:  # least fixed point: repeatedly add the counts whose inputs can occur
        started_counts = {
            (module.name, count.name)
            for module, count in graph.datapath.list_counts()
            if (module.name, count.name) not in triggerable_counts
            and not _find_missing_trigger(graph, count, triggerable_counts)
        }
        if not started_counts:
            break
        triggerable_counts |= started_counts
    for module, count in graph.datapath.list_counts():
        if (module.name, count.name) not in triggerable_counts:
            trigger = _find_missing_trigger(graph, count, triggerable_counts)
            name = quote(f"{module.name}.{count.name}")
            message = f"count {name} never counts: nothing ever triggers {quote(trigger)}"
            yield make_diagnostic(count.location, message, "Start the chain with an external input.")


def _find_missing_trigger(graph: Graph, count: Count, triggerable_counts: set[tuple[str, str]]) -> str:
    """Return a signal that keeps a count from counting while only `triggerable_counts` fire, or "" if it can count."""
    for condition in count.gate:
        if not condition.negated and not _can_be_nonzero(graph, condition.ref, triggerable_counts):
            return describe_ref(condition.ref)
    if count.constant or any(_can_be_nonzero(graph, term, triggerable_counts) for term in count.counted):
        return ""
    return describe_ref(count.counted[0])


def _can_be_nonzero(graph: Graph, ref: Ref, triggerable_counts: set[tuple[str, str]]) -> bool:
    """Return whether a signal can ever be non-zero. Formulas are not evaluated: assume that each can be non-zero."""
    return (
        ref.module is None
        or is_formula_ref(ref)
        or any(
            (module.name, action.on) in triggerable_counts
            for module, action in graph.drivers[ref.module, ref.name]
            if KINDS[action.kind].can_set_output
        )
    )


def find_arbiter_errors(graph: Graph, module: Module) -> Diagnostics:
    """Yield the errors of the arbiters of a module (R19)."""
    for count in module.counts:
        errors = [*_find_order_errors(graph, count)]
        yield from errors
        if count.order and not errors:
            yield from _find_register_errors(module, count)
    for action in module.actions:
        if action.merges:
            yield from _find_merge_errors(graph, module, action)


def _find_order_errors(graph: Graph, count: Count) -> Diagnostics:
    if not count.order:
        if count.whole or count.picks:
            message = f"count {quote(count.name)} has picks or whole packets, but no order"
            yield make_diagnostic(count.location, message, "Set its order.")
        return
    name = quote(count.name)
    if count.order not in arbitration.ARBITRATION_ORDERS:
        hint = f"Use {' or '.join(arbitration.ARBITRATION_ORDERS)}."
        yield make_diagnostic(
            count.location, f"count {name} has the unknown order {quote(count.order)}", hint
        )
    elif count.kind is not CountKind.LEVEL or count.constant or count.taken or count.bound:
        message = f"count {name} chooses among streams, and is not a level count of streams alone (R19)"
        yield make_diagnostic(
            count.location, message, "Add valid bits only, and count over cycles in another module."
        )
    elif not all(map(graph.is_stream, count.terms)) or len(set(count.terms)) != len(count.terms):
        message = f"count {name} chooses among streams, and has another term, or a stream twice"
        yield make_diagnostic(count.location, message, "Name streams only, each once.")
    elif not 2 <= len(count.terms) <= arbitration.MAX_STREAMS:
        message = f"count {name} chooses among {len(count.terms)} streams"
        yield make_diagnostic(count.location, message, f"2 to {arbitration.MAX_STREAMS} are possible.")


def _find_register_errors(module: Module, count: Count) -> Diagnostics:
    picks = arbitration.make_picks(count, module.name)
    if [module.value(pick) for pick in count.picks] != picks:
        yield make_diagnostic(
            count.location,
            f"the picks of {quote(count.name)} are not {count.order}",
            "Use arbitration.make_picks.",
        )
    for name, operand in arbitration.make_next_values(count, module.name).items():
        action = next(
            (candidate for candidate in module.actions if candidate.output == f"{count.name}_{name}"), None
        )
        if action is None or not _is_stored(module, action, count, operand):
            message = f"no action stores `{count.name}_{name}`, which {quote(count.name)} needs to choose"
            yield make_diagnostic(count.location, message, "Use arbitration.make_next_values.")


def _is_stored(module: Module, action: Action, count: Count, operand: Operand) -> bool:
    is_for_count = (action.kind, action.on, action.part_of) == (ActionKind.STORE, count.name, count.name)
    return is_for_count and [module.value(ref) for ref in action.refs] == [operand]


def _find_merge_errors(graph: Graph, module: Module, action: Action) -> Diagnostics:
    count = module.count(action.on)
    lane_counts = {graph.find_source(term).lanes for term in count.terms}
    is_valid = bool(count.order) and len(lane_counts) == 1
    if is_valid:
        samples = arbitration.select_samples(count, module.name, lane_counts.pop())
        is_valid = [module.value(ref) for ref in action.refs] == samples
    if not is_valid:
        message = f"{quote(action.output)} merges, and does not send the beat that {quote(count.name)} selects (R19)"
        yield make_diagnostic(action.location, message, "Use arbitration.select_samples.")
