"""Words become pulses, pulses become samples: the queue, the oscillator, envelopes, the converter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.twins.rfsoc.signals.track import INFINITE_TICK, PHASE_TURN, Generator, make_track
from sim.twins.rfsoc.signals.waves import INPUT, OSCILLATOR, PRODUCT, ZERO, Waves, decode_words

GENERATOR = Generator(rate_hz=6.144e9, ticks_per_processor_tick=1.0, samples_per_tick=16)
ENVELOPE = np.stack([np.arange(4096) - 2048, 1000 - np.arange(4096)], axis=1).astype(np.int16)
FLAT = np.zeros((16, 2), np.int16)


def wave(*, freq=0, phase=0, address=0, gain=32767, length=4, source=OSCILLATOR, mode=0, held=0, reset=0):
    """Return a word of version 2; mode 1 is periodic."""
    conf = source | mode << 2 | (1 - held) << 3 | reset << 4
    return [freq % PHASE_TURN, phase % PHASE_TURN, address, gain & 0xFFFF, length, conf]


def track(*sent, standing=None, generator=GENERATOR):
    """Return (time, word) pairs, played."""
    words = np.array([word for _, word in sent], np.uint32).reshape(-1, 6)
    times = np.array([time for time, _ in sent], np.int64)
    return make_track(generator, times, decode_words(words, 2), standing)


def counts(fractions):
    """Return samples as the converter's integers of 16 bits."""
    return np.rint(fractions * 32768).astype(int)


def test_both_processors_words_say_the_same():
    conf = INPUT | 1 << 2 | 1 << 4
    one = decode_words(np.array([[7, 9, 3, 0xFFFE, 0xFFFF & 77 | conf << 16, 0]], np.uint32), 1)
    two = decode_words(np.array([[7, 9, 3, 0xFFFFFFFE, 77, conf]], np.uint32), 2)
    assert one.encode_rows() == two.encode_rows()
    assert (one.gain[0], one.length[0], one.source[0]) == (-2, 77, INPUT)
    assert (bool(one.is_periodic[0]), bool(one.is_held[0]), bool(one.is_reset[0])) == (True, True, True)


def test_the_upper_byte_of_version_2_is_the_lane_of_a_multiplexer():
    assert decode_words(np.array([[0, 0, 0, 0, 3, 0x0208]], np.uint32), 2).mux_channel[0] == 2


def test_a_pulse_waits_for_the_one_before():
    made = track((0, wave(length=10)), (4, wave(length=5)), (40, wave(length=3)))
    assert made.starts.tolist() == [0, 160, 640]
    assert made.ends.tolist() == [160, 240, 688]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.booleans()), min_size=1, max_size=12))
def test_pulses_never_overlap_and_begin_as_soon_as_they_may(pulses):
    pulses = sorted(pulses, key=lambda pulse: pulse[0])
    made = track(*((time, wave(length=length, mode=int(periodic))) for time, length, periodic in pulses))
    free, period, begun = 0, None, 0
    for i, (time, length, periodic) in enumerate(pulses):
        if period is not None:  # a whole period, at least one
            free = begun + max(-(-(time - begun) // period), 1) * period
        assert made.starts[i] == 16 * max(time, free)
        begun = int(made.starts[i]) // 16
        free, period = begun + length, length if periodic else None
        last = i + 1 == len(pulses)
        assert made.ends[i] == ((INFINITE_TICK if last else made.starts[i + 1]) if periodic else 16 * free)


def test_constant_pulses_have_the_gain_as_level_in_steps_of_14_bits():
    samples = track((1, wave(gain=20000, length=2))).compute_samples(FLAT, 0, 64)
    assert counts(samples)[16:48].tolist() == [19996] * 32  # 32767 * 20000 >> 15 = 19999, of which 14 bits
    assert samples[:16].tolist() == [0.0] * 16
    assert samples[48:].tolist() == [0.0] * 16


def test_a_negative_gain_turns_the_level():
    assert counts(track((0, wave(gain=-20000))).compute_samples(FLAT, 0, 1))[0] == -20000


def test_the_oscillator_counts_on_through_pauses_and_pulses():
    freq = PHASE_TURN // 96
    made = track((0, wave(freq=freq, length=3)), (11, wave(freq=freq, length=3)))
    expected = 32767 * np.cos(2 * np.pi * freq / PHASE_TURN * np.arange(176, 224))
    assert counts(made.compute_samples(FLAT, 176, 48)) == pytest.approx(expected, abs=5)


def test_a_reset_begins_it_anew_for_all_that_follow():
    freq = PHASE_TURN // 96
    made = track((0, wave(freq=freq)), (7, wave(freq=freq, reset=1)), (21, wave(freq=freq)))
    assert made.phases.tolist() == [0, 0, freq * (21 - 7) * 16 % PHASE_TURN]


def test_envelopes_are_picked_from_their_address_and_end_with_the_memory():
    made = track((0, wave(source=INPUT, address=254, length=4)))
    picked = ENVELOPE[(254 * 16 + np.arange(64)) % 4096, 0].astype(int)
    assert counts(made.compute_samples(ENVELOPE, 0, 64)).tolist() == [
        (int(v) * 32767 >> 15) & -4 for v in picked
    ]


def test_a_product_is_half_of_the_complex_product():
    freq, address = PHASE_TURN // 80, 20
    made = track((0, wave(freq=freq, source=PRODUCT, address=address, length=4)))
    angle = 2 * np.pi * freq / PHASE_TURN * np.arange(64)
    rows = ENVELOPE[address * 16 + np.arange(64)].astype(float)
    expected = (np.cos(angle) * rows[:, 0] - np.sin(angle) * rows[:, 1]) / 2
    assert counts(made.compute_samples(ENVELOPE, 0, 64)) == pytest.approx(expected, abs=6)


def test_nothing_goes_out_where_nothing_is_chosen():
    assert not track((0, wave(source=ZERO))).compute_samples(ENVELOPE, 0, 64).any()


def test_the_last_sample_is_held_until_the_next_pulse():
    made = track((0, wave(source=INPUT, length=3, held=1)), (9, wave(length=3, gain=0)))
    samples = counts(made.compute_samples(ENVELOPE, 0, 160))
    assert samples[48:144].tolist() == [samples[47]] * 96
    assert samples[144:].tolist() == [0] * 16


def test_what_stands_after_a_run_stands_before_the_next():
    before = track((0, wave(source=INPUT, length=3, held=1)))
    after = track((5, wave(length=3)), standing=before.find_channel_state())
    assert (
        after.compute_samples(ENVELOPE, 0, 80).tolist() == [before.compute_samples(ENVELOPE, 47, 1)[0]] * 80
    )
    assert track((0, wave())).find_channel_state() is None


def test_a_periodic_pulse_stands_too():
    before = track((0, wave(source=INPUT, length=3, mode=1)))
    after = track(standing=before.find_channel_state())
    assert after.compute_samples(ENVELOPE, 0, 96).tolist() == before.compute_samples(ENVELOPE, 0, 96).tolist()


def test_times_are_rounded_up_to_the_generators_own_clock():
    made = track((1, wave()), generator=Generator(9.58464e9, 599.04 / 430.08, 16))
    assert made.starts.tolist() == [2 * 16]


words = st.builds(
    wave,
    freq=st.sampled_from([0, 0, PHASE_TURN // 64, 12345678]),
    phase=st.sampled_from([0, PHASE_TURN // 8]),
    address=st.integers(0, 255),
    gain=st.integers(-32768, 32767),
    length=st.integers(1, 8),
    source=st.sampled_from([PRODUCT, OSCILLATOR, OSCILLATOR, INPUT, ZERO]),
    mode=st.sampled_from([0, 0, 0, 1]),
    held=st.integers(0, 1),
    reset=st.integers(0, 1),
)
sendings = st.lists(st.tuples(st.integers(0, 60), words), max_size=6).map(
    lambda s: sorted(s, key=lambda w: w[0])
)


@given(sendings, st.integers(-50, 900), st.integers(1, 300))
def test_any_stretch_is_a_piece_of_the_whole(sent, first, count):
    made = track(*sent)
    whole = made.compute_samples(ENVELOPE, -50, 1300)
    assert (
        made.compute_samples(ENVELOPE, first, count).tolist()
        == whole[first + 50 : first + 50 + count].tolist()
    )


def test_equal_signatures_mean_equal_samples_and_are_not_rare():
    """The reuse of traces rests on this: over random runs, stretches that say the same are the same."""
    rng = np.random.default_rng(5)
    seen: dict = {}
    same = 0
    for _ in range(400):
        sent = [
            (int(time), wave(gain=int(rng.integers(1, 3)) * 9000, length=int(rng.integers(1, 3)),
                             freq=int(rng.integers(0, 2)) * PHASE_TURN // 64, source=int(rng.integers(0, 3)),
                             held=int(rng.integers(0, 2))))
            for time in np.sort(rng.integers(0, 12, rng.integers(0, 3)))
        ]  # fmt: skip
        made = track(*sent)
        for first in (0, 64, 128, 192):
            samples = made.compute_samples(ENVELOPE, first, 64).tolist()
            known = seen.setdefault(made.make_signature(first, 64), samples)
            assert known == samples
            same += known is not samples
    assert same > 400
    assert len(seen) > 200


def test_an_empty_track_is_silent():
    assert not track().compute_samples(FLAT, -10, 20).any()
    assert track().make_signature(0, 10) == ()
    assert isinstance(track().waves, Waves)
