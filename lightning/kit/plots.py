"""Plots of measurements, as matplotlib figures that are neither shown nor saved.

| plot | shows |
|---|---|
| `waveform` | the trace of each readout, and the time of the pulses |
| `transfer_curves` | sweeps of modulators with their fits and residuals |
| `error_histogram` | errors of results against the true products |
| `constellation` | every result against its true product |

A notebook shows a figure that a cell returns. `save(figure, "x.png")` writes it. The state of pyplot is not used. The
import raises `MissingLibrary` without matplotlib. Plots of a simulated device are marked SIMULATED.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lightning.optional import require

require("matplotlib", "to draw plots")

from lightning.canvas import (  # noqa: E402  after the check above
    FAINT_COLOUR,
    INK_COLOUR,
    SERIES_COLOURS,
    SHADE_COLOUR,
    Plot,
    PlotError,
    add_heading,
    add_legend,
    format_signed,
    make_figure,
    save,
    style_axes,
)
from lightning.kit.calibration import Calibration  # noqa: E402
from lightning.kit.calibration.decoder import compute_accuracy, compute_rms_error, compute_true_product  # noqa: E402
from lightning.kit.calibration.fringe import Floats, Fringe  # noqa: E402
from lightning.kit.calibration.measurement.transfer import PARTNERS, Sweep  # noqa: E402
from lightning.kit.config import Settings  # noqa: E402
from lightning.kit.devices.identity import DeviceIdentity  # noqa: E402
from lightning.kit.waveform import Waveform  # noqa: E402

__all__ = [
    "Plot",
    "PlotError",
    "constellation",
    "error_histogram",
    "save",
    "transfer_curves",
    "waveform",
]

BIN_COUNT = 61
"""Number of bins of `error_histogram`."""
HEADROOM = 1.16
"""Height of the axes relative to the tallest trace, so that names fit above it."""


def error_histogram(
    results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike, device: DeviceIdentity
) -> Plot:
    """Plot a histogram of the errors of results of a*b/255, in LSB, with a fitted normal distribution.

    `results` may be rounded or analogue. `a` and `b` are values of 0..255 (or signed) in the shape of the results.
    """
    errors = _compute_errors(results, a, b)
    figure = make_figure()
    axes = figure.subplots()
    mean, sigma = float(errors.mean()), float(errors.std())
    axis_limit = max(float(np.abs(errors).max()), 1e-3) * 1.02
    counts, edges, _ = axes.hist(
        errors, bins=BIN_COUNT, range=(-axis_limit, axis_limit), color=SERIES_COLOURS[0], alpha=0.55
    )
    if sigma > 0:
        fine_errors = np.linspace(-axis_limit, axis_limit, 400)
        bin_width = float(edges[1] - edges[0])
        density = np.exp(-0.5 * ((fine_errors - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
        axes.plot(
            fine_errors,
            density * errors.size * bin_width,
            color=INK_COLOUR,
            linewidth=1.3,
            label="normal distribution",
        )
    axes.axvline(mean, color=INK_COLOUR, linewidth=1, linestyle=":", label=f"mean {format_signed(mean, 3)}")
    axes.set_ylim(0, 1.25 * float(np.max(counts)))
    axes.set_xlim(-axis_limit, axis_limit)
    style_axes(axes, x_label="error of the result (LSB)", y_label="results")
    add_legend(axes, loc="upper right")
    add_heading(
        figure,
        _format_accuracy(results, a, b),
        _format_subtitle(errors, device),
        is_simulated=device.is_simulated,
    )
    return figure


def constellation(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike, device: DeviceIdentity) -> Plot:
    """Plot every result against a*b/255 (above), and its error (below).

    The arguments are those of `error_histogram`.
    """
    truth = compute_true_product(a, b).ravel()
    values, errors = np.asarray(results, dtype=float).ravel(), _compute_errors(results, a, b)
    figure = make_figure(6.4, 6.4)
    upper_axes, lower_axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    limits = [min(0.0, float(truth.min())), max(255.0, float(truth.max()))]
    upper_axes.plot(limits, limits, color=FAINT_COLOUR, linewidth=1, zorder=1, label="exact")
    marker_size = 9.0 if values.size <= 2_000 else 4.0
    alpha = float(np.clip(600 / values.size, 0.12, 0.8))
    upper_axes.scatter(
        truth,
        values,
        s=marker_size,
        color=SERIES_COLOURS[0],
        alpha=alpha,
        linewidths=0,
        label="measured",
        zorder=2,
    )
    lower_axes.axhline(0, color=FAINT_COLOUR, linewidth=1)
    lower_axes.scatter(truth, errors, s=marker_size, color=SERIES_COLOURS[0], alpha=alpha, linewidths=0)
    # The dotted lines mark the rounding error of half an LSB.
    axis_limit = max(1.2 * float(np.abs(errors).max()), 0.8)
    lower_axes.set_ylim(-axis_limit, axis_limit)
    for half_lsb in (-0.5, 0.5):
        lower_axes.axhline(half_lsb, color=INK_COLOUR, linewidth=0.8, linestyle=":")
    style_axes(upper_axes, y_label="result of the light")
    style_axes(lower_axes, x_label="a × b / 255", y_label="error\n(LSB)")
    upper_axes.set_xlim(limits[0] - 5, limits[1] + 5)
    add_legend(upper_axes, loc="upper left")
    # Legend symbols inherit the faint alpha of the points, which would make them invisible.
    for handle in upper_axes.get_legend().legend_handles:
        handle.set_alpha(1)
    add_heading(
        figure,
        _format_accuracy(results, a, b),
        _format_subtitle(errors, device),
        is_simulated=device.is_simulated,
    )
    return figure


def _compute_errors(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    errors: Floats = np.asarray(results, dtype=float).ravel() - compute_true_product(a, b).ravel()
    return errors


def _format_accuracy(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> str:
    return f"Accuracy {compute_accuracy(results, a, b):.3f} %, error {compute_rms_error(results, a, b):.3f} of 255 rms"


def _format_subtitle(errors: Floats, device: DeviceIdentity) -> str:
    return f"{device.name} · {errors.size:,} products · largest error {float(np.abs(errors).max()):.2f}"


class SweepLike(Protocol):
    """The attributes of `transfer.Sweep` that a plot needs."""

    @property
    def words(self) -> npt.NDArray[np.int64]:
        """(points,) gain words."""
        ...

    @property
    def levels(self) -> Floats:
        """(points,) counts above idle."""
        ...

    @property
    def curve(self) -> Fringe:
        """The fitted curve."""
        ...


def transfer_curves(sweeps: Mapping[int, SweepLike], device: DeviceIdentity) -> Plot:
    """Plot the levels of every swept modulator with its sin² curve, and residuals in per cent of its swing.

    `sweeps` maps modulators to sweeps, like the results of `transfer.sweep_modulators` and `load_sweeps`.
    """
    figure = make_figure(7.2, 5.2)
    upper_axes, lower_axes = figure.subplots(2, 1, sharex=True, height_ratios=(2.6, 1))
    for index, sweep in sorted(sweeps.items()):
        _draw_modulator(upper_axes, lower_axes, index, sweep)
    lower_axes.axhline(0, color=FAINT_COLOUR, linewidth=0.8)
    style_axes(upper_axes, y_label="level above idle (counts)")
    style_axes(lower_axes, x_label="gain word", y_label="residual\n(% of swing)")
    upper_axes.margins(x=0.01)
    for axis in (upper_axes.yaxis, lower_axes.xaxis):
        axis.set_major_formatter("{x:,.0f}")
    add_legend(upper_axes, loc="upper left", ncols=1)
    modulator_numbers = ", ".join(str(index) for index in sorted(sweeps))
    plural_suffix = "s" if len(sweeps) > 1 else ""
    add_heading(
        figure,
        f"Transfer curve{plural_suffix} of modulator{plural_suffix} {modulator_numbers}",
        f"{device.name} · dots: measured, lines: sin² fits, ▽ null, △ peak",
        is_simulated=device.is_simulated,
    )
    return figure


def load_sweeps(calibration: Calibration, raw: Mapping[str, npt.NDArray[Any]]) -> dict[int, Sweep]:
    """Return the sweeps in the raw data of a calibration, by modulator. Empty without raw data."""
    return {
        index: Sweep(
            index=index,
            words=raw[f"sweep_{index}_words"],
            levels=raw[f"sweep_{index}_levels"],
            partner_word=round(calibration.modulators[PARTNERS[index]].curve.peak),
            curve=modulator.curve,
        )
        for index, modulator in enumerate(calibration.modulators)
        if f"sweep_{index}_words" in raw
    }


def _draw_modulator(upper_axes: Any, lower_axes: Any, index: int, sweep: SweepLike) -> None:
    colour, curve = SERIES_COLOURS[index % len(SERIES_COLOURS)], sweep.curve
    curve_words = np.linspace(sweep.words.min(), sweep.words.max(), 600)
    upper_axes.plot(sweep.words, sweep.levels, ".", color=colour, markersize=3.5, alpha=0.5)
    label = f"{index}: V$_π$ = {curve.half_wave:,.0f} words, null at {format_signed(curve.null, 0)}"
    upper_axes.plot(curve_words, curve.compute_level(curve_words), color=colour, linewidth=1.4, label=label)
    for word, marker in ((curve.null, "v"), (curve.peak, "^")):
        if curve_words[0] <= word <= curve_words[-1]:
            upper_axes.plot(
                word,
                curve.compute_level(word),
                marker,
                color=colour,
                markerfacecolor="white",
                markersize=7,
                zorder=4,
            )
    residuals = 100 * (sweep.levels - curve.compute_level(sweep.words)) / curve.amplitude
    lower_axes.plot(sweep.words, residuals, ".", color=colour, markersize=3.5, alpha=0.7)


def waveform(waveform_data: Waveform, *, decoded_result: int | None = None) -> Plot:
    """Plot I of every readout, in counts, over the time since the start of the pulses.

    Bold lines are means, faint lines shots. With a calibration, shading marks the time of the pulses at the detector.
    The title shows `decoded_result`.
    """
    figure = make_figure()
    axes = figure.subplots()
    for index, readout in enumerate(waveform_data.origin.settings.readouts):
        colour, time_us = SERIES_COLOURS[index % len(SERIES_COLOURS)], waveform_data.time_us(index)
        for shot in waveform_data[index] if len(waveform_data[index]) > 1 else ():
            axes.plot(time_us, shot[0], color=colour, alpha=0.2, linewidth=0.8)
        mean = waveform_data[index].mean(axis=0)[0]
        axes.plot(time_us, mean, color=colour, linewidth=1.8, label=f"readout {readout}")
    axes.margins(x=0)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, max(bottom + HEADROOM * (top - bottom), bottom + 10))
    style_axes(axes, x_label="time after the start of the pulses (µs)", y_label="I (counts)")
    if waveform_data.calibration is not None:
        _shade_pulses(axes, waveform_data, waveform_data.calibration)
    add_legend(axes, loc="upper right")
    title = _format_operands(waveform_data.origin.settings, waveform_data.origin.words, decoded_result)
    add_heading(
        figure, title, _format_acquisition(waveform_data), is_simulated=waveform_data.device.is_simulated
    )
    return figure


def _shade_pulses(axes: Any, waveform_data: Waveform, calibration: Calibration) -> None:
    """Shade the time from the last modulator's arrival to the end of the first modulator's pulse."""
    arrival, tick_us = calibration.timing.arrival, calibration.timing.tick_ns * 1e-3
    start, end = max(arrival) * tick_us, min(arrival) * tick_us + waveform_data.origin.pulse_ns * 1e-3
    axes.axvspan(start, end, color=SHADE_COLOUR, zorder=0)
    axes.annotate(
        "the pulses’ light",
        ((start + end) / 2, 1),
        xytext=(0, -5),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=9,
        color=INK_COLOUR,
    )


def _format_operands(settings: Settings, words: tuple[int, ...], decoded_result: int | None) -> str:
    """Return a title like `100 × 50 / 255 = 20`, with the second pair only if lit, or the gain words."""
    if any(settings.values[modulator] is None for modulator in settings.channel_by_modulator):
        return f"gain words {', '.join(map(str, words))}"
    a, b, c, d = (value or 0 for value in settings.values)
    product = f"{a} × {b}" + (f" + {c} × {d}" if c or d else "")
    if decoded_result is None:
        return product
    return f"({product}) / 255 = {decoded_result}" if c or d else f"{product} / 255 = {decoded_result}"


def _format_acquisition(waveform_data: Waveform) -> str:
    settings = waveform_data.origin.settings
    shots = f"{settings.reps} shots" if settings.reps > 1 else "1 shot"
    averaging = f"{shots}, each the mean of {settings.soft_avgs} runs" if settings.soft_avgs > 1 else shots
    encoding = "calibrated" if waveform_data.calibration else "not calibrated: driven linearly"
    return f"{waveform_data.device.name} · {averaging} · {encoding}"
