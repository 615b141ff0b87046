"""Simulated switches that `python -m sim.twins` can start, with one module or package for each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import SwitchTwin

FAMILIES: Mapping[str, str] = {
    "polatis": "sim.twins.families.polatis:make_twin",
    "calient": "sim.twins.families.calient:make_twin",
    "sonic": "sim.twins.families.sonic:make_twin",
    "telescent": "sim.twins.families.telescent:make_twin",
    "rome": "sim.twins.families.rome:make_rome_twin",
    "afm": "sim.twins.families.rome:make_afm_twin",
    "dicon": "sim.twins.families.dicon:make_twin",
    "glimmerglass": "sim.twins.families.glimmerglass:make_twin",
    "mosw": "sim.twins.families.mosw:make_twin",
    "scpi-1xn": "sim.twins.families.scpi_1xn:make_twin",
    "manual": "sim.twins.families.manual:make_twin",
}
"""Family name -> `module:function`. The function returns a twin for given `TwinSettings`."""


def make_twin(family: str, settings: TwinSettings) -> SwitchTwin:
    """Return a new twin; start it with `serve`. Raise `SettingError` for an unknown family or an invalid option."""
    if family not in FAMILIES:
        raise SettingError(f"unknown family {family!r}; known: {', '.join(FAMILIES)}")
    module, name = FAMILIES[family].split(":")
    make: Callable[[TwinSettings], SwitchTwin] = getattr(import_module(module), name)
    return make(settings)
