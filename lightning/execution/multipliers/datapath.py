"""Sums computed by a count-action datapath in a simulator or on a board, through `fpga.Datapath` and its registers.

The datapath (`photonic_dot` of the library) sends both operands of sixteen products at once, and sums the returned
products. The host simulates the light between the converters: `light_model` maps the magnitudes at the converters to
detector values. The host also applies the signs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import numpy.typing as npt

import fpga
from fpga import BusError, DatapathError, RegisterBus, WrongHardware
from fpga.bus import make_simulated_bus, make_verilated_bus
from fpga.count_action.model import Datapath
from lightning import errors
from lightning.compiler.datapath.program import (
    DATAPATH_LANE_COUNT,
    ProgramEntry,
    Segment,
    list_entries,
    make_program,
)
from lightning.compiler.datapath.schedule import count_passes
from lightning.compiler.model import CompiledModel, Integers, PhotonicLayer
from lightning.execution.interface import Activations, Keys

Integers64 = npt.NDArray[np.int64]
LightModel = Callable[[Integers64, Integers64], Integers64]
"""Returns the detector values (beats, lanes), 0 .. 255, for activations and magnitudes of weights."""

MAX_BEATS = 1 << 15
"""Maximum number of beats in one run of the driver, because it holds them in memory as Python integers."""
_SIMULATOR_SCHEMES = ("fastsim", "verilator")


def multiply_losslessly(activations: Integers64, magnitudes: Integers64) -> Integers64:
    """Return the detector values without noise and loss, as in the published core: `(a * b) >> 8`."""
    return activations * magnitudes >> 8


class DatapathMultiplier:
    """`Multiplier` on the datapath at an address.

    `fastsim://` and `verilator://` need no file, because the datapath is in the library. `pynq://...` is an address for
    `fpga.open_bus`, with a bitstream built from `photonic_dot`. Raise `CompileError` for a model compiled for other
    hardware, `AddressError` for an invalid address, `DeviceGone` if nothing answers there, and `ProgramError` if
    another datapath answers.
    """

    wraps = True
    """The hardware wraps sums to 16 bits itself, so wrapped sums cannot be counted."""

    def __init__(
        self,
        model: CompiledModel,
        address: str | RegisterBus = "fastsim://",
        *,
        light_model: LightModel = multiply_losslessly,
    ) -> None:
        program = make_program(model)
        self._light_model = light_model
        self._is_unfinished = False
        """True after an error inside a layer. The hardware may then hold a partial sum and needs a reset."""
        self._segments_by_pass = _group_by_pass(list_entries(model))
        self.identity = f"{address if isinstance(address, str) else 'bus'} photonic_dot {program.digest:08x}"
        """Address and digest of the hardware."""
        with _translate_errors(str(address)):
            bus = _open_bus(address, program.datapath) if isinstance(address, str) else address
            self._driver = fpga.Datapath(bus)
            self._load(program, owns_bus=isinstance(address, str))

    def compute_sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Integers:
        """Return sums (images, positions, groups, rows) of activations (images, positions, groups, terms).

        `keys` are ignored. Raise `DeviceGone` if the bus fails, `DeviceStuck` if beats are refused or lost.
        """
        image_count, position_count = activations.shape[:2]
        with _translate_errors(self.identity):
            if self._is_unfinished:
                self._driver.reset()
            self._is_unfinished = True
            image_sums = [
                self._sum_image(layer, image.reshape(position_count, -1).astype(np.int64))
                for image in activations
            ]
            self._is_unfinished = False
        return (
            np.array(image_sums, np.int64)
            .reshape(image_count, position_count, *layer.weights.shape[:2])
            .astype(np.int32)
        )

    def read_counts(self) -> dict[str, int]:
        """Return the counts of finished `layers` and `inferences` since the datapath was loaded."""
        with _translate_errors(self.identity):
            outputs = self._driver.outputs()
        return {"layers": outputs["layers.next"], "inferences": outputs["layers.finished"]}

    def _load(self, program: fpga.Program, *, owns_bus: bool) -> None:
        """Load the program; if that fails, close a bus that was opened here."""
        try:
            self._driver.load(program)
        except BaseException:
            if owns_bus:
                self._driver.close()
            raise

    def close(self) -> None:
        """Release the bus."""
        self._driver.close()

    def _sum_image(self, layer: PhotonicLayer, activations: Integers64) -> Integers64:
        """Return the sums of an image, (positions, groups * rows). Negative activations take a second pass."""
        sums = self._sum_pass(layer, 0, np.maximum(activations, 0))
        return (
            sums - self._sum_pass(layer, 1, np.maximum(-activations, 0)) if count_passes(layer) == 2 else sums
        )

    def _sum_pass(self, layer: PhotonicLayer, pass_number: int, magnitudes: Integers64) -> Integers64:
        sums = np.zeros((len(magnitudes), layer.weights.shape[0] * layer.weights.shape[1]), np.int64)
        # Dark lanes read the last column, which is 0.
        padded_magnitudes = np.pad(magnitudes, ((0, 0), (0, 1)))
        for index, segment in self._segments_by_pass.get((layer.name, pass_number), ()):
            self._driver.use(index)
            vectors_per_run = max(1, MAX_BEATS // (segment.beats_per_row * len(segment.row_indices)))
            for start in range(0, len(padded_magnitudes), vectors_per_run):
                chunk = slice(start, start + vectors_per_run)
                sums[chunk, segment.row_indices] = self._multiply_segment(segment, padded_magnitudes[chunk])
        return sums

    def _multiply_segment(self, segment: Segment, padded_magnitudes: Integers64) -> Integers64:
        """Send operands, then detector values; return the dot products (positions, rows of the segment)."""
        activations = padded_magnitudes[:, segment.term_indices]
        weights = np.broadcast_to(segment.weights, activations.shape)
        operands = np.stack(
            [activations.reshape(-1, DATAPATH_LANE_COUNT), np.abs(weights).reshape(-1, DATAPATH_LANE_COUNT)],
            axis=1,
        )
        converted_operands = self._run_beats(
            {"operand": operands}, "converters.light", len(operands)
        ).reshape(operands.shape)
        detector_values = self._light_model(converted_operands[:, 0], converted_operands[:, 1])
        signed_products = np.where(
            weights.reshape(-1, DATAPATH_LANE_COUNT) < 0, -detector_values, detector_values
        )
        dot_products = self._run_beats(
            {"product": signed_products}, "adder.dot", len(operands) // segment.beats_per_row
        )
        return dot_products.reshape(len(padded_magnitudes), -1)

    def _run_beats(self, beats: dict[str, Any], output: str, expected_count: int) -> Integers64:
        output_beats = self._driver.run(beats)[output]
        if len(output_beats) != expected_count:
            raise DatapathError(f"{len(output_beats)} beats came out of {output} instead of {expected_count}")
        return output_beats


def _group_by_pass(entries: Iterable[ProgramEntry]) -> dict[tuple[str, int], list[tuple[int, Segment]]]:
    """Return the segments by layer and pass, each with its place in the program."""
    segments_by_pass: dict[tuple[str, int], list[tuple[int, Segment]]] = {}
    for index, entry in enumerate(entries):
        segments_by_pass.setdefault((entry.layer.name, entry.pass_number), []).append((index, entry.segment))
    return segments_by_pass


def _open_bus(address: str, datapath: Datapath) -> RegisterBus:
    """Return the bus at an address. A simulator without a file simulates this datapath. Raise `AddressError`."""
    split_url = urlsplit(address)
    try:
        if split_url.scheme not in _SIMULATOR_SCHEMES or split_url.netloc or split_url.path:
            return fpga.open_bus(address)
        if split_url.scheme == "verilator":
            return make_verilated_bus(datapath)
        return make_simulated_bus(datapath, dict(parse_qsl(split_url.query)).get("engine", "fast"))
    except (OSError, ValueError) as error:
        raise errors.AddressError(
            str(error).rstrip("."), hint="Give fastsim://, verilator:// or pynq://HOST/0xBASE"
        ) from error


@contextmanager
def _translate_errors(device: str) -> Iterator[None]:
    """Raise errors of the driver as errors of this package."""
    try:
        yield
    except WrongHardware as error:
        raise errors.ProgramError(str(error).rstrip("."), device=device) from error
    except DatapathError as error:
        raise errors.DeviceStuck(str(error).rstrip("."), device=device) from error
    except BusError as error:
        raise errors.DeviceGone(str(error).rstrip("."), device=device) from error
