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

_PREFIXES = tuple(
    (10.0 ** (-3 * step), prefix) for step, prefix in enumerate(("", "m", "u", "n", "p", "f", "a", "z"))
)


def in_joules(value: float) -> str:
    """Return an energy with a prefix.

    >>> in_joules(1.5e-12), in_joules(0.0)
    ('1.5 pJ', '0 J')
    """
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{value / factor:.3g} {prefix}J"
    return "0 J" if value == 0 else f"{value:.3g} J"
