"""From triggers to memories: windows, conversion, mixing, decimation, sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.photonics.converter import Converter as AnalogueToDigital
from sim.models.photonics.converter import compute_converter_noise_v2, compute_excess_noise_v2
from sim.models.photonics.pole import compute_standard_error
from sim.twins.rfsoc.plant import ReceivedSignal
from sim.twins.rfsoc.processor import PIN_DTYPE
from sim.twins.rfsoc.signals.conversion import convert_levels, convert_levels_with_numpy
from sim.twins.rfsoc.signals.decimation import CUTOFF_FREQUENCY, GAIN, count_margin_samples, make_taps
from sim.twins.rfsoc.signals.level import Levels, Mixing, make_levels
from sim.twins.rfsoc.signals.readout import (
    MIN_WINDOW_GAP,
    AverageBuffer,
    find_trigger_rises,
    find_window_starts,
)
from sim.twins.rfsoc.signals.track import PHASE_TURN
from sim.twins.rfsoc.signals.waves import INPUT, OSCILLATOR, PRODUCT

CFG = {"avg_maxlen": 16, "buf_maxlen": 64}
VERSION_1 = {"trigger_type": "output", "trigger_port": 0, "trigger_bit": 14}
VERSION_2 = {"trigger_type": "tport", "trigger_port": 10, "trigger_bit": 0}


def pins(*rows):
    return np.array(list(rows), PIN_DTYPE)


def test_a_trigger_of_version_1_is_a_bit_of_a_port():
    levels = pins(
        (0, 0, 5, 1 << 14), (0, 0, 9, 0), (0, 1, 10, 1 << 14), (0, 0, 20, 3 << 14), (0, 0, 30, 1 << 14)
    )
    assert find_trigger_rises(levels, VERSION_1).tolist() == [5, 20]
    assert find_trigger_rises(levels, VERSION_1 | {"trigger_bit": 15}).tolist() == [20]


def test_a_trigger_of_version_2_is_a_port_of_its_own():
    levels = pins((1, 10, 5, 1), (1, 10, 9, 0), (1, 11, 10, 1), (0, 10, 12, 1), (1, 10, 20, 1))
    assert find_trigger_rises(levels, VERSION_2).tolist() == [5, 20]


def test_windows_begin_at_the_next_tick_of_the_output():
    assert find_window_starts(np.array([0, 1, 3]), 512 / 384, 1).tolist() == [0, 4]
    assert find_window_starts(np.array([1, 100]), 384 / 384, 10).tolist() == [1, 100]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 60))
def test_windows_never_overlap_and_lose_no_trigger_that_comes_after_their_end(gaps, length):
    at = np.cumsum(gaps)
    opened = find_window_starts(at, 1.0, length)
    assert opened[0] == at[0]
    assert (np.diff(opened) >= length + MIN_WINDOW_GAP).all()
    for trigger in set(at.tolist()) - set(opened.tolist()):
        assert any(start < trigger < start + length + MIN_WINDOW_GAP for start in opened)


def window_of(count, value=1):
    return np.full((1, count, 2), value, np.int16)


def test_sums_are_of_32_bits_and_samples_of_16():
    memory = AverageBuffer(CFG)
    memory.config_avg(0, 4)
    memory.config_buf(0, 4)
    memory.enable(avg=True, buf=True)
    memory.store(np.array([[[1, -1], [2, -2], [3, -3], [32767, -32768]]], np.int16))
    assert memory.read_sums(0, 1).tolist() == [[32773, -32774]]
    assert memory.read_samples(0, 4).tolist() == [[1, -1], [2, -2], [3, -3], [32767, -32768]]
    assert (memory.read_sums(0, 1).dtype, memory.read_samples(0, 1).dtype) == (np.int32, np.int16)


def test_memories_are_written_around_their_top_and_read_so():
    memory = AverageBuffer(CFG)
    memory.config_avg(14, 4)
    memory.config_buf(60, 4)
    memory.enable(avg=True, buf=True)
    for value in (1, 2, 3):
        memory.store(window_of(4, value))
    assert memory.read_sums(14, 3)[:, 0].tolist() == [4, 8, 12]
    assert memory.read_sums(0, 1)[:, 0].tolist() == [12]
    assert memory.read_samples(60, 12)[:, 0].tolist() == [1] * 4 + [2] * 4 + [3] * 4
    assert memory.last_sum.tolist() == [12, 12]


def test_more_than_a_memory_holds_leaves_the_latest():
    memory = AverageBuffer(CFG)
    memory.config_avg(0, 1)
    memory.enable(avg=True, buf=False)
    memory.store(np.arange(40, dtype=np.int16).repeat(2).reshape(40, 1, 2))
    assert memory.read_sums(8, 15)[:, 0].tolist() == [*range(24, 39)]


def test_configuring_disables_and_enabling_begins_at_the_start_address():
    memory = AverageBuffer(CFG)
    memory.config_avg(2, 4)
    memory.enable(avg=True, buf=False)
    memory.store(window_of(4))
    memory.config_buf(0, 4)
    assert memory.length == 0
    memory.store(window_of(4, 9))
    memory.enable(avg=True, buf=False)
    memory.store(window_of(4, 2))
    assert memory.read_sums(2, 1)[0, 0] == 8


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda memory: memory.config_buf(0, 64),
            "64 samples at once are too many: the memory has 64 places, one of which",
        ),
        (
            lambda memory: memory.read_samples(0, 64),
            "64 samples at once are too many: the memory has 64 places, one of which",
        ),
        (
            lambda memory: memory.read_sums(0, 16),
            "16 sums at once are too many: the memory has 16 places, one of which",
        ),
    ],
)
def test_lengths_that_qicks_driver_refuses_are_refused(call, said):
    with pytest.raises(RuntimeError, match=said):
        call(AverageBuffer(CFG))


def level(trace, noise=0.0, correlation=0.0, windows=1, own=None, bits=16):
    """Return a trace as a plant would answer it, before `bits` bits."""
    trace = np.asarray(trace, np.float64)
    received = ReceivedSignal(
        trace, np.full(len(trace), noise), correlation, None if own is None else np.full(len(trace), own)
    )
    return make_levels([received], np.zeros(windows, np.int64), bits)


def mixing(freq=0, turn=0, source=PRODUCT, windows=1):
    return Mixing(np.full(windows, freq), np.full(windows, turn), np.full(windows, source))


BOTH = pytest.mark.parametrize("way", [convert_levels, convert_levels_with_numpy])
FIR = make_taps("fir")


@BOTH
@pytest.mark.parametrize("source", [PRODUCT, INPUT])
@pytest.mark.parametrize("bits", [12, 14, 16])
def test_a_level_comes_out_halved_by_the_mixer_and_with_the_gain_of_the_filter(way, source, bits):
    value = 0.3
    out = way(
        np.random.default_rng(0), level(np.full(1000, value)), mixing(source=source), bits=bits, taps=FIR
    )
    code = np.floor(value * 2 ** (bits - 1) + 0.5) * 2 ** (16 - bits)
    expected = code * (0.5 if source == PRODUCT else 1.0) * GAIN
    assert out.shape == (1, 111, 2)
    assert out[0, :, 0] == pytest.approx(np.full(111, expected), abs=1.0)
    assert not out[0, :, 1].any()


@BOTH
def test_the_converter_clips(way):
    out = way(
        np.random.default_rng(0),
        level(np.full(128, 3.0)),
        mixing(source=INPUT),
        bits=12,
        taps=make_taps("mean"),
    )
    assert out[0, :, 0] == pytest.approx(np.full(16, 2047 * 16 * GAIN), abs=1)
    out = way(
        np.random.default_rng(0),
        level(np.full(128, -3.0)),
        mixing(source=INPUT),
        bits=12,
        taps=make_taps("mean"),
    )
    assert out[0, :, 0] == pytest.approx(np.full(16, -32768 * GAIN), abs=1)


@BOTH
def test_the_oscillator_alone_turns_as_it_is_told(way):
    freq = PHASE_TURN // 800
    out = way(
        np.random.default_rng(0),
        level(np.zeros(1720)),
        mixing(freq=freq, source=OSCILLATOR),
        bits=12,
        taps=FIR,
    )
    seen = out[0] @ [1, 1j]
    turns = (np.arange(201) * 8 + 59.5) / 800  # a filter of 120 taps looks at its middle
    assert seen == pytest.approx(32767 * GAIN * np.exp(2j * np.pi * turns), abs=3)


@BOTH
def test_a_phase_turns_a_level(way):
    out = way(
        np.random.default_rng(0), level(np.full(800, 0.5)), mixing(turn=PHASE_TURN // 8), bits=16, taps=FIR
    )
    assert np.angle(out[0].mean(axis=0) @ [1, 1j], deg=True) == pytest.approx(45.0, abs=0.05)


def test_both_ways_give_the_same_for_the_same_seed():
    pytest.importorskip("numba")
    rng = np.random.default_rng(3)
    traces = Levels(rng.uniform(-1, 1, (3, 920)), rng.uniform(0, 0.1, (3, 920)), np.array([0.0, 0.3, 0.9]),
                   rng.uniform(0, 0.05, (3, 920)), np.array([0, 2, 1, 1, 0]))  # fmt: skip
    mixed = Mixing(
        np.array([0, 0, 12345678, PHASE_TURN - 5, 7]),
        np.array([0, 99, 7, 0, 1 << 31]),
        np.array([PRODUCT, INPUT, PRODUCT, OSCILLATOR, PRODUCT]),
    )
    one, other = (
        way(np.random.default_rng(8), traces, mixed, bits=12, taps=FIR).astype(int)
        for way in (convert_levels, convert_levels_with_numpy)
    )
    assert np.abs(one - other).max() <= 1
    assert (one == other).mean() > 0.999


@BOTH
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_noise_of_the_converter_has_no_memory_whatever_the_bandwidth(way, correlation):
    """Means of eight neighbours tell memory. 100,000 of them: four deviations of a variance are 1.8 %, and those
    of strong correlation count for less."""
    sigma, own, count = 0.01, 0.02, 800_000
    arriving = level(np.zeros(count), sigma, correlation, own=own)
    out = way(np.random.default_rng(2), arriving, mixing(source=INPUT), bits=16, taps=make_taps("mean"))
    expected = np.hypot(compute_standard_error(sigma, correlation, 8), own / np.sqrt(8)) * 32768 * GAIN
    assert out[0, :, 0].std() == pytest.approx(expected, rel=0.018 if correlation else 0.009)


@pytest.mark.slow
@BOTH
def test_a_converters_noise_counts_its_rounding_once(way):
    """ENOB 10.1 in 12 bits: rounding is 7 % of its variance. 100,000 samples: four deviations of it are 1.8 %."""
    own, ramp = 2 / 2**10.1 / np.sqrt(12), np.linspace(0.1, 0.9, 800_000)  # every place between two codes
    out = way(
        np.random.default_rng(3),
        level(ramp, own=own, bits=12),
        mixing(source=INPUT),
        bits=12,
        taps=make_taps("mean"),
    )
    noise = out[0, :, 0] - ramp.reshape(-1, 8).mean(axis=1) * 32768 * GAIN
    expected = (own * 32768 * GAIN) ** 2 / 8 + 1 / 12  # the filter's result is rounded
    assert noise.var() == pytest.approx(expected, rel=0.018)


@pytest.mark.parametrize("bits", [12, 16, 8])
def test_beside_the_rounding_a_converter_has_what_the_model_says_and_nothing_where_bits_are_few(bits):
    own = np.array(
        [compute_converter_noise_v2(AnalogueToDigital(bits=16, full_scale_v=2.0, effective_bits=10.1)) ** 0.5]
    )
    got = make_levels(
        [ReceivedSignal(np.zeros(1), np.zeros(1), 0.0, own)], np.zeros(1, np.int64), bits
    ).noises[0, 0]
    if bits < 10.1:
        assert got == 0.0
    else:
        model = AnalogueToDigital(bits=bits, full_scale_v=2.0, effective_bits=10.1)
        assert got**2 == pytest.approx(compute_excess_noise_v2(model), rel=1e-9)


def test_of_hardly_correlated_noise_the_converters_is_drawn_in_one_go():
    one, two = (level(np.zeros(5), 0.03, correlation, own=0.04) for correlation in (0.0055, 0.02))
    assert one.converter_noises.shape == (1, 0)
    assert one.noises == pytest.approx(np.full((1, 5), 0.05), rel=1e-6)
    assert two.noises == pytest.approx(np.full((1, 5), 0.03))
    assert two.converter_noises == pytest.approx(np.full((1, 5), 0.04), rel=1e-6)


@BOTH
def test_noise_has_the_variance_it_is_given_and_is_narrowed_by_the_filter(way):
    """100,000 samples out of 16 bits: the relative deviation of a variance is sqrt(2 / n) = 0.45 %; four of them."""
    sigma, count = 0.02, 800_000
    out = way(
        np.random.default_rng(1),
        level(np.zeros(count), sigma),
        mixing(source=INPUT),
        bits=16,
        taps=make_taps("mean"),
    )
    expected = sigma * 32768 * GAIN / np.sqrt(8)
    assert out[0, :, 0].astype(float).var() == pytest.approx(expected**2 + 1 / 12, rel=0.018)


@BOTH
@pytest.mark.parametrize("correlation", [0.005, 0.6])
def test_neighbouring_samples_are_as_correlated_as_the_plant_says(way, correlation):
    """The mean of eight of an autoregression: var = s^2 / 8 (1 + 2 sum (1 - k / 8) r^k)."""
    sigma, count = 0.02, 800_000
    out = way(
        np.random.default_rng(2), level(np.zeros(count), sigma, correlation), mixing(source=INPUT), bits=16,
        taps=make_taps("mean"),
    )  # fmt: skip
    k = np.arange(1, 8)
    factor = (1 + 2 * ((1 - k / 8) * correlation**k).sum()) / 8
    assert out[0, :, 0].astype(float).var() == pytest.approx((sigma * 32768 * GAIN) ** 2 * factor, rel=0.03)


def test_noise_is_drawn_anew_for_each_window():
    out = convert_levels(
        np.random.default_rng(1), level(np.zeros(920), 0.01, windows=2), mixing(windows=2), bits=12, taps=FIR
    )
    assert (out[0] != out[1]).any()


def test_the_filter_is_down_by_six_decibels_at_its_edge_and_by_sixty_beyond():
    response = np.abs(np.fft.rfft(FIR, 1 << 15)) / GAIN
    turns = np.arange(len(response)) / (1 << 15)
    assert 20 * np.log10(response[np.argmin(np.abs(turns - CUTOFF_FREQUENCY))]) == pytest.approx(
        -6.0, abs=0.1
    )
    assert response[turns > 0.067].max() < 1e-3
    assert response[turns < 0.03].min() > 0.998
    assert count_margin_samples(len(FIR)) == 56


def test_an_unknown_filter_is_refused():
    with pytest.raises(ValueError, match="filter must be one of fir, mean, not"):
        make_taps("boxcar")
