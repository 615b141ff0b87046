"""Normal random numbers that depend only on a seed, an image key and a layer's stream. Machine code.

The generator is xoshiro256++ (D. Blackman and S. Vigna, Scrambled linear pseudorandom number generators, 2021).
SplitMix64 fills its state from a hash of seed, key and stream. Normal numbers come from the ziggurat of G. Marsaglia
and W. W. Tsang (2000) in the form of J. Doornik (2005), with 256 strips and 53 random bits per number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.execution.kernels.compiled import compile_kernel

Doubles = npt.NDArray[np.float64]

STRIP_COUNT = 256
STRIP_EDGE = 3.6541528853610088
"""Start of the tail, for 256 strips."""
STRIP_AREA = 0.00492867323399
"""Area of every strip. The lowest strip includes the tail."""


def _compute_strips() -> tuple[Doubles, Doubles]:
    """Return the right ends of the strips from the bottom up, and their densities (without 1 / sqrt(2 pi))."""
    right_ends = np.zeros(STRIP_COUNT + 1)
    density = np.exp(-0.5 * STRIP_EDGE * STRIP_EDGE)
    right_ends[0], right_ends[1] = STRIP_AREA / density, STRIP_EDGE
    for strip in range(2, STRIP_COUNT):
        density += STRIP_AREA / right_ends[strip - 1]
        right_ends[strip] = np.sqrt(-2.0 * np.log(density))
    return right_ends, np.exp(-0.5 * right_ends * right_ends)


STRIP_ENDS, STRIP_DENSITIES = _compute_strips()

_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST_MULTIPLIER, _SECOND_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_U11, _U17, _U19, _U23, _U27, _U30, _U31, _U41, _U45, _U255 = (
    np.uint64(number) for number in (11, 17, 19, 23, 27, 30, 31, 41, 45, 255)
)
_UNIFORM_STEP = 2.0**-53
_SIGNED_STEP = 2.0**-52
_HALF_RANGE = np.int64(2**52)


@compile_kernel()
def mix_word(word: Any) -> Any:
    """Return SplitMix64's mix of a word: every output bit depends on every input bit."""
    word = (word ^ (word >> _U30)) * _FIRST_MULTIPLIER
    word = (word ^ (word >> _U27)) * _SECOND_MULTIPLIER
    return word ^ (word >> _U31)


@compile_kernel()
def seed_state(seed: Any, key: Any, stream: Any) -> Any:
    """Return the generator state (four words) for a seed, a key and a stream."""
    word = mix_word(seed + _GOLDEN_GAMMA)
    word = mix_word((word ^ key) + _GOLDEN_GAMMA)
    word = mix_word((word ^ stream) + _GOLDEN_GAMMA)
    s0 = mix_word(word + _GOLDEN_GAMMA)
    s1 = mix_word(word + _GOLDEN_GAMMA + _GOLDEN_GAMMA)
    s2 = mix_word(word + _GOLDEN_GAMMA * np.uint64(3))
    return s0, s1, s2, mix_word(word + _GOLDEN_GAMMA * np.uint64(4))


@compile_kernel()
def advance(s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    """Return the next 64 random bits and the new state. The state is four words, because an array would be slower."""
    total = s0 + s3
    word = ((total << _U23) | (total >> _U41)) + s0
    shifted = s1 << _U17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    return word, s0, s1, s2, (s3 << _U45) | (s3 >> _U19)


@compile_kernel()
def _make_uniform(word: Any) -> Any:
    """Return a uniform number above 0 and at most 1."""
    return np.float64(np.int64(word >> _U11) + np.int64(1)) * _UNIFORM_STEP


@compile_kernel()
def draw_normal(s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    """Return the next normal number, with mean 0 and deviation 1, and the new state."""
    word, s0, s1, s2, s3 = advance(s0, s1, s2, s3)
    strip = np.int64(word & _U255)
    position = np.float64(np.int64(word >> _U11) - _HALF_RANGE) * _SIGNED_STEP * STRIP_ENDS[strip]
    if abs(position) < STRIP_ENDS[strip + 1]:  # in 98.8 per cent of draws
        return position, s0, s1, s2, s3
    return _draw_outside_strip(position, strip, s0, s1, s2, s3)


@compile_kernel()
def _draw_outside_strip(position: Any, strip: Any, s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    """Return a normal number for a place outside its strip's inner part: accept the place by its density, or redraw."""
    while True:
        if strip == 0:
            tail_draw, s0, s1, s2, s3 = _draw_tail(s0, s1, s2, s3)
            return np.copysign(tail_draw, position), s0, s1, s2, s3
        word, s0, s1, s2, s3 = advance(s0, s1, s2, s3)
        height = STRIP_DENSITIES[strip] + _make_uniform(word) * (
            STRIP_DENSITIES[strip + 1] - STRIP_DENSITIES[strip]
        )
        if height < np.exp(-0.5 * position * position):
            return position, s0, s1, s2, s3
        word, s0, s1, s2, s3 = advance(s0, s1, s2, s3)
        strip = np.int64(word & _U255)
        position = np.float64(np.int64(word >> _U11) - _HALF_RANGE) * _SIGNED_STEP * STRIP_ENDS[strip]
        if abs(position) < STRIP_ENDS[strip + 1]:
            return position, s0, s1, s2, s3


@compile_kernel()
def _draw_tail(s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    """Return a normal number beyond the edge (G. Marsaglia, 1964)."""
    while True:
        first_word, s0, s1, s2, s3 = advance(s0, s1, s2, s3)
        second_word, s0, s1, s2, s3 = advance(s0, s1, s2, s3)
        distance = -np.log(_make_uniform(first_word)) / STRIP_EDGE
        if -2.0 * np.log(_make_uniform(second_word)) > distance * distance:
            return STRIP_EDGE + distance, s0, s1, s2, s3


@compile_kernel("void(uint64, uint64, uint64, float64[::1])")
def write_normals(seed: Any, key: Any, stream: Any, out: Doubles) -> None:
    """Write the first normal numbers of one stream."""
    s0, s1, s2, s3 = seed_state(seed, key, stream)
    for index in range(len(out)):
        out[index], s0, s1, s2, s3 = draw_normal(s0, s1, s2, s3)
