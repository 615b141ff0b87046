"""A network in integers for photonic hardware, and the hardware.

Activations and weights have a sign and a magnitude of 0 .. 255. One product is `(|a| * |w|) >> 8` with the sign of
a * w. The products of a row are summed exactly:

    sums[row] = sum_k sign(a_k w_k) * ((|a_k| * |w_k|) >> 8)             (int32; 16 bits, wrapping, with `wrap`)
    real[row] = (sums[row] + bias[row]) * output_scale[row]              (float32)
    output_scale[row] = 256 * input_scale * weight_scale[row]

The activations of the next photonic layer are clip(rint(real / input_scale), 0 or -255, 255). The operations in between
are digital, in float32. A chain of the `published` scheme has no scales: its activations are the previous layer's
sums, with negative sums set to 0, shifted so that the highest set bit of the largest sum becomes bit 7
(`shift_normalised`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fpga.photonic_mac.cycles import CLOCK_HZ
from lightning.errors import OutOfRange
from lightning.networks.network import Network
from lightning.networks.patches import compute_output_size

Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
FULL_VALUE = 255


@dataclass(frozen=True, slots=True)
class Hardware:
    """Hardware. A core takes `lanes` samples per cycle, and a sample sums `wavelengths` products of one sign."""

    lanes: int = 16
    """Samples in a clock cycle of the datapath."""
    wavelengths: int = 1
    """Products whose light falls on one detector. They share a sample and therefore a sign."""
    cores: int = 1
    """Cores, which compute different rows."""
    clock_hz: float = float(CLOCK_HZ)
    skip_zeros: bool = False
    """True to omit products whose weight is 0. The published datapath sends them."""

    def __post_init__(self) -> None:
        """Raise `OutOfRange` for hardware without lanes, wavelengths, cores, or a clock."""
        for name in ("lanes", "wavelengths", "cores", "clock_hz"):
            value = getattr(self, name)
            if not (value > 0 if name == "clock_hz" else isinstance(value, int) and value > 0):
                raise OutOfRange(f"hardware cannot have {name} = {value!r}", hint="Give a positive number")


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Work of one image in one photonic layer, over all positions, groups, passes and cores."""

    macs: int
    """Multiply-accumulates, including zero weights."""
    products: int
    """Products that light computes in all passes, without skipped zeros."""
    readouts: int
    """Detector samples that enter a sum. Each takes a conversion and draws noise."""
    beats: int
    """Cycles in which each core sends `lanes` samples."""
    passes: int
    """2 for signed activations: one for the positive part, one for the negative part. Otherwise 1."""
    overhead: int
    """Cycles of preamble, detection, fill and turnaround."""

    @property
    def cycles(self) -> int:
        """Total cycles."""
        return self.beats + self.overhead


@dataclass(frozen=True)
class Geometry:
    """Geometry of a convolution as rows of products: patches of (channels / groups) * kh * kw activations."""

    channels: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Pads at the top, left, bottom and right."""
    dilations: tuple[int, int] = (1, 1)

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the output."""
        return compute_output_size(
            (self.height, self.width), self.kernel, self.strides, self.pads, self.dilations
        )


@dataclass(frozen=True)
class PhotonicLayer:
    """One `Gemm` or `Conv` of the network, by the name of its node."""

    name: str
    weights: npt.NDArray[np.int16]
    """(groups, rows, terms), -255 .. 255; a dense layer has one group."""
    bias: Integers
    """(groups, rows) bias in units of sums, zeros if there is none. It corrects the mean loss of `>> 8`."""
    input_scale: float
    """Value of one step of an activation. If `shift_normalised`, 1, or in the first layer the step of the raw data."""
    output_scale: Floats
    """(groups, rows) value of one step of a sum; 1 if `shift_normalised`."""
    signed: bool = False
    """True if activations may be negative, which takes two passes."""
    geometry: Geometry | None = None
    """Geometry of a convolution; None for a dense layer."""
    vectors: int = 1
    """Vectors of activations per image of a dense layer; more than 1 for sequences (..., terms)."""

    @property
    def position_count(self) -> int:
        """Vectors of activations per image: `vectors` of a dense layer, or the output pixels of a convolution."""
        return self.vectors if self.geometry is None else int(np.prod(self.geometry.output))

    @property
    def macs(self) -> int:
        """Multiply-accumulates per image, including zero weights."""
        return int(self.weights.size) * self.position_count

    def convert_to_steps(self, real: Floats) -> Floats:
        """Return activations in whole steps, without clipping. Ties round to even, as in ONNX's QuantizeLinear."""
        return np.asarray(np.rint(real / np.float32(self.input_scale)), np.float32)


@dataclass(frozen=True)
class CompiledModel:
    """Content of a `.lng` file. `layers` maps names of nodes in `network` to the layers that replace them."""

    network: Network
    layers: Mapping[str, PhotonicLayer]
    hardware: Hardware = field(default_factory=Hardware)
    scheme: str = "scaled"
    """`published`, or `scaled`."""
    wrap: bool = False
    """True if sums wrap to 16 bits, as in the published datapath."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Source file and its hash, version of the toolkit, options and samples."""
    perfect_scaling: bool = False
    """True if activations of the `published` scheme are scaled, not shifted, so that an image's largest is 255."""

    @property
    def shift_normalised(self) -> bool:
        """True if activations of later layers follow from sums alone, by shifts or perfect scaling."""
        return self.scheme == "published"

    @property
    def scheme_in_words(self) -> str:
        """The scheme in words, with "perfect scaling" if used."""
        return f"{self.scheme}, perfect scaling" if self.perfect_scaling else self.scheme
