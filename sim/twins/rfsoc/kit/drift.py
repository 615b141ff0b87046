"""Drift of a kit while device time passes."""

from __future__ import annotations

import numpy as np

from sim.models.photonics.drift import BiasDrift, OrnsteinUhlenbeck, null_v, step
from sim.models.photonics.polarisation import Polariser, step_rad
from sim.twins.rfsoc.kit.parameters import KitParameters
from sim.twins.rfsoc.kit.state import Snapshot

DRIFT_STEP_S = 1.0


def drifted(now: Snapshot, rng: np.random.Generator, *, seconds: float) -> tuple[tuple[float, ...], float]:
    """Drift of each null voltage, in V, and walk of the polarisation, in rad, `seconds` later."""
    kit = now.parameters
    drift_v = tuple(
        step(_wander(kit, index), before_v, seconds, float(rng.standard_normal()))
        for index, before_v in enumerate(now.drift_v)
    )
    return drift_v, step_rad(polariser(kit), now.walk_rad, seconds, float(rng.standard_normal()))


def present_null_v(now: Snapshot, index: int) -> float:
    """Return the bias voltage at which a modulator is darkest now."""
    kit = now.parameters
    drift = BiasDrift(_wander(kit, index), kit.null_v_per_k)
    return null_v(drift, kit.modulators[index].null_v, now.drift_v[index], kit.temperature_c)


def polariser(kit: KitParameters) -> Polariser:
    """Return the polariser that the modulators are, with its drift."""
    return Polariser(kit.polariser_db, kit.polarisation_rad2_s)


def _wander(kit: KitParameters, index: int) -> OrnsteinUhlenbeck:
    return OrnsteinUhlenbeck(kit.drift_v_pi * kit.modulators[index].v_pi, kit.drift_time_s)
