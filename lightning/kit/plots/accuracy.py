"""Plots of results: how far they are off, and each against the truth.

Accuracy in per cent is 100 - 100 * RMSE of the result normalised to 1 (`lightning.kit.calibration.accuracy`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.canvas import FAINT, INK, SERIES, Plot, headed, legend, plain, sheet, signed
from lightning.kit.calibration.accuracy import accuracy, rms_error, true_product
from lightning.kit.calibration.fringe import Floats
from lightning.kit.devices.identity import DeviceIdentity

BINS = 61


def error_histogram(
    results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike, device: DeviceIdentity
) -> Plot:
    """Plot how many results of a*b/255 are off by how much, in LSB, with a normal distribution fitted.

    `results` may be rounded or analogue; `a`, `b` are values of 0..255 (or signed), shaped as the results.
    """
    error = _errors(results, a, b)
    figure = sheet()
    axes = figure.subplots()
    mean, sigma = float(error.mean()), float(error.std())
    reach = max(float(np.abs(error).max()), 1e-3) * 1.02
    counts, edges, _ = axes.hist(error, bins=BINS, range=(-reach, reach), color=SERIES[0], alpha=0.55)
    if sigma > 0:
        fine = np.linspace(-reach, reach, 400)
        width = float(edges[1] - edges[0])
        bell = np.exp(-0.5 * ((fine - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
        axes.plot(fine, bell * error.size * width, color=INK, linewidth=1.3, label="normal distribution")
    axes.axvline(mean, color=INK, linewidth=1, linestyle=":", label=f"mean {signed(mean, 3)}")
    axes.set_ylim(0, 1.25 * float(np.max(counts)))
    axes.set_xlim(-reach, reach)
    plain(axes, x="error of the result (LSB)", y="results")
    legend(axes, loc="upper right")
    headed(figure, _verdict(results, a, b), _described(error, device), simulated=device.simulated)
    return figure


def constellation(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike, device: DeviceIdentity) -> Plot:
    """Plot every result against a*b/255: above on the line where it should be, below how far it is off.

    Arguments as for `error_histogram`.
    """
    truth = true_product(a, b).ravel()
    given, error = np.asarray(results, dtype=float).ravel(), _errors(results, a, b)
    figure = sheet(6.4, 6.4)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    ends = [min(0.0, float(truth.min())), max(255.0, float(truth.max()))]
    top.plot(ends, ends, color=FAINT, linewidth=1, zorder=1, label="exact")
    size = 9.0 if given.size <= 2_000 else 4.0
    alpha = float(np.clip(600 / given.size, 0.12, 0.8))
    top.scatter(truth, given, s=size, color=SERIES[0], alpha=alpha, linewidths=0, label="measured", zorder=2)
    bottom.axhline(0, color=FAINT, linewidth=1)
    bottom.scatter(truth, error, s=size, color=SERIES[0], alpha=alpha, linewidths=0)
    _bounded(bottom, error)
    plain(top, y="result of the light")
    plain(bottom, x="a × b / 255", y="error\n(LSB)")
    top.set_xlim(ends[0] - 5, ends[1] + 5)
    legend(top, loc="upper left")
    _opaque(top.get_legend())
    headed(figure, _verdict(results, a, b), _described(error, device), simulated=device.simulated)
    return figure


def _opaque(names: Any) -> None:
    """Make symbols of a legend visible, however faint the cloud of points is."""
    for handle in names.legend_handles:
        handle.set_alpha(1)


def _bounded(axes: Any, error: Floats) -> None:
    """Symmetric about zero, with the half step of rounding as two lines."""
    reach = max(1.2 * float(np.abs(error).max()), 0.8)
    axes.set_ylim(-reach, reach)
    for half in (-0.5, 0.5):
        axes.axhline(half, color=INK, linewidth=0.8, linestyle=":")


def _errors(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    found: Floats = np.asarray(results, dtype=float).ravel() - true_product(a, b).ravel()
    return found


def _verdict(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> str:
    return f"Accuracy {accuracy(results, a, b):.3f} %, error {rms_error(results, a, b):.3f} of 255 rms"


def _described(error: Floats, device: DeviceIdentity) -> str:
    return f"{device.name} · {error.size:,} products · largest error {float(np.abs(error).max()):.2f}"
