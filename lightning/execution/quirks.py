"""Departures of the published artifact, by which results of its emulator are had again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quirks:
    """Departures of the published artifact. All are off unless asked for; then results are those of the datapath.

    Two more are properties of a model: sums of the emulator do not wrap, and those of the datapath do (`wrap`); the
    emulator has an option to scale activations exactly (`perfect_scaling`).
    """

    last_layer_normalised: bool = False
    """The emulator normalises the last layer's results, too, as it does activations but with their signs; the datapath
    hands them out as they are. Equal classes, unless a small difference is shifted away."""
    signs_dropped: bool = False
    """Inputs are reduced to magnitudes before they are sent: a negative one counts as its positive."""


EMULATOR = Quirks(last_layer_normalised=True, signs_dropped=True)
"""As the published emulator computes."""
