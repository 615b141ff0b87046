"""Acquisitions: operands in, waveform out.

    runtime = LightningControl(soc, LightningConfig)
    waveform = runtime.acquire_decimated(soc)

`LightningControl` takes what the configuration says at that moment, looks whether the firmware can do it, and
compiles; nothing is sent before `acquire_decimated`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightning.checks import check, check_running_clocks, check_same_firmware
from lightning.config import Configuration, settings_of
from lightning.devices.identity import identity_of
from lightning.errors import ProgramError
from lightning.optional import needed
from lightning.programs import Floats, build
from lightning.settings import LINEAR_TOP_WORD, TOP_VALUE, Settings
from lightning.waveform import Origin, Waveform

if TYPE_CHECKING:
    from lightning.calibration import Calibration
    from lightning.devices.guard import GuardedSoc


class LightningControl:
    """One acquisition, compiled for one device.

    `device` is what `lightning.connect` gives, a `QickSoc`, or (to compile only) a `QickConfig`. `calibration` is the
    one kept for the device unless another is given; without any, values are driven linearly, value 255 with gain
    word 20000. Raises `WrongChannel`, `ReadoutTooLong`, `UnsupportedClock`, `AmbiguousConfig`, and the errors of a
    calibration that must not be used.
    """

    def __init__(
        self,
        device: Any,
        config: Settings | Configuration | Mapping[str, Any],
        *,
        calibration: Calibration | None = None,
    ) -> None:
        self.settings = settings_of(config)
        check(device, self.settings)
        self.calibration = calibration or self._kept(device)
        self.words = drive(self.settings, self.calibration)
        """Gain word per modulator."""
        by_generator = {channel: self.words[i] for i, channel in self.settings.driven.items()}
        self.compiled = build(device, self.settings, by_generator)
        self._soccfg = device
        self._generator = next(iter(by_generator))

    def _kept(self, device: Any) -> Calibration | None:
        """Bare gain words need none, so one that must not be used does not stand in their way."""
        return find_calibration(device) if any(each is not None for each in self.settings.values) else None

    @property
    def program(self) -> Any:
        """QICK's own program: `asm()`, `dump_prog()`, `binprog`."""
        return self.compiled.program

    def acquire_decimated(self, soc: Any, *, progress: bool = False) -> Waveform:
        """Run it on `soc` and bring back every sample, averaged over `soft_avgs` runs.

        Raises `DeviceStuck` or `DeviceGone` when the device hangs or is lost, `UnsupportedClock` when its clocks
        have changed.
        """
        device = self._ready(soc)
        readouts = self.compiled.acquire_decimated(device, progress=progress)
        return Waveform(readouts, self._origin(device))

    def acquire(self, soc: Any, *, progress: bool = False) -> list[Floats]:
        """Run it on `soc` and bring back one mean (I, Q) per readout, over the whole window and all shots.

        The window must lie inside the pulses for this to be a level. Raises as `acquire_decimated`.
        """
        return self.compiled.acquire(self._ready(soc), progress=progress)

    def _ready(self, soc: Any) -> GuardedSoc:
        needed("qick", "to run programs")
        from lightning.devices.guard import guarded

        if not callable(getattr(soc, "start_tproc", None)):
            raise ProgramError(
                "this is a configuration, not a device",
                cure="Hand over what lightning.connect(address) returned",
            )
        device = guarded(soc)
        check_same_firmware(self._soccfg, device)
        check_running_clocks(device)
        device.expect(self.compiled.duration_s())
        if note := getattr(device.unguarded, "note_settings", None):
            note(self.settings.as_dict())
        return device

    def _origin(self, device: GuardedSoc) -> Origin:
        readouts = [device["readouts"][each] for each in self.settings.readouts]
        return Origin(
            settings=self.settings,
            words=self.words,
            device=identity_of(device),
            calibration=self.calibration,
            tick_ns=tuple(1e3 / float(each["f_output"]) for each in readouts),
            trigger_ns=self.settings.adc_trig_offset * 1e3 / float(device["tprocs"][0]["f_time"]),
            pulse_ns=self.settings.length * 1e3 / float(device["gens"][self._generator]["f_fabric"]),
            rounds=self.compiled.rounds(),
        )


def drive(settings: Settings, calibration: Calibration | None) -> tuple[int, ...]:
    """Gain word of each modulator: as given, through the calibration's encoder, or linear.

    >>> drive(Settings(values=(255, 51, 0, 0)), None)
    (20000, 4000, 0, 0)
    """
    values = {
        channel: settings.values[i]
        for i, channel in settings.driven.items()
        if settings.values[i] is not None
    }
    by_generator = (
        {} if calibration is None else calibration.words({k: v for k, v in values.items() if v is not None})
    )
    words = []
    for i, (value, word) in enumerate(zip(settings.values, settings.words, strict=True)):
        channel = settings.driven.get(i)
        if word is not None:
            words.append(word)
        elif channel is None or calibration is None:
            words.append(round((value or 0) * LINEAR_TOP_WORD / TOP_VALUE))
        else:
            words.append(by_generator[channel])
    return tuple(words)


def find_calibration(device: Any) -> Calibration | None:
    """The calibration kept for this device, or brought along by a twin; None where there is none.

    Of a recording the age is that at its time.
    Raises `ForeignCalibration`, `StaleCalibration` or another `CalibrationError`.
    """
    from lightning.calibration import find

    return find(device, now=getattr(device, "made", None))
