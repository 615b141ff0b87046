"""A model's step as a timed wait: a trainer's processor also waits while a GPU computes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step that waits for `duration_s` without processor time. SIMULATED: no model computes."""

    duration_s: float

    def __call__(self, batch: Any) -> None:
        """Wait, and ignore the batch."""
        time.sleep(self.duration_s)
