"""Hardware that products are computed on, and the cost of a layer there."""

from __future__ import annotations

from dataclasses import dataclass

from fpga.photonic_mac.cycles import CLOCK_HZ
from lightning.errors import OutOfRange


@dataclass(frozen=True, slots=True)
class Hardware:
    """One cycle takes `lanes` detector samples a core; a sample adds up `wavelengths` products of one sign."""

    lanes: int = 16
    """Samples in a clock cycle of the datapath."""
    wavelengths: int = 1
    """Products whose light falls on one detector: they share a sample, so they share a sign."""
    cores: int = 1
    """Each computes other rows."""
    clock_hz: float = float(CLOCK_HZ)
    skip_zeros: bool = False
    """Products of which the weight is 0 are left out of the schedule. The published datapath sends them."""

    def __post_init__(self) -> None:
        """Raise `OutOfRange` for hardware without lanes, wavelengths, cores, or a clock."""
        for name in ("lanes", "wavelengths", "cores", "clock_hz"):
            value = getattr(self, name)
            if not (value > 0 if name == "clock_hz" else isinstance(value, int) and value > 0):
                raise OutOfRange(f"hardware with {name} = {value!r} cannot be", hint="Give a positive number")


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Work of one image in one photonic layer, everything counted: positions, groups, passes, cores."""

    macs: int
    """Multiply-accumulates of the network, zero weights included."""
    products: int
    """That are sent through light: without skipped zeros, times passes."""
    readouts: int
    """Detector samples that count, each a draw of noise and a conversion."""
    beats: int
    """Cycles in which `lanes` samples a core are sent."""
    passes: int
    """2 where activations are signed: their positive and their negative part."""
    overhead: int
    """Cycles of preamble, detection, fill and turnaround."""

    @property
    def cycles(self) -> int:
        """From start to finish."""
        return self.beats + self.overhead
