"""The compiler: it quantises a trained network to integers for light, tiles it, and writes an `fpga.Program`.

    from lightning.compiler import Options, compile_network, load_model, save_model
    model = compile_network(network, samples, Options(...))     # `samples`: raw inputs, for ranges
    save_model(model, "model.lng"); model = load_model("model.lng")

| module | purpose |
|---|---|
| `model`, `options` | `CompiledModel`, `PhotonicLayer`, `Geometry`, `Hardware`; options of compilation |
| `compilation` | `compile_network`; `load_or_compile` for any file that a command accepts |
| `lowering` | layers as rows of products, and their sums |
| `measured` | the noise of the prototype |
| `schemes` | the two schemes of quantisation, `published` and `scaled` |
| `datapath` | schedule, cycles and memory plan; `make_program` |
| `chain` | networks that are chains of dense layers |
| `smartnic` | `make_nic_model`: a chain of dense layers for the photonic smartNIC |
| `lng_file` | the `.lng` file |
| `explain` | `report`: which nodes are photonic, and what they cost |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes

if TYPE_CHECKING:
    from lightning.compiler.compilation import compile_network, load_or_compile
    from lightning.compiler.datapath.memory import memory_plan
    from lightning.compiler.datapath.program import make_program
    from lightning.compiler.datapath.schedule import (
        compute_layer_work,
        count_layer_cycles,
        count_layer_readouts,
        count_model_cycles,
        schedule_layer,
    )
    from lightning.compiler.explain import Report, report
    from lightning.compiler.lng_file import load_model, model_hash, save_model
    from lightning.compiler.model import CompiledModel, Geometry, Hardware, LayerWork, PhotonicLayer
    from lightning.compiler.options import Options
    from lightning.compiler.smartnic import make_nic_model

__all__ = [
    "CompiledModel",
    "Geometry",
    "Hardware",
    "LayerWork",
    "Options",
    "PhotonicLayer",
    "Report",
    "compile_network",
    "compute_layer_work",
    "count_layer_cycles",
    "count_layer_readouts",
    "count_model_cycles",
    "load_model",
    "load_or_compile",
    "make_nic_model",
    "make_program",
    "memory_plan",
    "model_hash",
    "report",
    "save_model",
    "schedule_layer",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(
        __name__,
        {
            "lng_file": "load_model model_hash save_model",
            "compilation": "compile_network load_or_compile",
            "explain": "Report report",
            "datapath.memory": "memory_plan",
            "model": "CompiledModel Geometry Hardware LayerWork PhotonicLayer",
            "options": "Options",
            "datapath.program": "make_program",
            "smartnic": "make_nic_model",
            "datapath.schedule": (
                "count_layer_cycles count_model_cycles count_layer_readouts schedule_layer compute_layer_work"
            ),
        },
    )
