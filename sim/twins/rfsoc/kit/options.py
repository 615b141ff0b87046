"""A kit from the options of an address: `sim://kit?seed=7&vary=yes&laser_dbm=9&noise=off`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sim.twins.rfsoc.kit.knobs import KNOBS, turned
from sim.twins.rfsoc.kit.parameters import MODULATORS, KitParameters, varied
from sim.twins.rfsoc.kit.plant import FACTORY_IDENTITY, PhotonicKit

KIT_OPTIONS = frozenset({"seed", "vary", *KNOBS})
"""What of an address's options is the kit's: `seed` of all chance (a whole number), `vary` (yes: the modulators are a
make of their own, by the seed), and every knob."""


def photonic_kit(options: Mapping[str, str], *, generators: int = MODULATORS) -> PhotonicKit:
    """The kit that the options describe, on a board of so many generators.

    Without `vary` it is always the same device, `sim-kit-0001`, whatever the seed: that draws its noise and drift.
    Raises `UnknownKnob` for an option that is none, `ValueError` for a value that cannot be.
    """
    knobs = {name: value for name, value in options.items() if name not in ("seed", "vary")}
    seed = _seed(options.get("seed", "1"))
    parameters = replace(KitParameters(), seed=seed)
    is_varied = _yes_or_no(options.get("vary", "no"))
    if is_varied:
        parameters = varied(parameters, seed)
    identity = f"sim-kit-varied-{seed:04d}" if is_varied else FACTORY_IDENTITY
    return PhotonicKit(turned(parameters, knobs), identity=identity, generators=generators)


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"seed is a whole number from 0 on, not {text!r}")
    return int(text)


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(f"vary is yes or no, not {text!r}")
    return text == "yes"
