"""Light through fibres and switches: a power in dBm, less the losses in dB on its way.

Powers in dBm and losses in dB add and subtract, because both are ten times a decimal logarithm
(dBm of a power against 1 mW, dB of a ratio of powers).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

DARK_FLOOR_DBM = -60.0
"""What a power monitor reads without light: its own noise."""


def attenuate_dbm(source_dbm: float, losses_db: Iterable[float], floor_dbm: float = DARK_FLOOR_DBM) -> float:
    """Return power that a monitor reads at the end of a path: source less all losses, never below the floor.

    By hand: a 0 dBm laser (1 mW), 0.3 dB of fibre, 1.2 dB through the switch, 0.3 dB of fibre leave
    0 - (0.3 + 1.2 + 0.3) = -1.8 dBm, which is 10 ** (-1.8 / 10) = 0.66 mW.

    >>> round(attenuate_dbm(0.0, [0.3, 1.2, 0.3]), 6)
    -1.8
    >>> attenuate_dbm(0.0, [70.0])
    -60.0
    """
    return max(source_dbm - math.fsum(losses_db), floor_dbm)


def milliwatt(power_dbm: float) -> float:
    """Return power in mW of a power in dBm.

    >>> milliwatt(0.0), round(milliwatt(-3.0103), 4)
    (1.0, 0.5)
    """
    return math.pow(10.0, power_dbm / 10.0)


@dataclass(frozen=True, slots=True)
class Attenuator:
    """Variable attenuator at a port: it takes away `loss_db`, and lets out `ceiling_dbm` at most.

    >>> Attenuator(loss_db=3.0).power_after_dbm(-2.0)
    -5.0
    >>> Attenuator(ceiling_dbm=-10.0).power_after_dbm(-2.0)
    -10.0
    >>> Attenuator(ceiling_dbm=-10.0).power_after_dbm(-12.0)
    -12.0
    """

    loss_db: float = 0.0
    ceiling_dbm: float = math.inf

    def power_after_dbm(self, power_dbm: float) -> float:
        """Return power that leaves when `power_dbm` enters."""
        return min(power_dbm - self.loss_db, self.ceiling_dbm)

    def with_extra_loss(self, loss_db: float) -> Attenuator:
        """Return this attenuator behind a further `loss_db`, such as a dirty cross-connect."""
        return Attenuator(self.loss_db + loss_db, self.ceiling_dbm)
