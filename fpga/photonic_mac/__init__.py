"""The photonic multiply-accumulate datapath: a model of its numbers, of its cycles, and the hardware itself.

    quantise(weights)                       a network in the integers that the hardware computes in
    layer_results(network, images)          what every layer gives, bit by bit as the hardware
    cycles_of(network, timing)              what an inference costs, line by line
    hardware.loopback_design()              the SystemVerilog, for `fpga.hdl`
    python -m fpga.photonic_mac explain     the same, printed for LeNet-300-100

Blocks, number path and cycles: docs/reference/photonic-mac.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import lazy_names

if TYPE_CHECKING:
    from fpga.photonic_mac.cycles import LayerCycles, Timing, cycles_of, total_cycles
    from fpga.photonic_mac.network import Network, Optics, accuracy, layer_results, quantise

__all__ = [
    "LayerCycles",
    "Network",
    "Optics",
    "Timing",
    "accuracy",
    "cycles_of",
    "layer_results",
    "quantise",
    "total_cycles",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "cycles": "LayerCycles Timing cycles_of total_cycles",
            "network": "Network Optics accuracy layer_results quantise",
        },
    )
