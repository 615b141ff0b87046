"""A compiled model as an `fpga.Program`: targets of the count-action datapath `photonic_dot`, layer by layer.

Names of targets are all that is known here; where their registers lie is known to the driver alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fpga.program import Layer, Program, ProgramError
from lightning.compiler.datapath.schedule import passes_of
from lightning.compiler.datapath.segments import Segment, segments_of
from lightning.compiler.hardware import Hardware
from lightning.compiler.model import CompiledModel, PhotonicLayer
from lightning.errors import CompileError
from lightning.optional import needed

DATAPATH = "photonic_dot"
"""In the library that comes with the language (`fpga/library`)."""
LANES = 16
_WRAPPING, _WIDE = 16, 32


@dataclass(frozen=True)
class Sending:
    """One entry of the program: a segment of rows in one pass of one layer."""

    layer: PhotonicLayer
    passage: int
    """0, or 1 for the negative part of activations."""
    segment: Segment
    products: int
    """Beats of the whole pass of this layer."""


def program_of(model: CompiledModel) -> Program:
    """Return the targets of everything that `sendings_of` lists, in its order.

    Raises `CompileError` for hardware that the datapath is not made for, and for a layer too large for its counters.
    """
    _check_hardware(model.hardware)
    # The language's parser.
    needed("lark", "to read the library of count-action modules")
    from fpga.photonic_mac.control import library_datapath

    width = _WRAPPING if model.wrap else _WIDE
    datapath = library_datapath(DATAPATH, {"width": width})
    sendings = tuple(sendings_of(model))
    passes = len({(each.layer.name, each.passage) for each in sendings})
    try:
        return Program(datapath, tuple(_targets(each, passes) for each in sendings) or ({},))
    except ProgramError as error:
        raise CompileError(
            f"the datapath cannot count a layer of {model.network.name}: {error}",
            hint="Take a smaller network, or run it with --fidelity exact or noisy",
        ) from error


def sendings_of(model: CompiledModel) -> Iterator[Sending]:
    """Return what is sent for one image: layer by layer, pass by pass, segment by segment."""
    for _, layer in ordered_layers(model):
        segments = segments_of(layer, model.hardware)
        products = layer.positions * sum(each.beats * len(each.rows) for each in segments)
        for passage in range(passes_of(layer)):
            for segment in segments:
                yield Sending(layer, passage, segment, products)


def ordered_layers(model: CompiledModel) -> Iterator[tuple[str, PhotonicLayer]]:
    """Photonic layers in the order of execution, whatever the order in which they are kept."""
    for node in model.network.nodes:
        if node.name in model.layers:
            yield node.name, model.layers[node.name]


def _targets(sending: Sending, passes: int) -> Layer:
    return {
        "adder.beats": sending.segment.beats,
        "adder.products": sending.products,
        "layers.layers": passes,
    }


def _check_hardware(hardware: Hardware) -> None:
    if (hardware.lanes, hardware.wavelengths, hardware.cores) != (LANES, 1, 1):
        raise CompileError(
            f"the datapath {DATAPATH} has {LANES} lanes, 1 wavelength and 1 core; the model is compiled for"
            f" {hardware.lanes} lanes, {hardware.wavelengths} wavelengths and {hardware.cores} cores",
            hint="Compile it again without --lanes, --wavelengths and --cores",
        )
