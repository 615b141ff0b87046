"""Numbers that other people measured or claimed, never without saying who."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, its unit, and where it comes from; `assumed` where the source leaves room."""

    value: float
    unit: str
    source: str
    assumed: str = ""
    """What is assumed in using it so; empty where nothing is."""


TALK = "Lightning's talk, table of the prototype's powers"
SIMPHONY = "SimPhony (ScopeX, DAC 2025), library of devices"
HOROWITZ = "M. Horowitz, Computing's energy problem, ISSCC 2014, figure 1.1.9 (45 nm, 0.9 V)"
LIGHTNING_ENERGY = "Lightning (SIGCOMM 2023) artifact, simulation/models.py"
