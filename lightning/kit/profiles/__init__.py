"""Profiles of known firmware, for compiling programs without a board: QICK configurations, couplings and clock rates.

`load("lightning-zcu111").soccfg()` returns a `QickConfig`. The kit needs DC coupling: its
pulses have frequency 0, and droop behind the baluns of AC-coupled connectors.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from lightning.errors import UnknownProfile
from lightning.optional import require

Coupling = Literal["AC", "DC"]
PROFILE_NAMES = ("lightning-zcu111", "rfsoc4x2", "zcu111", "zcu216")


@dataclass(frozen=True, slots=True)
class Profile:
    """One firmware on one board."""

    name: str
    board: str
    description: str
    dac_coupling: Coupling
    adc_coupling: Coupling
    coupling_note: str
    """The connectors for which these couplings hold, and other connectors of the board."""
    refclk_mhz: tuple[float, ...]
    dac_msps: tuple[float, ...]
    adc_msps: tuple[float, ...]
    config: dict[str, Any] = field(repr=False)
    """QICK's configuration document."""

    def make_soccfg(self) -> Any:
        """Return a `qick.QickConfig` for which programs can be compiled. Raise `MissingLibrary` without QICK."""
        qick = require("qick", "to compile programs")
        return qick.QickConfig(copy.deepcopy(self.config))


@lru_cache
def load(name: str) -> Profile:
    """Return the profile of this name. Raise `UnknownProfile` if there is none."""
    if name not in PROFILE_NAMES:
        raise UnknownProfile(f"there is no profile {name!r}", hint=f"Known are {', '.join(PROFILE_NAMES)}")
    return parse(json.loads(files(__name__).joinpath(f"{name}.json").read_text("utf-8")))


def parse(document: dict[str, Any]) -> Profile:
    """Return a profile from its document."""
    coupling, clocks = document["coupling"], document["clocks"]
    return Profile(
        name=document["name"],
        board=document["soccfg"]["board"],
        description=document["about"],
        dac_coupling=coupling["dac"],
        adc_coupling=coupling["adc"],
        coupling_note=coupling["note"],
        refclk_mhz=tuple(clocks["refclk_mhz"]),
        dac_msps=tuple(clocks["dac_msps"]),
        adc_msps=tuple(clocks["adc_msps"]),
        config=document["soccfg"],
    )


@lru_cache
def find_for_board(board: str) -> tuple[Profile, ...]:
    """Return the profiles for this board. The case of its name does not matter."""
    return tuple(profile for profile in map(load, PROFILE_NAMES) if profile.board.lower() == board.lower())
