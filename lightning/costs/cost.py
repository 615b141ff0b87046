"""Work, latency and energy of one image, with one line per part of the energy."""

from __future__ import annotations

from dataclasses import dataclass

from lightning.compiler.datapath.schedule import compute_layer_work
from lightning.compiler.model import CompiledModel, LayerWork
from lightning.costs.presets import PRESETS, Count, Figure, PartGroup, Preset
from lightning.errors import OutOfRange
from lightning.networks.work import count_macs

MODULATORS_PER_PRODUCT = 2
"""Modulators in series for a product: one for the activation, one for the weight. Each encodes one byte."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of the hardware for one image."""

    cycles: int
    seconds: float
    core_seconds: float
    wavelength_seconds: float
    dac_samples: int
    """Samples of all D/A converters. They run for the whole layer, so preambles and pauses count."""
    adc_samples: int
    additions: int
    digital_macs: int
    memory_bytes: int
    macs: int
    """Multiply-accumulates of the photonic layers. Zero weights count, and several passes count once."""


def compute_layer_works(model: CompiledModel) -> dict[str, LayerWork]:
    """Return the work of each photonic layer by name, in the order of the network."""
    layer_names = [node.name for node in model.network.nodes if node.name in model.layers]
    return {name: compute_layer_work(model.layers[name], model.hardware) for name in layer_names}


def sum_work(model: CompiledModel, digital_macs: int = 0) -> Work:
    """Return the total work of the photonic layers at the clock of the model's hardware.

    `digital_macs` are the multiply-accumulates of the digital layers.
    """
    works = compute_layer_works(model).values()
    hardware = model.hardware
    cycles = sum(work.cycles for work in works)
    seconds = cycles / hardware.clock_hz
    sample_count = cycles * hardware.lanes * hardware.cores
    return Work(
        cycles=cycles,
        seconds=seconds,
        core_seconds=seconds * hardware.cores,
        wavelength_seconds=seconds * hardware.cores * hardware.wavelengths,
        dac_samples=sample_count * MODULATORS_PER_PRODUCT * hardware.wavelengths,
        adc_samples=sample_count,
        additions=sum(work.readouts for work in works),
        digital_macs=digital_macs,
        memory_bytes=MODULATORS_PER_PRODUCT * sum(work.products for work in works),
        macs=sum(work.macs for work in works),
    )


@dataclass(frozen=True, slots=True)
class Line:
    """Energy of one part: `count` units of `counted_work`, and the energy of each unit."""

    name: str
    group: PartGroup
    count: float
    counted_work: Count
    unit_energy: Figure

    @property
    def joules(self) -> float:
        """Energy of this part for one image."""
        return self.count * self.unit_energy.value


@dataclass(frozen=True)
class Costs:
    """Energy and latency of one image, in a batch of 1 without overlap of layers."""

    preset: Preset
    clock_hz: float
    layers: dict[str, LayerWork]
    work: Work
    lines: tuple[Line, ...]

    @property
    def latency_s(self) -> float:
        """Time of all photonic layers, without digital layers."""
        return self.work.seconds

    @property
    def joules_per_image(self) -> float:
        """Energy of all parts for one image."""
        return sum(line.joules for line in self.lines)

    @property
    def joules_without_converters(self) -> float:
        """Energy of one image without converters, as optical publications often quote it."""
        return sum(line.joules for line in self.lines if line.group != "converters")

    @property
    def joules_per_mac(self) -> float:
        """Energy of one multiply-accumulate of the photonic layers, including zero weights; 0 without any."""
        return self.joules_per_image / self.work.macs if self.work.macs else 0.0

    @property
    def images_per_s(self) -> float:
        """Images per second without overlap; infinite if no layer is photonic."""
        return 1.0 / self.latency_s if self.latency_s else float("inf")

    def compute_joules(self, group: PartGroup) -> float:
        """Return the energy of one group of parts."""
        return sum(line.joules for line in self.lines if line.group == group)


def estimate_costs(model: CompiledModel, preset: str = "chip") -> Costs:
    """Return the costs of one image with the parts of a preset, at the clock of the model's hardware.

    Raise `OutOfRange` for an unknown preset.
    """
    if preset not in PRESETS:
        raise OutOfRange(f"preset {preset!r} is not known", hint=f"Choose one of {', '.join(PRESETS)}")
    chosen_preset = PRESETS[preset]
    digital_macs = sum(
        mac_count for name, mac_count in count_macs(model.network).items() if name not in model.layers
    )
    work = sum_work(model, digital_macs)
    lines = tuple(
        Line(part.name, part.group, getattr(work, part.work_kind), part.work_kind, part.unit_energy)
        for part in chosen_preset.parts
    )
    return Costs(chosen_preset, model.hardware.clock_hz, compute_layer_works(model), work, lines)
