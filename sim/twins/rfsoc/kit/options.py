"""A kit from the options of an address: `sim://kit?seed=7&vary=yes&laser_dbm=9&noise=off`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from sim.twins.rfsoc.address import whole
from sim.twins.rfsoc.kit.knobs import KNOBS, turned
from sim.twins.rfsoc.kit.parameters import MODULATORS, KitParameters, varied
from sim.twins.rfsoc.kit.plant import FACTORY_IDENTITY, PhotonicKit

KIT_OPTIONS = frozenset({"seed", "vary", *KNOBS})
"""What of an address's options is the kit's: `seed` of all chance (a whole number), `vary` (yes: the modulators are a
make of their own, by the seed), and every knob."""

STATE = frozenset(
    {
        *("laser", "shutter_open", "laser_dbm", "laser_dropped", "wavelength_nm", "bias_v"),
        *("polarisation_rad", "temperature_c", "drift", "drift_v_pi", "drift_time_s", "polarisation_rad2_s"),
        *("noise", "noise_lsb", "rin_db_hz", "thermal_a_rthz", "adc_enob", "jitter_s"),
    }
)
"""Fields that are not the make of a kit, but how it is set, how it drifts and its noise."""


def photonic_kit(options: Mapping[str, str], *, board: str = "", generators: int = MODULATORS) -> PhotonicKit:
    """Return the kit that the options describe, on a board of so many generators (or of another `board`).

    Without `vary` it is always the same device, `sim-kit-0001`, whatever the seed: that draws its noise and drift.
    Another make (`v_pi_0=5.8`) or another board is another device, with a name of its own: `sim-kit-0001-7dc1bb`,
    `sim-kit-0001-zcu216`. So neither gets the calibration of the other.
    Raises `UnknownKnob` for an option that is none, `ValueError` for a value that cannot be.
    """
    knobs = {name: value for name, value in options.items() if name not in ("seed", "vary")}
    seed = whole("seed", options.get("seed", "1"))
    parameters = replace(KitParameters(), seed=seed)
    is_varied = _yes_or_no(options.get("vary", "no"))
    if is_varied:
        parameters = varied(parameters, seed)
    identity = f"sim-kit-varied-{seed:04d}" if is_varied else FACTORY_IDENTITY
    made = turned(parameters, knobs)
    identity = "-".join([identity, *_make(parameters, made, knobs), *([board] if board else [])])
    return PhotonicKit(made, identity=identity, generators=generators)


def _make(nominal: KitParameters, made: KitParameters, names: Mapping[str, str]) -> list[str]:
    """Return a short digest of what the options make other than it was; nothing where they leave it the same kit."""
    others = [
        f"{name}={KNOBS[name].read(made)!r}"
        for name in sorted(names)
        if KNOBS[name].field not in STATE and KNOBS[name].read(made) != KNOBS[name].read(nominal)
    ]
    return [hashlib.sha256("&".join(others).encode()).hexdigest()[:6]] if others else []


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(f"vary is yes or no, not {text!r}")
    return text == "yes"
