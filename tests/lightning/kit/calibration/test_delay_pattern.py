import numpy as np
import pytest

from lightning.kit.calibration.measurement.batch import Window
from lightning.kit.calibration.measurement.delay import locate_pattern, make_chips, make_pattern

FINE = 8


def received(ticks, length=800, swing=500.0, sigma=0.0, seed=0):
    """Return the pattern at `ticks` on a time line 8 times as fine, behind a readout's low-pass filter."""
    edges = np.clip(np.arange(length * FINE + 1) / FINE - ticks, 0, make_pattern().size)
    integral = np.concatenate([[0], np.cumsum(make_pattern())])
    line = np.diff(np.interp(edges, np.arange(integral.size), integral)) * FINE
    taps = np.sinc(0.766 / FINE * (np.arange(15 * FINE) - (15 * FINE - 1) / 2)) * np.kaiser(15 * FINE, 5.0)
    filtered = np.convolve(line, taps / taps.sum())[63:][: length * FINE : FINE]
    noise = sigma * np.random.default_rng(seed).standard_normal(length)
    return 1_000 + swing * filtered + noise


def test_the_pattern_agrees_with_no_shift_of_itself():
    sequence = 2 * make_chips() - 1
    products = [int(sequence @ np.roll(sequence, shift)) for shift in range(127)]
    assert products[0] == 127
    assert set(products[1:]) == {-1}


@pytest.mark.slow
def test_whole_and_broken_ticks_are_found_in_noise():
    rng = np.random.default_rng(4)
    wrong = []
    for seed in range(40):
        ticks = float(rng.uniform(0, 500))
        found = locate_pattern(received(ticks, sigma=5.0, seed=seed))
        wrong.append(found.ticks - ticks)
        assert found.swing == pytest.approx(500, rel=0.1)
        assert found.correlation > 0.98
    assert np.abs(wrong).max() < 0.02


def test_an_inverted_pattern_has_a_negative_swing():
    found = locate_pattern(received(123.5, swing=-400.0))
    assert found.ticks == pytest.approx(123.5, abs=0.01)
    assert found.swing == pytest.approx(-400.0, rel=0.1)


def test_noise_alone_is_not_believed():
    found = locate_pattern(np.random.default_rng(1).normal(0, 5, 900))
    assert found.correlation < 0.6


def test_silence_has_no_quality():
    assert locate_pattern(np.full(900, 7.0)).correlation == 0.0


def test_a_trace_must_hold_the_pattern():
    with pytest.raises(ValueError, match="cannot hold the pattern"):
        locate_pattern(np.zeros(200))


def test_a_window_follows_the_latest_light_and_delays_the_others():
    window = Window.for_arrival((146.0, 151.2, 146.4, 149.0), length=8)
    assert window.delays == (5, 0, 5, 2)
    assert window.offset == 152 + window.lead_ticks
    assert window.pulse_length == 8 + 2 * window.lead_ticks
