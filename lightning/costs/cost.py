"""Work, time and energy of one image, line by line."""

from __future__ import annotations

from dataclasses import dataclass

from lightning.compiler.datapath.schedule import work_of
from lightning.compiler.model import CompiledModel, LayerWork
from lightning.costs.presets import PRESETS, Count, Figure, Group, Preset
from lightning.errors import OutOfRange
from lightning.networks.work import macs_of

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


@dataclass(frozen=True, slots=True)
class Line:
    """One part: how many of what, how much each."""

    name: str
    group: Group
    count: float
    per: Count
    each: Figure

    @property
    def joules(self) -> float:
        """Energy of this part for one image."""
        return self.count * self.each.value


@dataclass(frozen=True)
class Costs:
    """Energy and latency of one image: batch 1, nothing overlaps."""

    preset: Preset
    clock_hz: float
    layers: dict[str, LayerWork]
    work: Work
    lines: tuple[Line, ...]

    @property
    def latency_s(self) -> float:
        """Cycles of all layers, as the datapath itemises them, over the clock; digital layers are not in it."""
        return self.work.seconds

    @property
    def joules_per_image(self) -> float:
        """Energy of all parts for one image."""
        return sum(line.joules for line in self.lines)

    @property
    def joules_without_converters(self) -> float:
        """Energy of one image without converters, which is what optical figures often quote."""
        return sum(line.joules for line in self.lines if line.group != "converters")

    @property
    def joules_per_mac(self) -> float:
        """Over the multiply-accumulates that the network asks for on photonics, zeros included."""
        return self.joules_per_image / self.work.macs if self.work.macs else 0.0

    @property
    def images_per_s(self) -> float:
        """Images per second, one at a time; infinite if no layer is photonic."""
        return 1.0 / self.latency_s if self.latency_s else float("inf")

    def joules_of(self, group: Group) -> float:
        """Return the energy of one group of parts."""
        return sum(line.joules for line in self.lines if line.group == group)


def costs_of(model: CompiledModel, preset: str = "chip") -> Costs:
    """Return what one image costs with a preset's parts, at the clock of the model's hardware.

    Raises `OutOfRange` for a preset that is not there.
    """
    if preset not in PRESETS:
        raise OutOfRange(f"no preset {preset!r}", hint=f"Choose one of {', '.join(PRESETS)}")
    chosen = PRESETS[preset]
    digital = sum(macs for name, macs in macs_of(model.network).items() if name not in model.layers)
    work = work_of_model(model, digital)
    lines = tuple(
        Line(part.name, part.group, getattr(work, part.per), part.per, part.each) for part in chosen.parts
    )
    return Costs(chosen, model.hardware.clock_hz, layer_works(model), work, lines)
