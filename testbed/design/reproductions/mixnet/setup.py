"""Sizes of the reproduction. Only the number of NIC rates varies: formulas take no time."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.design.reproductions.mixnet.models import RATES_GBPS


@dataclass(frozen=True, slots=True)
class Scale:
    """Rates of a NIC in Gbit/s. Each has published results."""

    rates_gbps: tuple[int, ...]


PAPER = Scale(RATES_GBPS)
QUICK = Scale((100, 400))
"""Small scale that only tests that everything runs."""
