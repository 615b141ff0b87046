"""Light through fibres and switches: power in dBm, minus losses in dB.

Losses in dB are subtracted from powers in dBm, because both are ten times a decimal logarithm: dBm the logarithm of a
power divided by 1 mW, and dB the logarithm of a ratio of powers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

DARK_FLOOR_DBM = -60.0
"""Reading of a power monitor without light: its own noise."""


def attenuate_dbm(source_dbm: float, losses_db: Iterable[float], floor_dbm: float = DARK_FLOOR_DBM) -> float:
    """Return the reading of a monitor at the end of a path, in dBm: source minus losses, but at least the floor.

    By hand: a laser of 0 dBm (1 mW), 0.3 dB of fibre, 1.2 dB through the switch and 0.3 dB of fibre give
    0 - (0.3 + 1.2 + 0.3) = -1.8 dBm, which is 10 ** (-1.8 / 10) = 0.66 mW.

    >>> round(attenuate_dbm(0.0, [0.3, 1.2, 0.3]), 6)
    -1.8
    >>> attenuate_dbm(0.0, [70.0])
    -60.0
    """
    return max(source_dbm - math.fsum(losses_db), floor_dbm)


def convert_dbm_to_milliwatt(power_dbm: float) -> float:
    """Convert a power from dBm to mW.

    >>> convert_dbm_to_milliwatt(0.0), round(convert_dbm_to_milliwatt(-3.0103), 4)
    (1.0, 0.5)
    """
    return math.pow(10.0, power_dbm / 10.0)


@dataclass(frozen=True, slots=True)
class Attenuator:
    """A variable attenuator at a port, with a fixed loss or a maximum output power, or both.

    >>> Attenuator(loss_db=3.0).compute_output_dbm(-2.0)
    -5.0
    >>> Attenuator(ceiling_dbm=-10.0).compute_output_dbm(-2.0)
    -10.0
    >>> Attenuator(ceiling_dbm=-10.0).compute_output_dbm(-12.0)
    -12.0
    """

    loss_db: float = 0.0
    ceiling_dbm: float = math.inf

    def compute_output_dbm(self, power_dbm: float) -> float:
        """Return the output power for an input power, in dBm."""
        return min(power_dbm - self.loss_db, self.ceiling_dbm)

    def with_extra_loss(self, loss_db: float) -> Attenuator:
        """Return this attenuator with an additional loss, for example of a dirty cross-connect."""
        return Attenuator(self.loss_db + loss_db, self.ceiling_dbm)
