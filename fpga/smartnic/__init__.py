"""The photonic smartNIC: dense networks as the words of its memory and tables, and the exact model of its answers.

    program = NicProgram((model,))          the models that the NIC serves, by number
    pack_memory(program)                    the words of its memory
    compute_scores(model, image)            the answer, bit for bit

docs/reference/smartnic.md describes the NIC, docs/reference/inference-packets.md the packets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes

if TYPE_CHECKING:
    from fpga.smartnic.program import (
        NicLayer,
        NicModel,
        NicProgram,
        pack_layers,
        pack_look_up,
        pack_memory,
        pack_models,
    )
    from fpga.smartnic.reference import compute_scores, layer_results

__all__ = [
    "NicLayer",
    "NicModel",
    "NicProgram",
    "compute_scores",
    "layer_results",
    "pack_layers",
    "pack_look_up",
    "pack_memory",
    "pack_models",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(
        __name__,
        {
            "program": "NicLayer NicModel NicProgram pack_layers pack_look_up pack_memory pack_models",
            "reference": "compute_scores layer_results",
        },
    )
