"""A compiled model as an `fpga.Program`: targets of the count-action datapath `photonic_dot`, layer by layer.

Names of targets are all that is known here; where their registers lie is known to the driver alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from fpga.program import Layer, Program, ProgramError
from lightning.compiler.cycles import work_of
from lightning.compiler.hardware import Hardware
from lightning.compiler.model import CompiledModel, PhotonicLayer
from lightning.compiler.schedule import passes_of
from lightning.errors import CompileError

DATAPATH = "photonic_dot"
"""In the library that comes with the language (`fpga/library`)."""
LANES = 16
_WRAPPING, _WIDE = 16, 32


def program_of(model: CompiledModel) -> Program:
    """One layer of targets for every photonic layer and pass, in the order of execution.

    Raises `CompileError` for hardware that the datapath is not made for, and for a layer too large for its counters.
    """
    _check_hardware(model.hardware)
    from fpga.photonic_mac.control import library_datapath

    width = _WRAPPING if model.wrap else _WIDE
    datapath = library_datapath(DATAPATH, {"width": width})
    runs = [(name, layer) for name, layer in ordered_layers(model) for _ in range(passes_of(layer))]
    try:
        return Program(datapath, tuple(_targets(layer, model.hardware, len(runs)) for _, layer in runs))
    except ProgramError as error:
        raise CompileError(
            f"the datapath cannot count a layer of {model.network.name}: {error}",
            cure="Take a smaller network, or run it with --fidelity exact or noisy",
        ) from error


def ordered_layers(model: CompiledModel) -> Iterator[tuple[str, PhotonicLayer]]:
    """Photonic layers in the order of execution, whatever the order in which they are kept."""
    for node in model.network.nodes:
        if node.name in model.layers:
            yield node.name, model.layers[node.name]


def _targets(layer: PhotonicLayer, hardware: Hardware, runs: int) -> Layer:
    beats = work_of(layer, hardware).beats // passes_of(layer)
    sums = layer.positions * layer.bias.size
    return {"adder.beats": beats // sums, "adder.products": beats, "layers.layers": runs}


def _check_hardware(hardware: Hardware) -> None:
    wanted = (LANES, 1, 1, False)
    given = (hardware.lanes, hardware.wavelengths, hardware.cores, hardware.skip_zeros)
    if given != wanted:
        raise CompileError(
            f"the datapath {DATAPATH} has {LANES} lanes, 1 wavelength, 1 core, and sends every product; the model is"
            f" compiled for {hardware.lanes} lanes, {hardware.wavelengths} wavelengths, {hardware.cores} cores"
            f"{', and zeros left out' if hardware.skip_zeros else ''}",
            cure="Compile it again without --lanes, --wavelengths, --cores and --skip-zeros",
        )
