"""A model's step as a timed wait: what a trainer's processor does while a GPU computes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step that takes so many seconds, and no processor time. SIMULATED: no model computes."""

    seconds: float

    def __call__(self, batch: Any) -> None:
        """Wait."""
        time.sleep(self.seconds)
