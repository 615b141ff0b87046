"""Properties that are proven, and the assertions of the checks that make up each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Property:
    """A property of a module: its name, its statement, and its assertions (`checks.label`)."""

    name: str
    statement: str
    assertions: tuple[str, ...]


CLAIM_PROPERTY = "stated"
"""Name of the property for the `always` and `never` properties in the source text of a module."""

DATA_PROPERTY = "data"
"""Name of the property for the samples that beats carry."""

PROPERTIES = (
    Property(
        "fires",
        "a count fires exactly when it is enabled, not stalled, has an increment and reaches its target (R1 to R3)",
        ("count_action.fires", "count_action_level.fires", "count_action_up_down.fires"),
    ),
    Property(
        "counts",
        "a count adds its increment, restarts after a fire, and stays within its bounds (R2, R10, R17)",
        (
            "count_action.counts_on", "count_action.restarts", "count_action.resets",
            "count_action_level.keeps_nothing", "count_action.carries", "count_action_ones.counts",
            "count_action_up_down.counts_on", "count_action_up_down.goes_on_after", "count_action_up_down.resets",
        ),
    ),
    Property(
        "clear",
        "a clear sets its count to 0 in the next cycle (R5)",
        ("count_action.clears", "count_action_up_down.clears"),
    ),
    Property(
        "sticky",
        "the bits overshoot and saturated are set by their events and stay set until they are cleared (R4, R10, R12)",
        (
            "count_action.overshoots", "count_action.saturates", "count_action_up_down.overshoots",
            "count_action_up_down.saturates",
        ),
    ),
    Property(
        "commit",
        "all targets change together in the cycle after a commit, and at no other time (R8, R12)",
        ("count_action_targets.begins", "count_action_targets.commits", "count_action_targets.holds"),
    ),
    Property(
        "beats",
        "no beat is lost or duplicated: accepted beats are counted; a fire sends a beat, which waits until taken (R7)",
        (
            "count_action.conserves", "count_action_beat.stays", "count_action_beat.appears",
            "count_action_beat.conserves", "count_action_beat.overwrites", "count_action_beat.stalls",
            "count_action_beat.empties", "count_action_ready.ready", "count_action_choice.below",
            "count_action_choice.one", "count_action_choice.resets", "count_action_choice.holds",
            "count_action_choice.turns", "count_action_choice.opens", "count_action_buffer.accepts",
            "count_action_buffer.empties", "count_action_buffer.holds", "count_action_buffer.fills",
            "count_action_buffer.keeps", "count_action_buffer.follows", "count_action_buffer.passes",
            "count_action_buffer.shows", "count_action_buffer.orders", "count_action_buffer.stores",
        ),
    ),
    Property(
        DATA_PROPERTY,
        "a beat holds the samples at its fire, or the sum or an extreme of the counted samples (R6, R11, R14)",
        (
            "count_action_beat.data", "count_action_beat.keeps", "count_action_sum.terms",
            "count_action_sum.adds", "count_action_sum.sums", "count_action_extreme.keeps",
            "count_action_extreme.numbers", "count_action_extreme.chooses",
        ),
    ),
    Property(
        "flags",
        (
            "flags, pulses and numbers change in the cycle after a fire, memory words also after a load,"
            " and at no other time (R6, R9, R25)"
        ),
        (
            "count_action_flag.resets", "count_action_flag.sets", "count_action_flag.clears",
            "count_action_flag.holds", "count_action_advance.resets", "count_action_advance.stays_below",
            "count_action_advance.wraps", "count_action_advance.advances", "count_action_advance.holds",
            "count_action_store.resets", "count_action_store.stores", "count_action_store.holds",
            "count_action_memory.resets", "count_action_memory.reads", "count_action_memory.outside",
            "count_action_memory.holds", "count_action_memory.shows", "count_action_memory.beyond",
            "count_action_memory.waits", "count_action_memory.begins", "count_action_memory.loads",
            "count_action_memory.stores", "count_action_memory.keeps",
        ),
    ),
    Property(
        CLAIM_PROPERTY,
        "the `always` and `never` properties of the text hold (R21)",
        ("count_action_claim.holds",),
    ),
)  # fmt: skip
"""All properties, in the order of output."""

_PROPERTY_BY_ASSERTION = {
    assertion: property_ for property_ in PROPERTIES for assertion in property_.assertions
}


def get_property(assertion: str) -> Property:
    """Return the property of an assertion (`checks.label`). Raise KeyError for an unknown assertion."""
    return _PROPERTY_BY_ASSERTION[assertion]


def list_properties(checks: str) -> tuple[Property, ...]:
    """Return the properties with assertions in a module of checks, such as `count_action_beat`."""
    return tuple(
        property_
        for property_ in PROPERTIES
        if any(assertion.startswith(f"{checks}.") for assertion in property_.assertions)
    )
