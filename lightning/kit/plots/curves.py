"""Sweeps of modulators with the curves through them, and what the curves leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lightning.canvas import FAINT, SERIES, Plot, headed, legend, plain, sheet, signed
from lightning.kit.calibration import Calibration
from lightning.kit.calibration.fringe import Floats, Fringe
from lightning.kit.calibration.measurement.transfer import PARTNER, Sweep
from lightning.kit.devices.identity import DeviceIdentity


class Swept(Protocol):
    """A sweep as `lightning.kit.calibration.measurement.transfer` makes it."""

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
        """Return what was fitted."""
        ...


def transfer_curves(sweeps: Mapping[int, Swept], device: DeviceIdentity) -> Plot:
    """Plot the levels of every swept modulator with its sin² curve, and residuals in per cent of its swing.

    `sweeps` is by number of the modulator, as `transfer.sweep_all` gives it, or `kept_sweeps`.
    """
    figure = sheet(7.2, 5.2)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.6, 1))
    for index, sweep in sorted(sweeps.items()):
        _drawn(top, bottom, index, sweep)
    bottom.axhline(0, color=FAINT, linewidth=0.8)
    plain(top, y="level above idle (counts)")
    plain(bottom, x="gain word", y="residual\n(% of swing)")
    top.margins(x=0.01)
    for axis in (top.yaxis, bottom.xaxis):
        axis.set_major_formatter("{x:,.0f}")
    legend(top, loc="upper left", ncols=1)
    numbers = ", ".join(str(index) for index in sorted(sweeps))
    plural = "s" if len(sweeps) > 1 else ""
    headed(
        figure,
        f"Transfer curve{plural} of modulator{plural} {numbers}",
        f"{device.name} · dots: measured, lines: sin² fits, ▽ null, △ peak",
        simulated=device.simulated,
    )
    return figure


def kept_sweeps(calibration: Calibration, raw: Mapping[str, npt.NDArray[Any]]) -> dict[int, Sweep]:
    """Return the sweeps of a calibration, from the raw data kept with it; empty where none were kept."""
    return {
        index: Sweep(
            index=index,
            words=raw[f"sweep_{index}_words"],
            levels=raw[f"sweep_{index}_levels"],
            partner_word=round(calibration.modulators[PARTNER[index]].curve.peak),
            curve=modulator.curve,
        )
        for index, modulator in enumerate(calibration.modulators)
        if f"sweep_{index}_words" in raw
    }


def _drawn(top: Any, bottom: Any, index: int, sweep: Swept) -> None:
    colour, curve = SERIES[index % len(SERIES)], sweep.curve
    fine = np.linspace(sweep.words.min(), sweep.words.max(), 600)
    top.plot(sweep.words, sweep.levels, ".", color=colour, markersize=3.5, alpha=0.5)
    name = f"{index}: V$_π$ = {curve.half_wave:,.0f} words, null at {signed(curve.null, 0)}"
    top.plot(fine, curve.level(fine), color=colour, linewidth=1.4, label=name)
    for word, mark in ((curve.null, "v"), (curve.peak, "^")):
        if fine[0] <= word <= fine[-1]:
            top.plot(
                word, curve.level(word), mark, color=colour, markerfacecolor="white", markersize=7, zorder=4
            )
    left = 100 * (sweep.levels - curve.level(sweep.words)) / curve.amplitude
    bottom.plot(sweep.words, left, ".", color=colour, markersize=3.5, alpha=0.7)
