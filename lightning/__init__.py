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

Names of this package are imported at their first use, and so are QICK and other libraries. PyTorch Lightning has a
package of the same name. If it is installed, importing this package raises `ImportError` with a hint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes
from lightning import errors
from lightning.errors import (
    DeviceGone,
    DeviceStuck,
    LightningError,
    NotCalibrated,
    NoWaveformError,
    ReadoutOverrun,
)

if TYPE_CHECKING:
    from lightning.kit.compute import LightningCompute
    from lightning.kit.config import Configuration, LightningConfig, from_lts, from_slide
    from lightning.kit.connection import connect
    from lightning.kit.control import LightningControl
    from lightning.kit.devices import Patience
    from lightning.kit.recordings.recording import record
    from lightning.kit.signal_processing import LightningSignalProcessing
    from lightning.kit.waveform import Waveform

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

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(
        __name__,
        {
            "kit.compute": "LightningCompute",
            "kit.config": "Configuration LightningConfig from_lts from_slide",
            "kit.control": "LightningControl",
            "kit.connection": "connect",
            "kit.devices": "Patience",
            "kit.recordings.recording": "record",
            "kit.signal_processing": "LightningSignalProcessing",
            "kit.waveform": "Waveform",
        },
    )
