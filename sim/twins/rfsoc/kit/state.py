"""The state of a simulated kit, shared between the board's thread and those of its instruments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.twins.rfsoc.kit.parameters import MODULATORS, KitParameters


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The kit at one moment: how it is set, and how far it has drifted."""

    parameters: KitParameters
    drift_v: tuple[float, ...]
    """Of each modulator's null voltage."""
    walk_rad: float
    """Of the polarisation."""
    version: int

    @property
    def is_lit(self) -> bool:
        """True if there is light."""
        kit = self.parameters
        return kit.laser and kit.shutter_open and not kit.laser_dropped


class KitState:
    """Holds the present snapshot; a change replaces it as a whole, so that a reader never sees half of one."""

    def __init__(self, parameters: KitParameters) -> None:
        self._lock = threading.Lock()
        self._now = Snapshot(parameters, (0.0,) * MODULATORS, 0.0, 0)
        self._drift_rng = np.random.default_rng((parameters.seed, 0x6472))

    @property
    def now(self) -> Snapshot:
        """The present state."""
        return self._now

    def change(self, change: Callable[[KitParameters], KitParameters]) -> None:
        """Replace the parameters; the version changes if they do."""
        with self._lock:
            before = self._now
            after = change(before.parameters)
            if after != before.parameters:
                self._now = Snapshot(after, before.drift_v, before.walk_rad, before.version + 1)

    def drift(self, step: Callable[[Snapshot, np.random.Generator], tuple[tuple[float, ...], float]]) -> None:
        """Replace drift and walk by what `step` makes of the present state and of chance."""
        with self._lock:
            before = self._now
            drift_v, walk_rad = step(before, self._drift_rng)
            self._now = Snapshot(before.parameters, drift_v, walk_rad, before.version + 1)
