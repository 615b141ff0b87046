"""The attenuators of a Polatis' outputs: one state behind TL1 and REST."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sim.models.light import Attenuator
from sim.twins.switch.device import SwitchDevice

LEVEL_RANGE_DB: Final = 80.0
MODES: Final = ("NONE", "ABSOLUTE", "RELATIVE", "CONVERGED")


@dataclass(frozen=True, slots=True)
class AttenuatorSetting:
    """Settings of an attenuator: mode, level in dBm or dB, reference port (0 for none)."""

    mode: str = "NONE"
    level: float = 0.0
    reference: int = 0

    def __str__(self) -> str:
        return f"{self.mode},{self.level:.1f},{self.reference}"


class Attenuators:
    """Settings by output, and what they do to the light."""

    def __init__(self, device: SwitchDevice) -> None:
        self._device = device
        self._settings: dict[int, AttenuatorSetting] = {}

    def setting(self, port: int) -> AttenuatorSetting:
        """Return the setting of an output."""
        return self._settings.get(port, AttenuatorSetting())

    def set(self, ports: Iterable[int], setting: AttenuatorSetting) -> None:
        """Give outputs a setting."""
        for port in ports:
            self._settings[port] = setting
            self._device.attenuators[port] = self._attenuator(port, setting)
        self._device.republish()

    def _attenuator(self, port: int, setting: AttenuatorSetting) -> Attenuator:
        """Return the attenuator in light that a setting makes: our reading of four modes that no public text defines.

        ABSOLUTE holds the output at the level; CONVERGED finds the loss for that once and keeps it;
        RELATIVE lets out the level relative to the reference port's power now, or to the unattenuated light.
        """
        if setting.mode == "NONE":
            return Attenuator()
        if setting.mode == "ABSOLUTE":
            return Attenuator(ceiling_dbm=setting.level)
        if setting.mode == "RELATIVE" and not setting.reference:
            return Attenuator(loss_db=max(0.0, -setting.level))
        wanted_dbm = setting.level
        if setting.mode == "RELATIVE":
            wanted_dbm += self._device.power_dbm(setting.reference)
        self._device.attenuators.pop(port, None)
        self._device.republish()
        return Attenuator(loss_db=max(0.0, self._device.power_dbm(port) - wanted_dbm))
