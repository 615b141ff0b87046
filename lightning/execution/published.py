"""What the published emulator and datapath do otherwise than they should, each to be chosen by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Faults:
    """Of the published artifact (Lightning, SIGCOMM 2023). All are off unless asked for; results then are those of
    the datapath's rules as they are meant.
    """

    last_layer_shifted: bool = False
    """The emulator normalises the last layer's results, too: shifted so that the largest magnitude has its highest
    set bit in place 7, negative ones rounded down. The class stays the same unless small differences are lost."""
    signs_dropped: bool = False
    """Images are reduced to magnitudes before they are sent: a negative input counts as its positive."""
    exponent_of_ten: bool = False
    """The table of the log-softmax block holds 2206 for exp(10), which is 22026: a digit is missing."""


EMULATOR = Faults(last_layer_shifted=True, signs_dropped=True)
"""As `rtl/tb/lightning_emulator.py` of the artifact computes; its sums do not wrap (`CompiledModel.wrap` off)."""
