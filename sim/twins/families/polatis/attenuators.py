"""Attenuators at the outputs of a Polatis switch, shared by its TL1 and REST interfaces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sim.models.light import Attenuator
from sim.twins.switch.device import SwitchDevice

MAX_LEVEL_DB: Final = 80.0
MODES: Final = ("NONE", "ABSOLUTE", "RELATIVE", "CONVERGED")


@dataclass(frozen=True, slots=True)
class AttenuatorSetting:
    """Setting of an attenuator: mode, level in dBm or dB (depending on the mode), and reference port (0 for none)."""

    mode: str = "NONE"
    level: float = 0.0
    reference_port: int = 0

    def __str__(self) -> str:
        return f"{self.mode},{self.level:.1f},{self.reference_port}"


class Attenuators:
    """Attenuator settings of all outputs of a device."""

    def __init__(self, device: SwitchDevice) -> None:
        self._device = device
        self._settings: dict[int, AttenuatorSetting] = {}

    def get_setting(self, port: int) -> AttenuatorSetting:
        """Return the setting of an output. The default does not attenuate."""
        return self._settings.get(port, AttenuatorSetting())

    def apply_setting(self, ports: Iterable[int], setting: AttenuatorSetting) -> None:
        """Apply one setting to several outputs."""
        for port in ports:
            self._settings[port] = setting
            self._device.attenuators[port] = self._compute_attenuator(port, setting)
        self._device.report_light()

    def _compute_attenuator(self, port: int, setting: AttenuatorSetting) -> Attenuator:
        """Return the attenuator for a setting. No public document defines the four modes, so these are assumptions.

        - NONE does not attenuate.
        - ABSOLUTE limits the output power to the level in dBm.
        - CONVERGED sets the loss with which the output power now equals the level in dBm, and keeps this loss.
        - RELATIVE does the same, with a level in dB relative to the current power of the reference port. Without a
          reference port, the level is relative to the unattenuated light.
        """
        if setting.mode == "NONE":
            return Attenuator()
        if setting.mode == "ABSOLUTE":
            return Attenuator(ceiling_dbm=setting.level)
        if setting.mode == "RELATIVE" and not setting.reference_port:
            return Attenuator(loss_db=max(0.0, -setting.level))
        target_dbm = setting.level
        if setting.mode == "RELATIVE":
            target_dbm += self._device.read_power_dbm(setting.reference_port)
        # Remove the current attenuator first, because the loss is computed from the unattenuated power.
        self._device.attenuators.pop(port, None)
        self._device.report_light()
        return Attenuator(loss_db=max(0.0, self._device.read_power_dbm(port) - target_dbm))
