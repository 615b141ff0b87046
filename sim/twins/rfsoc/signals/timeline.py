"""All generators of a board in one run: the `Outputs` that a plant asks, at full rate, worked out only where asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.plant import Outputs
from sim.twins.rfsoc.signals.track import Generator, Track


@cache
def whole_ratio(ratio: float) -> tuple[int, int]:
    """Return a ratio of two converters' rates in whole numbers.

    >>> whole_ratio(9584.64 / 2457.6)
    (39, 10)
    """
    exact = Fraction(ratio).limit_denominator(1000)
    return exact.numerator, exact.denominator


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Tracks by number of the generator, and the envelope memories (length, 2) that they play from.

    A generator that the board has not is silent: a plant may have more inputs than the board outputs.
    """

    generators: Sequence[Generator]
    tracks: Mapping[int, Track]
    envelopes: Sequence[npt.NDArray[np.int16]]

    def rate_hz(self, generator: int) -> float:
        """Return samples per second of a generator's converter."""
        return self.generators[generator if generator < len(self.generators) else 0].rate_hz

    def samples(self, generator: int, first: int, count: int) -> npt.NDArray[np.float64]:
        """Return samples as `Outputs` says."""
        track = self.tracks.get(generator)
        if track is None:
            return np.zeros(count)
        return track.samples(self.envelopes[generator], first, count)

    def signature(self, generator: int, first: int, count: int) -> tuple[Any, ...]:
        """Equal for stretches with equal samples, see `Track.signature`."""
        track = self.tracks.get(generator)
        return () if track is None else track.signature(first, count)

    def signatures(self, generator: int, firsts: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
        """Return (stretches, columns) for many stretches at once, see `Track.signatures`."""
        track = self.tracks.get(generator)
        return np.zeros((len(firsts), 1), np.int64) if track is None else track.signatures(firsts, count)


@dataclass(slots=True)
class Recorder:
    """Outputs that remember which stretches they were asked for."""

    outputs: Outputs
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    """Generator, first sample, count."""

    def rate_hz(self, generator: int) -> float:
        """Return the same as the outputs say."""
        return self.outputs.rate_hz(generator)

    def samples(self, generator: int, first: int, count: int) -> npt.NDArray[np.float64]:
        """Return the same as the outputs say; remembered."""
        self.asked.append((generator, first, count))
        return self.outputs.samples(generator, first, count)
