"""Decoding of waveforms into numbers.

    sp = LightningSignalProcessing()
    sp.plot_waveform(waveform)
    print(sp.decode_adc_result)  # 0..255; 0..510 where both products are lit

`plot_waveform` binds the waveform to this object. `decode_adc_result` is then an int, which can also be called with
another waveform. Decoding uses the readout of the calibration, at any index in the waveform. The helpers of the library
published for the kit are here too, with its defects repaired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from lightning.errors import (
    ForeignCalibration,
    LightningError,
    NotCalibrated,
    NoWaveformError,
    OutOfRange,
    WrongChannel,
    warn_of_darkness,
    warn_of_saturation,
)
from lightning.kit.waveform import Floats, Waveform

if TYPE_CHECKING:
    from lightning.kit.calibration import Calibration
    from lightning.kit.calibration.decoder import DecodedLevel

SETTLE_TICKS = 8
"""Samples omitted at each edge of a pulse, for rise times and different fibre lengths."""


class DecodedResult(int):
    """A product, 0..255, or a sum of two, 0..510. Calling it, `result(waveform)`, decodes another waveform."""

    _processing: LightningSignalProcessing

    def __new__(cls, value: int, processing: LightningSignalProcessing) -> Self:
        """Return the number, bound to the object that decodes further waveforms."""
        result = super().__new__(cls, value)
        result._processing = processing
        return result

    def __call__(self, waveform: Waveform) -> int:
        """Return the product in another waveform. The bound waveform does not change."""
        return self._processing.decode(waveform)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


class LightningSignalProcessing:
    """Plotting and decoding of waveforms. The arguments of the published library are accepted and ignored."""

    def __init__(self, soccfg: Any = None, soc: Any = None, config: Any = None) -> None:
        del soccfg, soc, config
        self.waveform: Waveform | None = None

    def plot_waveform(self, waveform: Waveform, *, draw: bool = True) -> Any:
        """Bind the waveform and return its matplotlib figure, or None without matplotlib or with `draw` False."""
        self.waveform = _check_waveform(waveform)
        return _try_plot_waveform(waveform) if draw else None

    @property
    def decode_adc_result(self) -> DecodedResult:
        """The product in the bound waveform, 0..255, or the sum of two, 0..510.

        Raise `NoWaveformError` if no waveform is bound, and the errors of `decode`.
        """
        if self.waveform is None:
            raise NoWaveformError(
                "there is no waveform to decode yet", hint="Bind one first: sp.plot_waveform(waveform)"
            )
        return DecodedResult(self.decode(self.waveform), self)

    def decode(self, waveform: Waveform) -> int:
        """Return the product in this waveform, 0..255, or the sum of two if both are lit, 0..510.

        Warn with `SaturationWarning` if there was too much light, and with `DarkWarning` if light was expected and none
        arrived. Raise `NotCalibrated` if the waveform has no calibration, `ForeignCalibration` if its calibration is of
        another device, `WrongChannel` if the calibration's readout was not recorded, and `OutOfRange` for pulses,
        windows or samples that the calibration does not cover.
        """
        decoded = decode_answer(waveform)
        if decoded.is_saturated:
            warn_of_saturation(waveform.device.label)
        if decoded.is_dark:
            warn_of_darkness(waveform.device.label)
        return decoded.value

    def get_signal_timeseries(self, waveform: Waveform, readout: int = 0) -> Floats:
        """Return |I + jQ| of one readout in counts, (samples,), after averaging the shots as complex numbers.

        The published library averaged magnitudes, which raises a dark line by the mean magnitude of its noise.
        """
        return compute_magnitudes(_check_waveform(waveform), readout)

    def find_plateaus(self, signal: npt.ArrayLike, window_size: int) -> Floats:
        """Return the moving mean over `window_size` samples, (samples - window_size + 1,).

        The published library uses this name.
        """
        return compute_moving_mean(signal, window_size)

    def find_peak_floor(self, signal: npt.ArrayLike) -> tuple[float, float]:
        """Return (peak, floor) of a signal, by the function `find_peak_floor`."""
        return find_peak_floor(signal)


def decode_answer(waveform: Waveform) -> DecodedLevel:
    """Return the decoded result of this waveform with its flags, without warnings. Raise the errors of `decode`."""
    calibration = _get_calibration(_check_waveform(waveform))
    # A calibration uses pulses without a carrier. With a carrier, a modulator follows another curve.
    settings = waveform.origin.settings
    for name, value in (("pulse_freq_mhz", settings.pulse_freq_mhz), ("phase_deg", settings.phase_deg)):
        if value:
            raise OutOfRange(
                f"{name} was {value:g}, but the device is calibrated for pulses of frequency 0 and phase 0",
                device=waveform.device.name,
                hint=f"Set {name} to 0 to decode; without decoding, any value works",
            )
    level, peak = measure_levels(waveform, calibration)
    return calibration.decode(level, _read_values(waveform), peak=peak)


def compute_magnitudes(waveform: Waveform, readout: int = 0) -> Floats:
    """Return |I + jQ| of the mean of all shots, in counts, (samples,)."""
    mean = waveform[readout].mean(axis=0)
    magnitude: Floats = np.hypot(mean[0], mean[1])
    return magnitude


def compute_moving_mean(signal: npt.ArrayLike, window_size: int) -> Floats:
    """Return the moving mean, (samples - window_size + 1,). Raise `OutOfRange` for a window that does not fit.

    >>> compute_moving_mean([0, 0, 2, 2], 2).tolist()
    [0.0, 1.0, 2.0]
    """
    values = np.asarray(signal, dtype=float)
    if not 1 <= window_size <= values.size:
        raise OutOfRange(
            f"a window of {window_size} samples does not fit a signal of {values.size}",
            hint=f"Give 1 to {values.size}",
        )
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray((sums[window_size:] - sums[:-window_size]) / window_size)


def find_peak_floor(signal: npt.ArrayLike) -> tuple[float, float]:
    """Return (peak, floor) of a signal with one pulse, positive or negative, on an idle line.

    The samples are split at the threshold that leaves the least variance within the two groups (N. Otsu, 1979). Each
    level is the median of its group, so the pulse's duration and single spikes do not change it. The peak is the upper
    group, unless the first and last samples both belong to it. Raise `OutOfRange` for fewer than four samples.

    >>> find_peak_floor([1, 1, 9, 9, 9, 9, 9, 1])
    (9.0, 1.0)
    """
    values = np.asarray(signal, dtype=float)
    if values.ndim != 1 or values.size < 4:
        raise OutOfRange(
            f"a signal of shape {values.shape} has no plateau", hint="Give at least four samples"
        )
    is_high = values > _compute_threshold(values)
    if not is_high.any():
        return float(np.median(values)), float(np.median(values))
    upper, lower = float(np.median(values[is_high])), float(np.median(values[~is_high]))
    is_inverted = bool(is_high[0]) and bool(is_high[-1])
    return (lower, upper) if is_inverted else (upper, lower)


def _compute_threshold(values: Floats) -> float:
    """Return Otsu's threshold, the largest value of the lower group."""
    sorted_values = np.sort(values)
    counts_below = np.arange(1, sorted_values.size)
    sums_below = np.cumsum(sorted_values)[:-1]
    means_below, means_above = (
        sums_below / counts_below,
        (sorted_values.sum() - sums_below) / (sorted_values.size - counts_below),
    )
    variance_between = counts_below * (sorted_values.size - counts_below) * (means_above - means_below) ** 2
    return float(sorted_values[int(variance_between.argmax())])


def measure_levels(waveform: Waveform, calibration: Calibration) -> tuple[float, float]:
    """Return (level above idle, peak) of the pulse in counts of I, at the calibrated arrival time.

    Raise `WrongChannel` if the calibration's readout was not recorded, `OutOfRange` if the window lacks the plateau or
    the idle line, or a sample is not finite.
    """
    readout_index = _find_readout_index(waveform, calibration)
    samples = waveform[readout_index].mean(axis=0)[0]
    if not np.isfinite(samples).all():
        raise OutOfRange(
            f"{int((~np.isfinite(samples)).sum())} of {samples.size} samples are not finite",
            device=waveform.device.name,
            hint="Acquire again, or pass the samples unchanged",
        )
    start, stop, idle_end, idle_start = _find_edges(waveform, calibration, readout_index)
    ticks = np.arange(samples.size)
    plateau_samples = samples[(ticks >= start) & (ticks < stop)]
    idle_samples = samples[(ticks < idle_end) | (ticks >= idle_start)]
    for name, section in (("plateau of the pulse", plateau_samples), ("idle line", idle_samples)):
        if section.size == 0:
            raise OutOfRange(
                (
                    f"the {samples.size} samples contain no {name}: the pulse is in samples {start:.0f} to "
                    f"{stop:.0f}"
                ),
                device=waveform.device.name,
                hint="Change adc_trig_offset, length or readout_length so that the window covers the whole pulse",
            )
    peak = float(plateau_samples.mean())
    return peak - float(idle_samples.mean()), peak


def _find_readout_index(waveform: Waveform, calibration: Calibration) -> int:
    """Return the index of the calibration's readout in the waveform."""
    readouts = waveform.origin.settings.readouts
    if calibration.readout not in readouts:
        raise WrongChannel(
            (
                f"the light arrives at readout {calibration.readout}, but the recorded readouts are "
                f"{', '.join(map(str, readouts))}"
            ),
            device=waveform.device.name,
            hint=f"Add readout {calibration.readout}: readouts = {[*readouts, calibration.readout]}",
        )
    return readouts.index(calibration.readout)


def _find_edges(
    waveform: Waveform, calibration: Calibration, readout_index: int
) -> tuple[float, float, float, float]:
    """Return (start of the plateau, its end, end of the idle line before the pulse, its start after the pulse)."""
    origin, timing = waveform.origin, calibration.timing
    trigger_ticks = origin.trigger_ns / timing.tick_ns
    samples_per_tick = timing.tick_ns / origin.tick_ns[readout_index]
    pulse_ticks = origin.pulse_ns / timing.tick_ns
    first_arrival, last_arrival = (
        (min(timing.arrival) - trigger_ticks) * samples_per_tick,
        (max(timing.arrival) - trigger_ticks) * samples_per_tick,
    )
    return (
        last_arrival + SETTLE_TICKS,
        first_arrival + pulse_ticks * samples_per_tick - SETTLE_TICKS,
        first_arrival - SETTLE_TICKS,
        last_arrival + pulse_ticks * samples_per_tick + SETTLE_TICKS,
    )


def _read_values(waveform: Waveform) -> dict[int, int]:
    """Return the value of each generator. Raise `OutOfRange` for a generator with a bare gain word."""
    settings = waveform.origin.settings
    operand_by_channel = {}
    for modulator, channel in settings.channel_by_modulator.items():
        value = settings.values[modulator]
        if value is None:
            raise OutOfRange(
                (
                    f"modulator {modulator} was driven with the gain word {waveform.origin.words[modulator]}, "
                    "which corresponds to no value"
                ),
                device=waveform.device.name,
                hint=f"Set dac_{modulator} (0..255) instead of word_{modulator}",
            )
        operand_by_channel[channel] = value
    return operand_by_channel


def _check_waveform(waveform: Any) -> Waveform:
    if not isinstance(waveform, Waveform):
        raise NoWaveformError(
            f"a {type(waveform).__name__} is not a lightbed waveform",
            hint="Pass what LightningControl.acquire_decimated returned",
        )
    return waveform


def _get_calibration(waveform: Waveform) -> Calibration:
    if waveform.calibration is None:
        raise NotCalibrated(
            "the waveform was taken without a calibration, so its level has no meaning",
            device=waveform.device.label,
            hint="Run `lightning calibrate` with this device, then acquire again",
        )
    if waveform.calibration.device != waveform.device.name:
        raise ForeignCalibration(
            f"the waveform was driven with the calibration of {waveform.calibration.device}",
            device=waveform.device.label,
            hint="Create the LightningControl with the device that runs it, then acquire again",
        )
    return waveform.calibration


def _try_plot_waveform(waveform: Waveform) -> Any:
    try:
        from lightning.kit import plots
    except ImportError:
        return None
    try:
        decoded_result = decode_answer(waveform).value
    except LightningError:
        decoded_result = None
    return plots.waveform(waveform, decoded_result=decoded_result)
