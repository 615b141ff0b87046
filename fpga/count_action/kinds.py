"""Kinds of signals, counts and actions."""

from __future__ import annotations

import enum


class SignalKind(enum.Enum):
    """Kind of signal that a name carries."""

    STREAM = "stream"
    """Beats with valid, data and ready: a beat moves in a cycle with valid and ready."""
    FLAG = "flag"
    """One bit, looked at in every cycle."""
    NUMBER = "number"
    """An unsigned number, looked at in every cycle."""


class CountKind(enum.Enum):
    """State that a count keeps from one cycle to the next (R1)."""

    LEVEL = "level"
    """Nothing: the sum of this cycle alone."""
    ACCUMULATE = "accumulate"
    """All increments since it fired or was cleared."""


class ActionKind(enum.Enum):
    """Effect of a count that reaches its target. Every effect is seen in the next cycle (R6)."""

    STREAM = "stream"
    """A beat of the samples `refs`, as they stood in the cycle of the fire."""
    EMIT = "emit"
    """A beat of one sample: the sum of `refs` over all beats counted since the last fire, this one included.

    With `reduction` it is the largest or smallest of them instead, and may have its index as second sample (R14).
    """
    PULSE = "pulse"
    """One bit, for one cycle."""
    SET = "set"
    """A flag becomes 1."""
    CLEAR_FLAG = "clear flag"
    """A flag becomes 0."""
    CLEAR_COUNT = "clear count"
    """A count (`clears`) begins again (R5)."""
    ADVANCE = "advance"
    """A number goes up by one, and from `modulo` - 1 to 0."""
    STORE = "store"
    """A number becomes the one sample of `refs`, and keeps it (R18)."""
