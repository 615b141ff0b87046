import numpy as np
import pytest

from lightning.kit.calibration.encoder import dim_encoder, make_encoder
from lightning.kit.calibration.fringe import Fringe, fit_fringe

WORDS = np.linspace(-6_000, 32_766, 256).round()


def fringe_levels(words, half_wave, null, baseline, amplitude):
    return baseline + amplitude * np.sin(np.pi / 2 * (words - null) / half_wave) ** 2


def test_the_fit_finds_half_wave_and_null_of_a_clean_sweep():
    found = fit_fringe(WORDS, fringe_levels(WORDS, 20_123.0, -377.0, 900.0, 15_000.0))
    assert found.half_wave == pytest.approx(20_123.0, rel=1e-9)
    assert found.null == pytest.approx(-377.0, abs=1e-4)
    assert found.baseline == pytest.approx(900.0, abs=1e-5)
    assert found.amplitude == pytest.approx(15_000.0, rel=1e-9)
    assert found.peak == pytest.approx(20_123.0 - 377.0, abs=1e-3)
    assert found.quadrature == pytest.approx(20_123.0 / 2 - 377.0, abs=1e-3)
    assert len(found.phase) == 2


@pytest.mark.long
def test_the_fit_finds_every_one_of_many_random_fringes_in_noise():
    rng = np.random.default_rng(11)
    inverted = 0
    for _ in range(60):
        half_wave, null = rng.uniform(9_000, 40_000), rng.uniform(-0.45, 0.45)
        amplitude = rng.choice([-1, 1]) * rng.uniform(1_000, 20_000)
        inverted += amplitude < 0
        y = fringe_levels(WORDS, half_wave, null * half_wave, 300.0, amplitude)
        found = fit_fringe(WORDS, y + rng.normal(0, 0.003 * abs(amplitude), y.size))
        assert found.amplitude > 0
        assert found.half_wave == pytest.approx(half_wave, rel=0.02)
        truth = (y - y.min()) / np.ptp(y) if half_wave < 16_000 else None
        if truth is not None:
            assert np.abs(found.compute_share(WORDS) - truth).max() < 0.02
    assert inverted >= 15


def test_an_inverted_fringe_has_its_null_where_light_is_least():
    found = fit_fringe(WORDS, fringe_levels(WORDS, 12_000.0, 1_000.0, 8_000.0, -7_500.0))
    assert float(found.compute_level(found.null)) == pytest.approx(500.0, abs=1e-3)
    assert found.null == pytest.approx(-11_000.0, abs=0.5) or found.null == pytest.approx(13_000.0, abs=0.5)


def test_a_driver_that_compresses_is_fitted_by_a_bent_phase_and_a_straight_one_is_not_bent():
    rng = np.random.default_rng(3)
    compressed = 26_000 * np.tanh(WORDS / 26_000)
    noise = rng.normal(0, 20.0, WORDS.size)
    bent = fit_fringe(WORDS, fringe_levels(compressed, 16_000.0, 100.0, 0.0, 15_000.0) + noise)
    straight = fit_fringe(WORDS, fringe_levels(WORDS, 20_000.0, 100.0, 0.0, 15_000.0) + noise)
    assert len(bent.phase) == 4
    assert bent.rms < 90.0
    assert len(straight.phase) == 2


def test_too_few_or_broken_points_are_refused():
    with pytest.raises(ValueError, match="16 finite points"):
        fit_fringe(WORDS[:12], np.ones(12))
    with pytest.raises(ValueError, match="16 finite points"):
        fit_fringe(WORDS, np.full(256, np.nan))


def test_the_encoder_is_linear_within_half_a_word():
    curve = fit_fringe(WORDS, fringe_levels(WORDS, 20_000.0, 250.0, 0.0, 1.0))
    coded = make_encoder(curve)
    steepest = np.pi / 2 / 20_000.0 * 0.5
    assert np.abs(coded.operands - np.arange(256) / 255).max() <= steepest * 1.01
    assert coded.words[0] == 250
    assert coded.words[255] == 20_250
    assert (np.diff(coded.words) > 0).all()
    exact = np.sin(np.pi / 2 * (coded.words - 250) / 20_000.0) ** 2
    assert coded.operands == pytest.approx(exact, abs=1e-9)


def test_a_modulator_that_the_words_do_not_open_fully_is_used_as_far_as_it_goes():
    curve = Fringe((0.0, np.pi / 2), 0.0, 50_000.0, 0.0, 1.0, 0.0)
    coded = make_encoder(curve)
    assert coded.words[255] == 32_766
    assert coded.top == pytest.approx(np.sin(np.pi / 2 * 32_766 / 50_000) ** 2)
    assert coded.operands[255] == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"words up to 32766 open the modulator to only 0\.065 of its range"):
        make_encoder(Fringe((0.0, np.pi / 2), 0.0, 200_000.0, 0.0, 1.0, 0.0))


def test_a_dimmed_encoder_gives_operands_in_the_unit_of_the_full_one():
    curve = Fringe((0.0, np.pi / 2), 0.0, 20_000.0, 0.0, 1.0, 0.0)
    full = make_encoder(curve)
    half = dim_encoder(curve, full, 0.5)
    assert half.words[255] == 10_000
    assert half.operands[255] == pytest.approx(0.5, abs=1e-4)
    assert half.operands == pytest.approx(0.5 * np.arange(256) / 255, abs=1e-4)
