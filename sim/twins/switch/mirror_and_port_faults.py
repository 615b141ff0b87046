"""Faults of a simulated switch besides those of its lines: of changes, mirrors, fibres and ports."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.twins.switch.matrix import Pair
from sim.twins.wire.line_faults import LineFaults


@dataclass(slots=True)
class SwitchFaults(LineFaults):
    """Faults that a test or a demonstration may set on a switch.

    `dropped_commands` counts the next changes that are ignored without an error. `stuck` pairs are never made,
    `lossy_db` pairs lose that much more light, no light comes in at `dark_inputs`, and `swapped` inputs have one
    another's fibre.
    """

    dropped_commands: int = 0
    stuck: set[Pair] = field(default_factory=set)
    lossy_db: dict[Pair, float] = field(default_factory=dict)
    dark_inputs: set[int] = field(default_factory=set)
    swapped: dict[int, int] = field(default_factory=dict)

    def take_dropped_command(self) -> bool:
        """Return True if this change is to be ignored, and count it."""
        if not self.dropped_commands:
            return False
        self.dropped_commands -= 1
        self.fired["drop_command"] += 1
        return True
