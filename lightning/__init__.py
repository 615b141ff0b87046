"""Photonic inference: multiply by light, with the Lightning kit or its twin.

    import lightning
    from lightning import LightningControl, LightningConfig, LightningSignalProcessing

    soc = lightning.connect("sim://kit")
    LightningConfig["dac_0"] = 100
    LightningConfig["dac_1"] = 50
    waveform = LightningControl(soc, LightningConfig).acquire_decimated(soc)
    sp = LightningSignalProcessing()
    sp.plot_waveform(waveform)
    print(sp.decode_adc_result)

Importing this needs numpy only; QICK and the rest are imported where they are used. PyTorch Lightning is a package
of the same name: next to it this one refuses to work, and says what to do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightning import errors
from lightning.config import Configuration, LightningConfig, from_lts, from_slide
from lightning.control import LightningControl
from lightning.devices import Patience, connect
from lightning.errors import (
    DeviceGone,
    DeviceStuck,
    LightningError,
    NotCalibrated,
    NoWaveformError,
    ReadoutOverrun,
)
from lightning.signal_processing import LightningSignalProcessing
from lightning.waveform import Waveform

if TYPE_CHECKING:
    from lightning.compute import LightningCompute
    from lightning.devices.recording import record

__all__ = [
    "Configuration",
    "DeviceGone",
    "DeviceStuck",
    "LightningCompute",
    "LightningConfig",
    "LightningControl",
    "LightningError",
    "LightningSignalProcessing",
    "NoWaveformError",
    "NotCalibrated",
    "Patience",
    "ReadoutOverrun",
    "Waveform",
    "connect",
    "errors",
    "from_lts",
    "from_slide",
    "record",
]

_LATER = {
    "LightningCompute": "lightning.compute",
    "record": "lightning.devices.recording",
}
"""Imported when they are asked for."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
