import numpy as np
import pytest

from lightning.kit.calibration.decoder import (
    DecodedLevel,
    Decoder,
    compute_accuracy,
    compute_rms_error,
    compute_true_product,
    fit_decoder,
    round_products,
)

KNOWN = Decoder(
    offset=12.0,
    leak=(40.0, 31.0, 22.0, 50.0),
    gain=(15_000.0, 14_000.0),
    curvature=2e-7,
    shared=7_000.0,
    full_scale=16_384.0,
    residual_rms=0.0,
)


def random_operands(seed, count):
    rng = np.random.default_rng(seed)
    v = rng.random((count, 4))
    v[: count // 3, 2:] = 0
    v[count // 3 : 2 * count // 3, :2] = 0
    return v


def test_the_regression_finds_every_coefficient():
    v = random_operands(1, 300)
    found = fit_decoder(KNOWN.predict(v), v, shared_gain=7_000.0, full_scale=16_384.0)
    assert found.offset == pytest.approx(12.0, abs=1e-3)
    assert found.leak == pytest.approx(KNOWN.leak, abs=1e-2)
    assert found.gain == pytest.approx(KNOWN.gain, rel=1e-6)
    assert found.curvature == pytest.approx(2e-7, rel=1e-4)
    assert found.residual_rms < 1e-4


def test_decoding_undoes_what_is_expected():
    v = random_operands(2, 300)
    lit = np.stack([v[:, :2].any(axis=1), v[:, 2:].any(axis=1)], axis=1)
    answers = KNOWN.decode(KNOWN.predict(v), v, lit)
    alone = ~lit.all(axis=1)
    truth = 255 * (v[:, 0] * v[:, 1] + v[:, 2] * v[:, 3])
    assert answers[alone] == pytest.approx(truth[alone], abs=1e-6)
    both = lit.all(axis=1)
    weighed = 255 * (15_000 * v[:, 0] * v[:, 1] + 14_000 * v[:, 2] * v[:, 3]) / 7_000
    assert answers[both] == pytest.approx(weighed[both], abs=1e-6)
    assert both.sum() >= 90
    assert alone.sum() >= 180


def test_a_decoder_needs_rows_that_tell_it_apart():
    with pytest.raises(ValueError, match="32 measured rows"):
        fit_decoder(np.ones(8), np.ones((8, 4)), shared_gain=1.0, full_scale=1.0)
    with pytest.raises(ValueError, match="vary all four operands"):
        fit_decoder(np.ones(64), np.ones((64, 4)), shared_gain=1.0, full_scale=1.0)


def test_answers_are_rounded_into_their_range_and_say_how_far_they_were():
    assert round_products([-3.0, 0.4, 254.6, 300.0]).tolist() == [0, 0, 255, 255]
    assert round_products([300.0, 600.0], product_count=2).tolist() == [300, 510]
    assert DecodedLevel(20, 19.6, is_saturated=False).residual == pytest.approx(-0.4)


def test_accuracy_is_the_published_measure():
    assert compute_true_product(255, 255) == 255.0
    assert compute_rms_error([3.0, 0.0], [255, 0], [0, 255]) == pytest.approx(np.sqrt(4.5))
    assert compute_accuracy([2.55], [0], [0]) == pytest.approx(99.0)


def test_rounding_alone_leaves_99_887_per_cent():
    a, b = np.meshgrid(np.arange(256), np.arange(256))
    assert compute_accuracy(np.rint(compute_true_product(a, b)), a, b) == pytest.approx(99.887, abs=0.001)


def test_constant_noise_of_one_sample_of_the_converter_leaves_99_25_per_cent():
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 256, (2, 65_536))
    v = np.zeros((a.size, 4))
    v[:, 0], v[:, 1] = a / 255, b / 255
    lit = np.tile([True, False], (a.size, 1))
    sigma = 1.6569279459762971 * KNOWN.gain[0] / 255
    noisy = KNOWN.predict(v) + sigma * rng.standard_normal(a.size)
    found = compute_accuracy(round_products(KNOWN.decode(noisy, v, lit)), a, b)
    assert found >= 99.25
    assert found == pytest.approx(99.36, abs=0.04)


def test_polynomials_cannot_take_leaks_off_and_ours_can(polynomial_decoder, chebyshev_decoder):
    rng = np.random.default_rng(6)
    values = rng.integers(0, 256, (4_096, 2))
    v = np.zeros((4_096, 4))
    v[:, :2] = values / 255
    y = KNOWN.predict(v)
    lit = np.tile([True, False], (4_096, 1))
    truth = compute_true_product(values[:, 0], values[:, 1])
    train, test = slice(0, 1_024), slice(1_024, None)
    ours = compute_rms_error(KNOWN.decode(y, v, lit)[test], values[test, 0], values[test, 1])
    second = polynomial_decoder(y[train], truth[train])(y[test])
    third = chebyshev_decoder(y[train], truth[train])(y[test])
    assert ours < 1e-6
    assert 0.05 < compute_rms_error(third, values[test, 0], values[test, 1]) < 1.0
    assert 0.05 < compute_rms_error(second, values[test, 0], values[test, 1]) < 1.0
