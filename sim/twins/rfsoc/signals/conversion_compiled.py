"""Compiled form of `conversion`: one pass over the samples of each window, with memory for only one window.

This module is imported only for a conversion, because importing numba is slow.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from lightbed.compiled import compile_function
from sim.twins.rfsoc.signals.decimation import DECIMATION
from sim.twins.rfsoc.signals.level import Floats, Levels, Mixing
from sim.twins.rfsoc.signals.track import OSCILLATOR_AMPLITUDE, PHASE_TURN
from sim.twins.rfsoc.signals.waves import INPUT, OSCILLATOR, PRODUCT


def convert_levels(
    rng: np.random.Generator, levels: Levels, mixing: Mixing, *, bits: int, taps: Floats
) -> npt.NDArray[np.int16]:
    """Return I and Q. See `conversion.convert_levels`."""
    count = (levels.traces.shape[1] - len(taps)) // DECIMATION + 1
    out = np.zeros((len(levels.trace_numbers), count, 2), np.int16)
    _convert_windows(
        rng, levels.traces, levels.noises, levels.correlations, levels.converter_noises, levels.trace_numbers,
        mixing.freqs, mixing.phases, mixing.sources, bits, taps, out,
    )  # fmt: skip
    return out


@compile_function
def _convert_windows(
    rng: np.random.Generator,
    traces: Floats,
    noises: Floats,
    correlations: Floats,
    converter_noises: Floats,
    trace_numbers: npt.NDArray[np.int64],
    freqs: npt.NDArray[np.int64],
    phases: npt.NDArray[np.int64],
    sources: npt.NDArray[np.int64],
    bits: int,
    taps: Floats,
    out: npt.NDArray[np.int16],
) -> None:
    sample_count = traces.shape[1]
    real_part, imaginary_part = np.zeros(sample_count), np.zeros(sample_count)
    for window in range(len(trace_numbers)):
        trace = trace_numbers[window]
        _digitise(
            rng, traces[trace], noises[trace], correlations[trace], converter_noises[trace], bits, real_part
        )
        is_complex = _mix(real_part, imaginary_part, freqs[window], phases[window], sources[window])
        _decimate(real_part, taps, out[window, :, 0])
        if is_complex:
            _decimate(imaginary_part, taps, out[window, :, 1])
        else:
            out[window, :, 1] = 0


@compile_function
def _digitise(
    rng: np.random.Generator,
    trace: Floats,
    noise: Floats,
    correlation: float,
    converter_noise: Floats,
    bits: int,
    out: Floats,
) -> None:
    half_scale = float(1 << (bits - 1))
    step = float(1 << (16 - bits))
    innovation_scale = math.sqrt(1.0 - correlation * correlation)
    is_noisy = noise.any()
    correlated_noise = 0.0
    for i in range(len(trace)):
        value = trace[i]
        if is_noisy:
            deviate = rng.standard_normal()
            correlated_noise = (
                deviate if i == 0 else correlation * correlated_noise + innovation_scale * deviate
            )
            value += noise[i] * correlated_noise
        out[i] = value
    if converter_noise.any():
        for i in range(len(out)):
            out[i] += converter_noise[i] * rng.standard_normal()
    for i in range(len(out)):  # a separate loop: the compiler vectorizes it, as it draws no random numbers
        out[i] = min(max(np.floor(out[i] * half_scale + 0.5), -half_scale), half_scale - 1.0) * step


@compile_function
def _mix(real_part: Floats, imaginary_part: Floats, freq: int, phase: int, source: int) -> bool:
    """Mix in place, and return True if the result has an imaginary part."""
    if source == INPUT:
        return False
    if freq == 0:
        angle = phase * (2 * math.pi / PHASE_TURN)
        cosine, sine = (
            np.rint(OSCILLATOR_AMPLITUDE * math.cos(angle)),
            np.rint(OSCILLATOR_AMPLITUDE * math.sin(angle)),
        )
        for i in range(len(real_part)):
            if source == PRODUCT:
                imaginary_part[i] = np.floor((real_part[i] * sine + 32768.0) / 65536.0)
                real_part[i] = np.floor((real_part[i] * cosine + 32768.0) / 65536.0)
            else:
                real_part[i] = cosine if source == OSCILLATOR else 0.0
                imaginary_part[i] = sine if source == OSCILLATOR else 0.0
        return bool(sine != 0.0)
    for i in range(len(real_part)):
        angle = ((phase + freq * i) % PHASE_TURN) * (2 * math.pi / PHASE_TURN)
        cosine, sine = (
            np.rint(OSCILLATOR_AMPLITUDE * math.cos(angle)),
            np.rint(OSCILLATOR_AMPLITUDE * math.sin(angle)),
        )
        if source == PRODUCT:
            imaginary_part[i] = np.floor((real_part[i] * sine + 32768.0) / 65536.0)
            real_part[i] = np.floor((real_part[i] * cosine + 32768.0) / 65536.0)
        else:
            real_part[i] = cosine if source == OSCILLATOR else 0.0
            imaginary_part[i] = sine if source == OSCILLATOR else 0.0
    return True


@partial(compile_function, fastmath={"reassoc", "contract"})
def _decimate(samples: Floats, taps: Floats, out: npt.NDArray[np.int16]) -> None:
    for k in range(len(out)):
        total = 0.0
        for j in range(len(taps)):
            total += taps[j] * samples[DECIMATION * k + j]
        out[k] = np.int16(min(max(math.floor(total + 0.5), -32768.0), 32767.0))
