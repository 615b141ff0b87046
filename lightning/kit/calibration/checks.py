"""Checks of a calibration before values are sent by it."""

from __future__ import annotations

from typing import Any

from lightning.errors import ConfigError, WrongChannel
from lightning.kit.calibration.document import Calibration
from lightning.kit.settings import Settings


def check_is_calibration(given: Any) -> None:
    """Raise `ConfigError` for what is handed over as a calibration and is neither one nor None."""
    if given is not None and not isinstance(given, Calibration):
        raise ConfigError(
            f"{given!r:.60} is not a valid calibration",
            hint="Give what lightning.kit.calibration.load(FILE) returns, or leave it out for that kept for the device",
        )


def check_calibrated_channels(calibration: Calibration, settings: Settings) -> None:
    """Raise `WrongChannel` where values go to other generators than the modulators were measured with."""
    for index, channel in settings.driven.items():
        measured = calibration.modulators[index].channel
        if settings.values[index] is not None and channel != measured:
            raise WrongChannel(
                f"modulator {index} is driven by generator {channel}, and was calibrated with generator {measured}",
                device=calibration.device,
                hint=f"Set channel_{index} to {measured}, or calibrate again when it was wired again",
            )
