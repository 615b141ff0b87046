"""Quirks of the published artifact, which reproduce the results of its emulator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quirks:
    """Quirks of the published emulator. By default all are off, which gives the results of the datapath.

    Two more differences are properties of a model: sums wrap in the datapath but not in the emulator (`wrap`), and the
    emulator can scale activations exactly (`perfect_scaling`).
    """

    last_layer_normalised: bool = False
    """True to normalise the last layer's results with their signs. The datapath returns them unchanged. Classes are
    equal, unless a shift removes a small difference."""
    signs_dropped: bool = False
    """True to replace inputs by their magnitudes."""


EMULATOR = Quirks(last_layer_normalised=True, signs_dropped=True)
"""The quirks of the published emulator."""
