"""The state of a simulated kit, which the thread of the board and the thread of the instruments share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.twins.rfsoc.kit.parameters import MODULATOR_COUNT, KitParameters


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The settings and the drift of a kit at one moment."""

    parameters: KitParameters
    drift_v: tuple[float, ...]
    """Drift of each modulator's null voltage, in V."""
    polarisation_drift_rad: float
    """Drift of the polarisation, in rad."""
    version: int

    @property
    def is_lit(self) -> bool:
        """True if the laser emits light."""
        kit = self.parameters
        return kit.laser and kit.shutter_open and not kit.laser_dropped


class KitState:
    """Holder of the current snapshot. A change replaces the whole snapshot, so readers never see a partial change."""

    def __init__(self, parameters: KitParameters) -> None:
        self._lock = threading.Lock()
        self._snapshot = Snapshot(parameters, (0.0,) * MODULATOR_COUNT, 0.0, 0)
        self._drift_rng = np.random.default_rng((parameters.seed, 0x6472))

    @property
    def snapshot(self) -> Snapshot:
        """The current state."""
        return self._snapshot

    def change(self, change_parameters: Callable[[KitParameters], KitParameters]) -> None:
        """Replace the parameters by the result of `change_parameters`. If they differ, the version increases."""
        with self._lock:
            previous_snapshot = self._snapshot
            parameters = change_parameters(previous_snapshot.parameters)
            if parameters != previous_snapshot.parameters:
                self._snapshot = Snapshot(
                    parameters,
                    previous_snapshot.drift_v,
                    previous_snapshot.polarisation_drift_rad,
                    previous_snapshot.version + 1,
                )

    def apply_drift(
        self, draw_drift: Callable[[Snapshot, np.random.Generator], tuple[tuple[float, ...], float]]
    ) -> None:
        """Replace the drifts by the result of `draw_drift`, which gets the current state and a random generator."""
        with self._lock:
            previous_snapshot = self._snapshot
            drift_v, polarisation_drift_rad = draw_drift(previous_snapshot, self._drift_rng)
            self._snapshot = Snapshot(
                previous_snapshot.parameters, drift_v, polarisation_drift_rad, previous_snapshot.version + 1
            )
