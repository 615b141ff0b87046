"""The readouts of a layer in the form in which kernels read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.compiler.datapath.schedule import GroupSchedule, schedule_of
from lightning.compiler.hardware import Hardware
from lightning.compiler.model import PhotonicLayer


@dataclass(frozen=True)
class OrderedReadouts:
    """Of all groups. A place that stays dark names one term more than there are, whose weight is 0: no branch."""

    sizes: npt.NDArray[np.int32]
    """(groups, rows, terms + 1) magnitudes of weights."""
    order: npt.NDArray[np.uint32]
    """(groups, rows, readouts, wavelengths) the term in every place."""
    signs: npt.NDArray[np.int8]
    """(groups, rows, readouts) what each counts as; 0 beyond a row's last."""


def readouts_in_order(layer: PhotonicLayer, hardware: Hardware, *, dense: bool) -> OrderedReadouts:
    """Return the readouts of one pass, in order. `dense`: products whose weight is 0 are read, too."""
    schedules = schedule_of(layer, hardware, dense=dense)
    longest = max(each.signs.shape[1] for each in schedules)
    terms = layer.weights.shape[2]
    return OrderedReadouts(
        np.pad(np.abs(layer.weights).astype(np.int32), ((0, 0), (0, 0), (0, 1))),
        np.stack([_order(each, longest, terms) for each in schedules]),
        np.stack([_padded(each.signs, longest) for each in schedules]),
    )


def _order(schedule: GroupSchedule, longest: int, dark: int) -> npt.NDArray[np.uint32]:
    named = np.where(schedule.order < 0, dark, schedule.order).astype(np.uint32)
    return np.pad(named, ((0, 0), (0, longest - named.shape[1]), (0, 0)), constant_values=dark)


def _padded(signs: npt.NDArray[np.int8], longest: int) -> npt.NDArray[np.int8]:
    return np.pad(signs, ((0, 0), (0, longest - signs.shape[1])))
