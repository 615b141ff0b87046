"""Acquisitions: send operands, receive a waveform.

    runtime = LightningControl(soc, LightningConfig)
    waveform = runtime.acquire_decimated(soc)

`LightningControl` copies the current settings of the configuration, checks that the firmware supports them, and
compiles. It sends nothing before `acquire_decimated` or `acquire`. A bare `QickConfig` names no device. A program
compiled for it is compiled again, with the calibration of the device that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightning.errors import ProgramError
from lightning.kit.calibration.document import check_calibrated_channels, check_is_calibration
from lightning.kit.checks import (
    check_buffers,
    check_running_clocks,
    check_same_firmware,
    check_settings,
)
from lightning.kit.config import Configuration, to_settings
from lightning.kit.devices.identity import read_identity
from lightning.kit.programs import Floats, build_program
from lightning.kit.settings import LINEAR_MAX_WORD, MAX_VALUE, Settings
from lightning.kit.waveform import Origin, Waveform
from lightning.optional import require

if TYPE_CHECKING:
    from lightning.kit.calibration import Calibration
    from lightning.kit.devices.guard import GuardedSoc


class LightningControl:
    """One acquisition, compiled for one device.

    `device` is the result of `lightning.connect`, a `QickSoc`, or a `QickConfig` (also QICK's `soccfg` of a proxy).
    `calibration` defaults to the stored calibration of the device. Without a calibration, gain words are linear in the
    values, with word 20000 for value 255. Raise `WrongChannel`, `OutOfRange`, `UnsupportedClock`, `AmbiguousConfig`,
    or a `CalibrationError` for a calibration that is not valid for the device.
    """

    def __init__(
        self,
        device: Any,
        config: Settings | Configuration | Mapping[str, Any],
        *,
        calibration: Calibration | None = None,
    ) -> None:
        self.settings = to_settings(config)
        self._soccfg = device = _guard_proxy(device)
        check_is_calibration(calibration)
        check_settings(device, self.settings)
        self._explicit_calibration = calibration
        self._compile(device)

    def _compile(self, device: Any) -> None:
        """Compute the gain words from the calibration of this device, and compile the program with them."""
        self.calibration = self._select_calibration(device)
        if self.calibration is not None:
            check_calibrated_channels(self.calibration, self.settings)
        self.words = compute_words(self.settings, self.calibration)
        """Gain word per modulator."""
        word_by_generator = {
            channel: self.words[modulator]
            for modulator, channel in self.settings.channel_by_modulator.items()
        }
        self.compiled = build_program(device, self.settings, word_by_generator)

    def _select_calibration(self, device: Any) -> Calibration | None:
        """Return the calibration, or None. Gain words need none, so a bad stored calibration must not block them."""
        if self._explicit_calibration is None:
            return (
                find_calibration(device) if any(value is not None for value in self.settings.values) else None
            )
        if _is_device(device):
            check_calibration(self._explicit_calibration, device)
        return self._explicit_calibration

    @property
    def program(self) -> Any:
        """The QICK program: `asm()`, `dump_prog()`, `binprog`."""
        return self.compiled.program

    def acquire_decimated(self, soc: Any, *, progress: bool = False) -> Waveform:
        """Run the program on `soc` and return every sample, averaged over `soft_avgs` runs.

        Raise `DeviceStuck` or `DeviceGone` if the device hangs or is lost, `UnsupportedClock` if its clocks have
        changed, `ReadoutTooLong` if the samples exceed its buffer, and `ProgramError` if `soc` is a configuration or
        has other firmware. Raise `ForeignCalibration` or `StaleCalibration` if the calibration is not valid for it.
        """
        check_buffers(self._soccfg, self.settings)
        device = self._prepare(soc)
        readouts = self.compiled.acquire_decimated(device, progress=progress)
        return Waveform(readouts, self._make_origin(device))

    def acquire(self, soc: Any, *, progress: bool = False) -> list[Floats]:
        """Run the program on `soc` and return the mean (I, Q) of each readout, over the whole window and all shots.

        The mean is a level only if the window lies inside the pulses. Raise the errors of `acquire_decimated`, but not
        `ReadoutTooLong`: a mean needs no sample buffer.
        """
        return self.compiled.acquire(self._prepare(soc), progress=progress)

    def _prepare(self, soc: Any) -> GuardedSoc:
        require("qick", "to run programs")
        from lightning.kit.devices.guard import guard_soc

        if not _is_device(soc):
            raise ProgramError(
                "this is a configuration, not a device",
                hint="Pass what lightning.connect(address) returned",
            )
        device = guard_soc(soc)
        check_same_firmware(self._soccfg, device)
        check_running_clocks(device)
        if not _is_device(self._soccfg):
            self._compile(device)
        elif self.calibration is not None and soc is not self._soccfg:
            check_calibration(self.calibration, device)
        device.expect_duration(self.compiled.compute_duration_s())
        if note_settings := getattr(device.unguarded, "note_settings", None):
            note_settings(self.settings.as_dict())
        return device

    def _make_origin(self, device: GuardedSoc) -> Origin:
        readouts = [device["readouts"][readout] for readout in self.settings.readouts]
        generator = next(iter(self.settings.channel_by_modulator.values()))
        return Origin(
            settings=self.settings,
            words=self.words,
            device=read_identity(device),
            calibration=self.calibration,
            tick_ns=tuple(1e3 / float(readout["f_output"]) for readout in readouts),
            trigger_ns=self.settings.adc_trig_offset * 1e3 / float(device["tprocs"][0]["f_time"]),
            pulse_ns=self.settings.length * 1e3 / float(device["gens"][generator]["f_fabric"]),
            rounds=self.compiled.get_rounds(),
        )


def _guard_proxy(device: Any) -> Any:
    """Return the device. Guard a QICK proxy, because it has no configuration of its own."""
    if hasattr(type(device), "__getitem__") or not _is_device(device):
        return device
    require("qick", "to run programs")
    from lightning.kit.devices.guard import guard_soc

    return guard_soc(device)


def _is_device(device: Any) -> bool:
    """Return whether the argument is a device rather than a configuration."""
    return callable(getattr(device, "start_tproc", None))


def compute_words(settings: Settings, calibration: Calibration | None) -> tuple[int, ...]:
    """Return the gain word of each modulator: the given word, or its value encoded by the calibration or linearly.

    >>> compute_words(Settings(values=(255, 51, 0, 0)), None)
    (20000, 4000, 0, 0)
    """
    value_by_generator = {
        channel: settings.values[modulator]
        for modulator, channel in settings.channel_by_modulator.items()
        if settings.values[modulator] is not None
    }
    word_by_generator = (
        {}
        if calibration is None
        else calibration.encode(
            {channel: value for channel, value in value_by_generator.items() if value is not None}
        )
    )
    words = []
    for modulator, (value, word) in enumerate(zip(settings.values, settings.words, strict=True)):
        channel = settings.channel_by_modulator.get(modulator)
        if word is not None:
            words.append(word)
        elif channel is None or calibration is None:
            words.append(round((value or 0) * LINEAR_MAX_WORD / MAX_VALUE))
        else:
            words.append(word_by_generator[channel])
    return tuple(words)


def find_calibration(device: Any) -> Calibration | None:
    """Return the stored calibration of this device, or a twin's factory calibration, or None.

    For a recording, the age counts up to its date. Raise `ForeignCalibration`, `StaleCalibration` or another
    `CalibrationError` if the calibration is not valid.
    """
    from lightning.kit.calibration import store

    return store.find(device, now=store.get_recording_date(device))


def check_calibration(calibration: Calibration, device: Any) -> None:
    """Raise `ForeignCalibration` or `StaleCalibration` if the calibration is not valid for this device."""
    from lightning.kit.calibration import store

    store.check(calibration, device, now=store.get_recording_date(device))
