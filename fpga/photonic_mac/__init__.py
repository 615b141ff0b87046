"""The photonic multiply-accumulate datapath: models of its arithmetic and of its cycles.

    quantise(weights)                       a network in the integers of the hardware
    layer_results(network, images)          the results of every layer, bit-exact
    calculate_cycles(shapes, timing)               the cycles of an inference, by layer and cause
    python -m fpga.photonic_mac explain     print these cycles, for LeNet-300-100 by default

docs/reference/photonic-mac.md describes blocks, arithmetic and cycles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes

if TYPE_CHECKING:
    from fpga.photonic_mac.cycles import LayerCycles, Timing, calculate_cycles, sum_cycles
    from fpga.photonic_mac.network import Network, Optics, accuracy, layer_results, quantise

__all__ = [
    "LayerCycles",
    "Network",
    "Optics",
    "Timing",
    "accuracy",
    "calculate_cycles",
    "layer_results",
    "quantise",
    "sum_cycles",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(
        __name__,
        {
            "cycles": "LayerCycles Timing calculate_cycles sum_cycles",
            "network": "Network Optics accuracy layer_results quantise",
        },
    )
