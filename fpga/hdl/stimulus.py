"""Random stimuli for a datapath. Counts fire often, beats have to wait, and targets change.

Uniformly random inputs rarely reach a target. Committed targets are therefore drawn from values that the counts can
reach in a few cycles, and the activity of the inputs changes from phase to phase.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpga.count_action.model import Count, CountKind, Datapath, Ref, Signal, SignalKind, Target
from fpga.count_action.ports import WORD_BITS, Port, Ports, Rows, make_ports

_PHASE_CYCLES = 64
"""Number of cycles of a phase. The activity of the inputs is constant within a phase."""
_ACTIVITIES = (0.1, 0.5, 0.9, 1.0)
_MAX_TARGET_EXCESS = 4
"""Largest excess of a target over the increment of one cycle, so that the count fires after a few cycles."""
_MAX_INCREMENT = 12


def generate_stimulus(datapath: Datapath, cycle_count: int, seed: int = 0) -> Rows:
    """Return the inputs for `cycle_count` cycles, the same for the same seed."""
    random = np.random.default_rng(seed)
    ports = make_ports(datapath)
    rows = np.zeros((cycle_count, ports.input_column_count), np.uint64)
    for port in ports.inputs:
        _write_bits(
            rows,
            port,
            _draw_bits(random, cycle_count, port.width, _choose_density(random, cycle_count, port.name)),
        )
    for signal in datapath.inputs:
        if signal.kind is SignalKind.NUMBER:
            _write_bits(
                rows, ports.find_input(f"{signal.name}_i"), _draw_numbers(random, cycle_count, signal)
            )
    _write_targets(random, datapath, ports, rows)
    return rows


def _choose_density(random: np.random.Generator, cycle_count: int, name: str) -> NDArray[np.float64]:
    """Return the probability that a bit of a port is 1, for every cycle."""
    if name in {"commit_i", "clear_status_i"}:
        return np.full(cycle_count, 0.02)
    if name.endswith("_data_i"):
        # 0.5 is listed twice, so half of the cycles have random bits.
        return random.choice([0.02, 0.5, 0.5, 0.98], cycle_count)
    phase_activities = random.choice(_ACTIVITIES, -(-cycle_count // _PHASE_CYCLES))
    return np.repeat(phase_activities, _PHASE_CYCLES)[:cycle_count]


def _draw_bits(
    random: np.random.Generator, cycle_count: int, width: int, density: NDArray[np.float64]
) -> NDArray[np.bool_]:
    return np.asarray(random.random((cycle_count, width)) < density[:, None])


def _write_bits(rows: Rows, port: Port, bits: NDArray[np.bool_]) -> None:
    """Write bits (cycles × width, bit 0 first) into the columns of a port."""
    padded_bits = np.zeros((len(rows), port.word_count * WORD_BITS), np.bool_)
    padded_bits[:, : port.width] = bits
    rows[:, port.column : port.column + port.word_count] = np.packbits(
        padded_bits, axis=1, bitorder="little"
    ).view("<u8")


def _unpack_bits(values: NDArray[np.uint64], width: int) -> NDArray[np.bool_]:
    return (values[..., None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)).astype(np.bool_)


def _draw_numbers(random: np.random.Generator, cycle_count: int, signal: Signal) -> NDArray[np.bool_]:
    """Return the bits of random numbers, mostly 0 to 3, and sometimes any value that fits."""
    shape = (cycle_count, signal.size)
    small_values = random.integers(0, min(4, 2**signal.width), shape, dtype=np.uint64)
    any_values = random.integers(0, 2**signal.width, shape, dtype=np.uint64)
    values = np.where(random.random(shape) < 0.9, small_values, any_values)
    return _unpack_bits(values, signal.width).reshape(cycle_count, -1)


def _write_targets(random: np.random.Generator, datapath: Datapath, ports: Ports, rows: Rows) -> None:
    """Write new random targets for every phase into the shadow bank, from which `commit_i` takes them."""
    phase_count = -(-len(rows) // _PHASE_CYCLES)
    bits = [
        _unpack_bits(_draw_targets(random, phase_count, datapath, module.counts, target), target.width)
        for module in datapath.modules
        for target in module.targets
    ]
    if bits:
        shadow = np.repeat(np.concatenate(bits, axis=1), _PHASE_CYCLES, axis=0)[: len(rows)]
        _write_bits(rows, ports.find_input("target_shadow_i"), shadow)


def _draw_targets(
    random: np.random.Generator,
    phase_count: int,
    datapath: Datapath,
    counts: tuple[Count, ...],
    target: Target,
) -> NDArray[np.uint64]:
    """Return random targets. A count reaches most of them in a few cycles. The others are 0, the reset value or any."""
    limited_counts = [count for count in counts if count.target == target.name]
    max_target = max((_find_max_reachable_target(datapath, count) for count in limited_counts), default=1)
    max_value = 2**target.width - 1
    # Take the smaller of two draws, because a chain fires only if each of its counts fires often.
    reachable_targets = random.integers(
        1, min(max_target, max_value) + 1, (2, phase_count), dtype=np.uint64
    ).min(axis=0)
    draws = random.random(phase_count)
    any_values = random.integers(0, max_value, phase_count, dtype=np.uint64, endpoint=True)
    values = np.where(
        draws < 0.85, reachable_targets, np.where(draws < 0.95, np.uint64(target.reset), any_values)
    )
    return np.where(draws > 0.97, np.uint64(0), values).astype(np.uint64)


def _find_max_reachable_target(datapath: Datapath, count: Count) -> int:
    increment = min(
        _MAX_INCREMENT, count.constant + sum(_find_max_term(datapath, ref) for ref in count.terms)
    )
    return max(1, increment if count.kind is CountKind.LEVEL else increment + _MAX_TARGET_EXCESS)


def _find_max_term(datapath: Datapath, ref: Ref) -> int:
    """Return the largest value of a term in a typical cycle."""
    if ref.module is None and datapath.input(ref.name).kind is SignalKind.NUMBER:
        return 3
    return 1
