"""Work of the parts of a system for one image."""

from __future__ import annotations

from dataclasses import dataclass

from lightning.compiler.datapath.cycles import work_of
from lightning.compiler.hardware import LayerWork
from lightning.compiler.model import CompiledModel

MODULATORS = 2
"""In series for a product: activation and weight."""


@dataclass(frozen=True, slots=True)
class Work:
    """Counts for one image."""

    cycles: int
    seconds: float
    core_seconds: float
    wavelength_seconds: float
    dac_samples: int
    """Of all converters, preambles and pauses included: they do not rest while a layer lasts."""
    adc_samples: int
    additions: int
    digital_macs: int
    memory_bytes: int
    macs: int
    """Of the network on photonics, whatever was sent for them."""


def layer_works(model: CompiledModel) -> dict[str, LayerWork]:
    """Return the work by the name of the layer, in the order of the network."""
    order = [node.name for node in model.network.nodes if node.name in model.layers]
    return {name: work_of(model.layers[name], model.hardware) for name in order}


def work_of_model(model: CompiledModel, digital_macs: int = 0) -> Work:
    """Return the sum over layers, at the clock of the model's hardware."""
    works = layer_works(model).values()
    hardware = model.hardware
    cycles = sum(work.cycles for work in works)
    seconds = cycles / hardware.clock_hz
    samples = cycles * hardware.lanes * hardware.cores
    return Work(
        cycles=cycles,
        seconds=seconds,
        core_seconds=seconds * hardware.cores,
        wavelength_seconds=seconds * hardware.cores * hardware.wavelengths,
        dac_samples=samples * MODULATORS * hardware.wavelengths,
        adc_samples=samples,
        additions=sum(work.readouts for work in works),
        digital_macs=digital_macs,
        memory_bytes=MODULATORS * sum(work.products for work in works),
        macs=sum(work.macs for work in works),
    )
