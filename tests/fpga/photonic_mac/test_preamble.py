"""Preamble detection: the table of the published detector, the corrected one, and the RTL of both."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from witnesses.preamble import HIGH, LANES, detect, means, received_stream

RAMP = np.arange(1, 8 * LANES + 1, dtype=np.uint16)
IDLE_CYCLES = 5


def opened_at(shift, length, idle, *, published):
    """Return when it opened, and which sample came first."""
    found = detect(received_stream(RAMP, length=length, shift=shift, idle=idle), length, published=published)
    return found.opened, found.samples[found.opened, 0]


@pytest.mark.parametrize("shift", [0, *range(9, 16)])
@pytest.mark.parametrize("length", [2, 10])
def test_published_aligned_after_a_low_idle(shift, length):
    assert opened_at(shift, length, 0, published=True) == (IDLE_CYCLES + length + 5, 1)


@pytest.mark.parametrize("shift", range(1, 9))
@pytest.mark.parametrize("length", [2, 10])
def test_published_leaks_a_cycle_of_preamble_after_a_low_idle(shift, length):
    assert opened_at(shift, length, 0, published=True) == (IDLE_CYCLES + length + 4, HIGH)


def test_published_opens_20_and_19_cycles_after_the_start():
    opened = [opened_at(shift, 10, 0, published=True)[0] for shift in range(16)]
    assert opened == [20, *[19] * 8, *[20] * 7]


@pytest.mark.parametrize("shift", range(16))
def test_published_aligned_after_a_high_idle(shift):
    assert opened_at(shift, 10, HIGH, published=True) == (20, 1)


@pytest.mark.parametrize("shift", range(16))
def test_published_locks_on_idle_at_length_one(shift):
    found = detect(received_stream(RAMP, length=1, shift=shift), 1, published=True)
    assert (found.opened, found.place) == (0, 1)


@pytest.mark.long
@pytest.mark.parametrize("shift", range(16))
@pytest.mark.parametrize("length", [1, 2, 10])
@pytest.mark.parametrize("idle", [0, 1, HIGH // 2, HIGH - 1, HIGH])
def test_corrected_aligned_always(shift, length, idle):
    found = detect(received_stream(RAMP, length=length, shift=shift, idle=idle), length)
    assert (found.opened, found.place) == (IDLE_CYCLES + length + 5, shift)
    assert found.samples[found.opened :][: len(RAMP) // LANES].ravel().tolist() == RAMP.tolist()


@given(
    shift=st.integers(0, 15),
    length=st.integers(1, 40),
    idle_cycles=st.integers(1, 20),
    levels=st.tuples(*[st.integers(0, 65535)] * 3).map(sorted),
    seed=st.integers(0, 2**32 - 1),
)
def test_corrected_at_any_levels_and_with_any_data(shift, length, idle_cycles, levels, seed):
    low, idle, high = levels
    assume(high - low > 1)  # of neighbours the truncated mean is the lower one
    data = np.random.default_rng(seed).integers(0, 65536, 4 * LANES)
    if seed % 3 == 0:
        low, idle = idle, low  # darker than the preamble's low samples
        assume(high - low > 1)
    stream = received_stream(
        data, length=length, shift=shift, idle=idle, idle_cycles=idle_cycles, high=high, low=low
    )
    found = detect(stream, length)
    assert (found.opened, found.place) == (idle_cycles + length + 5, shift)
    assert found.samples[found.opened :][:4].ravel().tolist() == data.tolist()


@pytest.mark.parametrize("shift", range(16))
def test_corrected_with_noise_on_idle_and_preamble(shift):
    random = np.random.default_rng(shift)
    clean = received_stream(RAMP, length=10, shift=shift, idle=HIGH // 8, idle_cycles=40).astype(np.int64)
    noisy = np.clip(clean + random.normal(0, 1.657 * 128, clean.shape), 0, 65535).astype(np.uint16)
    found = detect(noisy, 10)
    assert (found.opened, found.place) == (40 + 10 + 5, shift)


def test_nothing_opens_without_a_preamble():
    assert detect(np.full((60, LANES), 77, np.uint16), 1).opened is None


@pytest.mark.parametrize("length", [0, 256])
def test_a_length_that_cannot_be_counted_is_refused(length):
    with pytest.raises(ValueError, match=r"1 \.\. 255"):
        detect(np.zeros((9, LANES), np.uint16), length)


# ---- The same in RTL: each case is played to both detectors after a restart

FLUSH = 8
INPUTS = {"restart_i": 1, "length_i": 8, "samples_i": 256}
OUTPUTS = {"open_o": 1, "place_o": 4, "samples_o": 256}
CASES = [
    (shift, length, idle)
    for shift in range(16)
    for length, idle in [(1, 0), (1, HIGH), (2, 0), (10, 0), (10, HIGH), (3, HIGH // 3)]
]


def as_words(samples):
    return [sum(int(value) << 16 * lane for lane, value in enumerate(row)) for row in samples]


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("published", [False, True])
def test_the_rtl_detects_as_the_model_in_every_cycle(unit, published):
    block = unit("preamble_detector", INPUTS, OUTPUTS, Published=int(published))
    driven = {name: [] for name in INPUTS}
    streams, begins = [], []
    for shift, length, idle in CASES:
        stream = received_stream(RAMP, length=length, shift=shift, idle=idle)
        flushed = np.concatenate([np.full((FLUSH, LANES), idle), stream])
        driven["samples_i"] += as_words(flushed)
        driven["restart_i"] += [cycle == FLUSH - 1 for cycle in range(len(flushed))]
        driven["length_i"] += [length] * len(flushed)
        begins.append(len(driven["samples_i"]) - len(stream))
        streams.append(stream)
    seen = block.run(driven)
    leaks = 0
    for (shift, length, idle), begin, stream in zip(CASES, begins, streams, strict=True):
        found = detect(stream, length, published=published)
        cycles = slice(begin, begin + len(stream))
        assert seen["open_o"][cycles] == [cycle >= found.opened for cycle in range(len(stream))], (
            shift,
            length,
            idle,
        )
        after = slice(begin + found.opened, cycles.stop)
        if found.opened >= 5:  # what is older than the restart the model does not know
            assert set(seen["place_o"][after]) == {found.place}
            assert seen["samples_o"][after][:-1] == as_words(found.samples[found.opened :])[:-1]
        leaks += found.opened < IDLE_CYCLES + length + 5
    assert leaks == (8 * 3 + 16 * 2 if published else 0)


@pytest.mark.hdl
@pytest.mark.parametrize(("lanes", "stages"), [(16, 4), (4, 2)])
def test_the_window_takes_the_mean_of_every_run(unit, lanes, stages):
    bits = 16 * lanes
    block = unit(
        "preamble_window", {"samples_i": bits}, {"current_o": bits, "next_o": bits, "means_o": bits},
        Lanes=lanes, Width=16, Stages=stages,
    )  # fmt: skip
    samples = np.random.default_rng(1).integers(0, 65536, (40, lanes)).astype(np.uint16)
    seen = block.run({"samples_i": as_words(samples)})
    late = stages + 1
    runs = np.lib.stride_tricks.sliding_window_view(samples.ravel(), lanes)
    expected = means(runs)[: (len(samples) - late) * lanes].reshape(-1, lanes)
    assert seen["current_o"][late:] == as_words(samples[:-late])
    assert seen["next_o"][late:] == as_words(samples[1 : len(samples) - late + 1])
    assert seen["means_o"][late:] == as_words(expected)
