"""A plot of a recorded waveform."""

from __future__ import annotations

from typing import Any

from lightning.canvas import INK, SERIES, SHADE, Plot, headed, legend, plain, sheet
from lightning.kit.calibration import Calibration
from lightning.kit.config import Settings
from lightning.kit.waveform import Waveform

HEADROOM = 1.16
"""Of the tallest trace, so that names have a place above it."""


def waveform(recorded: Waveform, *, decoded: int | None = None) -> Plot:
    """I of every readout in counts over the time since the pulses began: the mean, and behind it every shot.

    Where a calibration says when light arrives, the time of the pulses at the detector is shaded. `decoded` is named
    in the title.
    """
    figure = sheet()
    axes = figure.subplots()
    for index, readout in enumerate(recorded.origin.settings.readouts):
        colour, time_us = SERIES[index % len(SERIES)], recorded.time_us(index)
        for shot in recorded[index] if len(recorded[index]) > 1 else ():
            axes.plot(time_us, shot[0], color=colour, alpha=0.2, linewidth=0.8)
        mean = recorded[index].mean(axis=0)[0]
        axes.plot(time_us, mean, color=colour, linewidth=1.8, label=f"readout {readout}")
    axes.margins(x=0)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, max(bottom + HEADROOM * (top - bottom), bottom + 10))
    plain(axes, x="time after the start of the pulses (µs)", y="I (counts)")
    if recorded.calibration is not None:
        _shade(axes, recorded, recorded.calibration)
    legend(axes, loc="upper right")
    title = _operands(recorded.origin.settings, recorded.origin.words, decoded)
    headed(figure, title, _below(recorded), simulated=recorded.device.simulated)
    return figure


def _shade(axes: Any, recorded: Waveform, calibration: Calibration) -> None:
    """Shade from the arrival of the last modulator's light to the end of the first one's."""
    arrival, tick_us = calibration.timing.arrival, calibration.timing.tick_ns * 1e-3
    start, end = max(arrival) * tick_us, min(arrival) * tick_us + recorded.origin.pulse_ns * 1e-3
    axes.axvspan(start, end, color=SHADE, zorder=0)
    axes.annotate(
        "the pulses’ light",
        ((start + end) / 2, 1),
        xytext=(0, -5),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=9,
        color=INK,
    )


def _operands(settings: Settings, words: tuple[int, ...], decoded: int | None) -> str:
    """Return `100 × 50 / 255 = 20`; of the second pair only when it is lit, of bare words what they are."""
    if any(settings.values[i] is None for i in settings.driven):
        return f"gain words {', '.join(map(str, words))}"
    one, two, three, four = (each or 0 for each in settings.values)
    product = f"{one} × {two}" + (f" + {three} × {four}" if three or four else "")
    if decoded is None:
        return product
    return f"({product}) / 255 = {decoded}" if three or four else f"{product} / 255 = {decoded}"


def _below(recorded: Waveform) -> str:
    settings = recorded.origin.settings
    shots = f"{settings.reps} shots" if settings.reps > 1 else "1 shot"
    taken = f"{shots}, each the mean of {settings.soft_avgs} runs" if settings.soft_avgs > 1 else shots
    driven = "calibrated" if recorded.calibration else "not calibrated: driven linearly"
    return f"{recorded.device.name} · {taken} · {driven}"
