"""Quirks of the published artifact, which reproduce the results of its emulator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quirks:
    """Quirks of the published emulator. All are off by default, which gives the results of the datapath.

    Two more are properties of a model: sums wrap in the datapath but not in the emulator (`wrap`), and the emulator has
    an option to scale activations exactly (`perfect_scaling`).
    """

    last_layer_normalised: bool = False
    """The emulator also normalises the last layer's results, with their signs; the datapath returns them unchanged.
    Classes are equal, unless a small difference is shifted away."""
    signs_dropped: bool = False
    """Inputs are replaced by their magnitudes before they are sent."""


EMULATOR = Quirks(last_layer_normalised=True, signs_dropped=True)
"""The quirks of the published emulator."""
