"""Sums by a count-action datapath in a simulator or on a board, through `fpga.Datapath` and its registers.

The datapath (`photonic_dot` of the library) sends both operands of sixteen products in step, and adds up what comes
back. What lies between its converters, light, is simulated on the host, below the wire: `light` takes the magnitudes
that left the converters and gives what the detector sees. Signs are put back on the host.
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
from lightning.compiler.datapath.program import LANES, Segment, Sending, program_of, sendings_of
from lightning.compiler.datapath.schedule import passes_of
from lightning.compiler.model import CompiledModel, Integers, PhotonicLayer
from lightning.execution.interface import Activations, Keys

Whole = npt.NDArray[np.int64]
Light = Callable[[Whole, Whole], Whole]
"""(beats, lanes) what the detector sees, 0 .. 255, of as many activations and magnitudes of weights."""

MOST_BEATS = 1 << 15
"""Pushed in one run of the driver: they wait in memory as Python's integers."""
_OWN = ("fastsim", "verilator")


def lossless(activations: Whole, magnitudes: Whole) -> Whole:
    """Light without noise and loss, as the published core: `(a * b) >> 8`."""
    return activations * magnitudes >> 8


class DatapathMultiplier:
    """`Multiplier` on the datapath at an address.

    `fastsim://` and `verilator://` need no file, as the datapath is the library's; `pynq://...` is an address as
    `fpga.open_bus` takes it, of a bitstream made of `photonic_dot`. Raises `CompileError` for a model of other
    hardware, `AddressError` for an address that is none, `DeviceGone` when nothing answers there, and `ProgramError`
    when another datapath does.
    """

    wraps = True
    """With `wrap` sums come as the hardware's 16 bits hold them: nobody sees which of them wrapped."""

    def __init__(
        self, model: CompiledModel, address: str | RegisterBus = "fastsim://", *, light: Light = lossless
    ) -> None:
        program = program_of(model)
        self._light = light
        self._unfinished = False
        """Something went wrong in the middle of a layer: there may be half a sum in the hardware."""
        self._sendings = _by_pass(sendings_of(model))
        self.identity = f"{address if isinstance(address, str) else 'bus'} photonic_dot {program.digest:08x}"
        """Which hardware this is."""
        with _translate_errors(str(address)):
            bus = _open_bus(address, program.datapath) if isinstance(address, str) else address
            self._driver = fpga.Datapath(bus)
            self._load(program, opened_here=isinstance(address, str))

    def sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Integers:
        """Return sums (images, positions, groups, rows) of activations (images, positions, groups, terms).

        `keys` do not matter. Raises `DeviceGone` when the bus fails, `DeviceStuck` when beats are not taken
        or get lost.
        """
        images, positions = activations.shape[:2]
        with _translate_errors(self.identity):
            if self._unfinished:
                self._driver.reset()
            self._unfinished = True
            found = [self._image(layer, each.reshape(positions, -1).astype(np.int64)) for each in activations]
            self._unfinished = False
        return np.array(found, np.int64).reshape(images, positions, *layer.weights.shape[:2]).astype(np.int32)

    def counts(self) -> dict[str, int]:
        """Return what the datapath counted since it was loaded: `layers` that were finished, and `inferences`."""
        with _translate_errors(self.identity):
            seen = self._driver.outputs()
        return {"layers": seen["layers.next"], "inferences": seen["layers.finished"]}

    def _load(self, program: fpga.Program, *, opened_here: bool) -> None:
        """Have the datapath take the program; let go of a bus that nobody else holds when it does not."""
        try:
            self._driver.load(program)
        except BaseException:
            if opened_here:
                self._driver.close()
            raise

    def close(self) -> None:
        """Release the bus."""
        self._driver.close()

    def _image(self, layer: PhotonicLayer, values: Whole) -> Whole:
        """Return the sums of an image, (positions, groups * rows): its negative part goes in a pass of its own."""
        sums = self._pass(layer, 0, np.maximum(values, 0))
        return sums - self._pass(layer, 1, np.maximum(-values, 0)) if passes_of(layer) == 2 else sums

    def _pass(self, layer: PhotonicLayer, passage: int, magnitudes: Whole) -> Whole:
        found = np.zeros((len(magnitudes), layer.weights.shape[0] * layer.weights.shape[1]), np.int64)
        # The last column is what dark lanes send.
        padded = np.pad(magnitudes, ((0, 0), (0, 1)))
        for place, segment in self._sendings.get((layer.name, passage), ()):
            self._driver.use(place)
            step = max(1, MOST_BEATS // (segment.beats * len(segment.rows)))
            for first in range(0, len(padded), step):
                some = slice(first, first + step)
                found[some, segment.rows] = self._dots(segment, padded[some])
        return found

    def _dots(self, segment: Segment, padded: Whole) -> Whole:
        """Return the dot products, (positions, rows of the segment): both ways through the datapath."""
        activations = padded[:, segment.terms]
        weights = np.broadcast_to(segment.weights, activations.shape)
        sent = np.stack([activations.reshape(-1, LANES), np.abs(weights).reshape(-1, LANES)], axis=1)
        left = self._run({"operand": sent}, "converters.light", len(sent)).reshape(sent.shape)
        seen = self._light(left[:, 0], left[:, 1])
        signed = np.where(weights.reshape(-1, LANES) < 0, -seen, seen)
        dots = self._run({"product": signed}, "adder.dot", len(sent) // segment.beats)
        return dots.reshape(len(padded), -1)

    def _run(self, beats: dict[str, Any], output: str, expected: int) -> Whole:
        found = self._driver.run(beats)[output]
        if len(found) != expected:
            raise DatapathError(f"{len(found)} beats came out of {output} instead of {expected}")
        return found


def _by_pass(sendings: Iterable[Sending]) -> dict[tuple[str, int], list[tuple[int, Segment]]]:
    """Return the segments by layer and pass, each with its place in the program."""
    found: dict[tuple[str, int], list[tuple[int, Segment]]] = {}
    for place, each in enumerate(sendings):
        found.setdefault((each.layer.name, each.passage), []).append((place, each.segment))
    return found


def _open_bus(address: str, datapath: Datapath) -> RegisterBus:
    """Return the bus at an address; simulators without a file are of this datapath."""
    parts = urlsplit(address)
    try:
        if parts.scheme not in _OWN or parts.netloc or parts.path:
            return fpga.open_bus(address)
        if parts.scheme == "verilator":
            return make_verilated_bus(datapath)
        return make_simulated_bus(datapath, dict(parse_qsl(parts.query)).get("engine", "fast"))
    except (OSError, ValueError) as error:
        raise errors.AddressError(
            str(error).rstrip("."), hint="Give fastsim://, verilator:// or pynq://HOST/0xBASE"
        ) from error


@contextmanager
def _translate_errors(device: str) -> Iterator[None]:
    """Return the driver's message in the words of this package."""
    try:
        yield
    except WrongHardware as error:
        raise errors.ProgramError(str(error).rstrip("."), device=device) from error
    except DatapathError as error:
        raise errors.DeviceStuck(str(error).rstrip("."), device=device) from error
    except BusError as error:
        raise errors.DeviceGone(str(error).rstrip("."), device=device) from error
