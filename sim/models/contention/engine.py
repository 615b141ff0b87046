"""The event loop: every change of a rate is an event, and rates are constant between events.

This makes fair, weighted and priority sharing exact. The rising weight of MLTCP is approximated as constant over
`1 / weight_step_count` of a job's traffic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbed.compiled import compile_function

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

TIME_TOLERANCE = 1e-9
"""Tolerance: times below this many ms, and volumes below this share of a job's traffic, count as 0."""


class Program(NamedTuple):
    """Jobs as arrays; job j has the phases `first[j]:first[j + 1]` and uses `links[first_link[j]:first_link[j + 1]]`.

    A phase computes for `compute_ms`, then sends `volume` at a rate of at most `level`. `total` (jobs,) is the volume
    per iteration; `slot_ms` is 0 for a job that does not hold its period; `noise` (jobs, columns) are the factors of
    the computation in successive iterations.
    """

    first: Integers
    compute_ms: Floats
    volume: Floats
    level: Floats
    total: Floats
    first_link: Integers
    links: Integers
    capacity: Floats
    weight: Floats
    priority: Integers
    slope: Floats
    intercept: Floats
    start_ms: Floats
    slot_ms: Floats
    noise: Floats


class State(NamedTuple):
    """State of the jobs, (jobs,) each: phase (-1: waits for its slot), time and volume left in the phase, and counters.

    `sent_mbit` is the volume sent in this iteration, `alignment_count` the number of alignments, `is_active` whether
    the job sends.
    """

    phase: Integers
    left_ms: Floats
    left_mbit: Floats
    sent_mbit: Floats
    rate_gbps: Floats
    iteration: Integers
    slot: Integers
    alignment_count: Integers
    is_active: NDArray[np.bool_]


@compile_function
def run(
    program: Program,
    state: State,
    begin_times_ms: Floats,
    trace: Floats,
    weight_step_count: int,
    tolerance: float,
    max_alignments: int,
    horizon_ms: float,
) -> tuple[float, int]:
    """Run until every job has begun as many iterations as `begin_times_ms` has columns, or until `horizon_ms`.

    Fill `begin_times_ms` (jobs, iterations + 1) and `trace` (rows, 1 + jobs), the times and rates; return the time and
    the number of rows used.
    """
    job_count, iteration_count, row_count, now_ms, unfinished_count = (
        state.phase.size,
        begin_times_ms.shape[1],
        0,
        0.0,
        state.phase.size,
    )
    state.phase[:], state.left_ms[:] = -1, program.start_ms
    free_gbps = np.empty_like(program.capacity)
    link_weight = np.empty_like(program.capacity)
    while unfinished_count and now_ms <= horizon_ms:
        share_links(program, state, free_gbps, link_weight)
        if row_count < trace.shape[0]:
            trace[row_count, 0] = now_ms
            trace[row_count, 1:] = state.rate_gbps
            row_count += 1
        step_ms = compute_next_event_ms(program, state, weight_step_count)
        now_ms += step_ms
        for job in range(job_count):
            if not advance_job(program, state, job, step_ms):
                continue
            unfinished_count -= finish_activity(
                program, state, begin_times_ms, job, now_ms, iteration_count, tolerance, max_alignments
            )
    return now_ms, row_count


@compile_function
def compute_next_event_ms(program: Program, state: State, weight_step_count: int) -> float:
    """Return the time until the first phase ends or the first weight rises by a step."""
    first_ms = np.inf
    for job in range(state.phase.size):
        if state.left_ms[job] > 0 or not state.is_active[job]:
            first_ms = min(first_ms, state.left_ms[job])
        elif state.rate_gbps[job] > 0:
            first_ms = min(first_ms, state.left_mbit[job] / state.rate_gbps[job])
            if program.slope[job] > 0:
                first_ms = min(first_ms, program.total[job] / weight_step_count / state.rate_gbps[job])
    return first_ms


@compile_function
def advance_job(program: Program, state: State, job: int, step_ms: float) -> bool:
    """Advance a job in time; return True if its current computation, wait or burst has ended."""
    if not state.is_active[job]:
        state.left_ms[job] -= step_ms
        if state.left_ms[job] > TIME_TOLERANCE:
            return False
        state.left_ms[job] = 0.0
        return True
    moved_mbit = min(state.rate_gbps[job] * step_ms, state.left_mbit[job])
    state.left_mbit[job] -= moved_mbit
    state.sent_mbit[job] += moved_mbit
    return bool(state.left_mbit[job] <= TIME_TOLERANCE * max(program.total[job], state.rate_gbps[job]))


@compile_function
def finish_activity(
    program: Program,
    state: State,
    begin_times_ms: Floats,
    job: int,
    now_ms: float,
    iteration_count: int,
    tolerance: float,
    max_alignments: int,
) -> int:
    """Start the next activity of a job; return 1 if this begins the last of `iteration_count` iterations, else 0."""
    if state.phase[job] >= 0 and not state.is_active[job] and state.left_mbit[job] > 0:
        state.is_active[job] = True
        return 0
    state.is_active[job] = False
    has_burst_ended = state.phase[job] >= 0
    state.phase[job] += 1
    if has_burst_ended and state.phase[job] < program.first[job + 1] - program.first[job]:
        begin_phase(program, state, job)
        return 0
    if has_burst_ended:
        wait_ms = compute_slot_wait_ms(program, state, job, now_ms, tolerance, max_alignments)
        if wait_ms > 0:
            state.phase[job], state.left_ms[job] = -1, wait_ms
            return 0
    count = state.iteration[job]
    state.iteration[job] = count + 1
    state.sent_mbit[job] = 0.0
    state.phase[job] = 0
    if count < iteration_count:
        begin_times_ms[job, count] = now_ms
    begin_phase(program, state, job)
    return 1 if count + 1 == iteration_count else 0


@compile_function
def begin_phase(program: Program, state: State, job: int) -> None:
    """Start the computation of a phase, and set the volume that follows it."""
    position = program.first[job] + state.phase[job]
    factor_count = program.noise.shape[1]
    factor = program.noise[job, (state.iteration[job] - 1) % factor_count]
    state.left_ms[job] = program.compute_ms[position] * factor
    state.left_mbit[job] = program.volume[position]


@compile_function
def compute_slot_wait_ms(
    program: Program, state: State, job: int, now_ms: float, tolerance: float, max_alignments: int
) -> float:
    """Return the time in ms that a job waits for its slot, or 0 if it does not hold its period.

    A job that is later than `tolerance` times its slot waits for the next slot, at most `max_alignments` times.
    """
    slot_ms = program.slot_ms[job]
    if slot_ms <= 0:
        return 0.0
    state.slot[job] += 1
    wait_ms = program.start_ms[job] + state.slot[job] * slot_ms - now_ms
    if -wait_ms > tolerance * slot_ms and state.alignment_count[job] < max_alignments:
        skipped_slots = np.int64(np.ceil(-wait_ms / slot_ms - TIME_TOLERANCE))
        state.slot[job] += skipped_slots
        state.alignment_count[job] += 1
        wait_ms += skipped_slots * slot_ms
    return float(wait_ms) if wait_ms > TIME_TOLERANCE else 0.0


@compile_function
def share_links(program: Program, state: State, free_gbps: Floats, link_weight: Floats) -> None:
    """Set the rates: weighted max-min within a priority class, higher classes first, capped by the level of a burst."""
    free_gbps[:] = program.capacity
    waiting_count = 0
    for job in range(state.phase.size):
        state.rate_gbps[job] = -1.0 if state.is_active[job] else 0.0  # -1: the rate is not set yet
        waiting_count += state.is_active[job]
    while waiting_count:
        highest_priority = -(2**62)
        for job in range(state.phase.size):
            if state.rate_gbps[job] < 0:
                highest_priority = max(highest_priority, program.priority[job])
        waiting_count -= fill_priority_class(program, state, free_gbps, link_weight, highest_priority)


@compile_function
def fill_priority_class(
    program: Program, state: State, free_gbps: Floats, link_weight: Floats, priority: int
) -> int:
    """Set the rates of those jobs of a priority class that have the lowest limit; return their number."""
    link_weight[:] = 0.0
    for job in range(state.phase.size):
        if state.rate_gbps[job] < 0 and program.priority[job] == priority:
            for position in range(program.first_link[job], program.first_link[job + 1]):
                link_weight[program.links[position]] += compute_weight(program, state, job)
    lowest_level = np.inf
    for job in range(state.phase.size):
        if state.rate_gbps[job] < 0 and program.priority[job] == priority:
            lowest_level = min(lowest_level, compute_limit_level(program, state, free_gbps, link_weight, job))
    fixed_count = 0
    for job in range(state.phase.size):
        if state.rate_gbps[job] >= 0 or program.priority[job] != priority:
            continue
        if compute_limit_level(program, state, free_gbps, link_weight, job) <= lowest_level * (1 + 1e-12):
            # Only mark the job (below -2), because `compute_limit_level` needs the room before any rate of this pass is
            # subtracted.
            state.rate_gbps[job] = -2.0 - lowest_level * compute_weight(program, state, job)
            fixed_count += 1
    for job in range(state.phase.size):
        if state.rate_gbps[job] <= -2.0:
            state.rate_gbps[job] = -2.0 - state.rate_gbps[job]
            for position in range(program.first_link[job], program.first_link[job + 1]):
                link = program.links[position]
                free_gbps[link] = max(free_gbps[link] - state.rate_gbps[job], 0.0)
    return fixed_count


@compile_function
def compute_weight(program: Program, state: State, job: int) -> float:
    """Return the current weight of a job: its static weight times MLTCP's function of the share it has sent."""
    sent_share = min(state.sent_mbit[job] / program.total[job], 1.0)
    return float(program.weight[job] * (program.slope[job] * sent_share + program.intercept[job]))


@compile_function
def compute_limit_level(
    program: Program, state: State, free_gbps: Floats, link_weight: Floats, job: int
) -> float:
    """Return the level (rate over weight) at which the burst or a link limits a job."""
    position = program.first[job] + state.phase[job]
    level = program.level[position] / compute_weight(program, state, job)
    for link_index in range(program.first_link[job], program.first_link[job + 1]):
        link = program.links[link_index]
        level = min(level, free_gbps[link] / link_weight[link])
    return float(level)
