"""Sweeps, encoders, decoder, drift and products on numbers: no device, no converter, no QICK."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from lightning import errors
from lightning.kit.calibration.decoder import compute_accuracy, compute_true_product, fit_decoder
from lightning.kit.calibration.document import Calibration, Modulator, Timing
from lightning.kit.calibration.drift import Monitor, measure_drift, recalibrate
from lightning.kit.calibration.measurement import pairs
from lightning.kit.calibration.measurement.transfer import find_coarse_curves, sweep_modulators
from lightning.kit.calibration.noise import NoiseModel
from lightning.kit.compute import LightningCompute

pytestmark = pytest.mark.board


class Device:
    simulated = True
    identity = "numeric"


def calibrated(kit, seed=0):
    sweeps = sweep_modulators(kit, find_coarse_curves(kit))
    coded = pairs.make_encoders(sweeps, full_scale=kit.end, idle_level=kit.offset)
    decoder, _ = pairs.train_decoder(
        kit, coded, full_scale=kit.end, rng=np.random.default_rng(seed), shots=16
    )
    modulators = [
        Modulator(
            i,
            sweeps[i].curve,
            coded.full_encoders[i],
            coded.shared_encoders[i],
            float(sweeps[i ^ 1].curve.compute_share(sweeps[i].partner_word)),
        )
        for i in range(4)
    ]
    return Calibration(
        "numeric",
        datetime.now(UTC),
        "measured",
        True,
        1,
        tuple(modulators),
        decoder,
        NoiseModel(1.0, 0.0, 0.0, 0.0, 1),
        Timing((0.0, 0.0, 0.0, 0.0), 2.6, 0),
    )


def compute_on(kit, **options):
    return LightningCompute(Device(), calibrated(kit), rows=kit, **options)


@pytest.mark.slow
def test_in_float64_below_the_converters_no_product_of_65_536_is_wrong(numeric_kit):
    kit = numeric_kit.random(5)
    curves = [sweep.curve for _, sweep in sorted(sweep_modulators(kit, find_coarse_curves(kit)).items())]
    share = np.arange(256) / 255
    exact = [np.array([curve.find_setting(a) for a in np.arcsin(np.sqrt(share))]) for curve in curves]
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(256), np.arange(256)))

    def rows(values):
        words = np.stack([exact[i][values[:, i]] for i in range(4)], axis=1)
        return kit.read(words).levels

    training = np.random.default_rng(1).integers(0, 256, (600, 4))
    training[:300, 2:], training[300:, :2] = 0, 0
    decoder = fit_decoder(rows(training), training / 255, shared_gain=1.0, full_scale=kit.end)
    values = np.stack([a, b, np.zeros_like(a), np.zeros_like(a)], axis=1)
    lit = np.tile([True, False], (a.size, 1))
    found = np.rint(decoder.decode(rows(values), values / 255, lit))
    assert (found != np.rint(compute_true_product(a, b))).sum() == 0


@pytest.mark.long
def test_curves_of_random_kits_are_found_from_nothing(numeric_kit):
    for seed in range(12):
        kit = numeric_kit.random(seed, sigma=15.0)
        sweeps = sweep_modulators(kit, find_coarse_curves(kit))
        for i in range(4):
            assert sweeps[i].curve.half_wave == pytest.approx(kit.half_wave[i], rel=3e-3)
            assert sweeps[i].curve.null == pytest.approx(kit.null[i], abs=60)
            assert sweeps[i].residual < 0.002
            assert sweeps[i].polynomial_residual() > 0.02
            assert sweeps[i].chebyshev_residual() > 2e-4


@pytest.mark.long
def test_products_of_random_kits_are_right(numeric_kit):
    rng = np.random.default_rng(9)
    a, b = rng.integers(0, 256, (2, 2_000))
    for seed in range(4):
        compute = compute_on(numeric_kit.random(seed, sigma=15.0))
        assert compute_accuracy(compute.multiply(a, b), a, b) >= 99.85


@pytest.mark.slow
def test_numbers_give_numbers_and_arrays_arrays(numeric_kit):
    compute = compute_on(numeric_kit())
    assert compute.multiply(100, 50) == 20
    assert isinstance(compute.multiply(100, 50), int)
    assert compute.multiply(-100, 50) == compute.multiply(100, -50) == -20
    assert compute.multiply(-100, -50) == 20
    assert compute.multiply([[1, 255], [255, 0]], 255).tolist() == [[1, 255], [255, 0]]
    assert compute.multiply_accumulate([255, 255], [255, 255]) == 510
    assert compute.multiply_accumulate([255, -255], [255, 255]) == 0
    assert compute.multiply_accumulate([-255, -100], [255, 50]) == -275
    assert compute.multiply_accumulate([[0, 0]], [[3, 4]]).tolist() == [0]


def test_sums_of_one_sign_take_one_row_and_of_two_signs_two(numeric_kit):
    compute = compute_on(numeric_kit())
    before = compute.rows.rows_read
    compute.multiply_accumulate([[10, 20]] * 5, [[30, 40]] * 5, shots=1)
    assert compute.rows.rows_read - before == 5
    compute.multiply_accumulate([[10, -20]] * 5, [[30, 40]] * 5, shots=1)
    assert compute.rows.rows_read - before == 15


@pytest.mark.slow
@pytest.mark.parametrize("bad", [256, -256, 0.5, [1, 2.5]])
def test_operands_outside_are_refused(numeric_kit, bad):
    compute = compute_on(numeric_kit())
    with pytest.raises(errors.OutOfRange, match="-255 to 255"):
        compute.multiply(bad, 1)
    with pytest.raises(errors.OutOfRange, match="axis of 2"):
        compute.multiply_accumulate([1, 2, 3], [1, 2, 3])


def test_products_in_the_dark_are_reported_and_stay_in_their_range(numeric_kit):
    kit = numeric_kit(sigma=10.0)
    compute = compute_on(kit)
    kit.strength = (0.0, 0.0)
    with pytest.warns(errors.DarkWarning, match=r"numeric: no light came for 2 answers.*laser on"):
        assert compute.multiply([200, -200, 3], [200, 200, 2]).tolist() == [0, 0, 0]
    with pytest.warns(errors.DarkWarning, match="laser on"):
        assert compute.multiply_accumulate([200, 200], [200, -200]) == 0
    dark = compute.decode(0.0, {0: 200, 1: 200})
    assert (dark.value, dark.is_dark) == (0, True)
    assert not compute.decode(0.0, {0: 10, 1: 10}).is_dark


def test_a_lit_kit_never_warns_of_darkness(numeric_kit):
    kit = numeric_kit(sigma=60.0)
    compute = compute_on(kit)
    a, b = np.random.default_rng(4).integers(0, 256, (2, 4_000))
    compute.multiply(a, b, shots=1)


@pytest.mark.slow
def test_another_devices_calibration_is_refused(numeric_kit):
    class Other:
        identity = "other"

    with pytest.raises(errors.ForeignCalibration, match="numeric"):
        LightningCompute(Other(), calibrated(numeric_kit()), rows=numeric_kit())


def test_the_monitor_measures_when_it_is_due_and_asks_for_a_calibration(numeric_kit):
    kit, now = numeric_kit(sigma=10.0), [0.0]
    monitor = Monitor(kit, calibrated(kit), interval_s=60, clock=lambda: now[0])
    assert not monitor.inspect().needs_recalibration
    kit.null = tuple(null + 1_000 for null in kit.null)
    read = kit.rows_read
    now[0] = 59.0
    monitor.inspect()
    assert kit.rows_read == read
    now[0] = 60.0
    with pytest.raises(errors.StaleCalibration, match="drifted"):
        monitor.inspect()
    assert monitor.last_drift.needs_recalibration
    with pytest.raises(errors.StaleCalibration):
        monitor.inspect()


@pytest.mark.slow
def test_one_sweep_per_modulator_after_a_drift_in_either_direction(numeric_kit):
    for direction in (-1, 1):
        kit = numeric_kit.random(3, sigma=10.0)
        old = calibrated(kit)
        kit.null = tuple(
            null + direction * 0.05 * half for null, half in zip(kit.null, kit.half_wave, strict=True)
        )
        before = kit.rows_read
        assert measure_drift(kit, old).rms_error > 5.0
        fresh = recalibrate(kit, old, shots=1)
        assert measure_drift(kit, fresh).rms_error < 0.3
        assert kit.rows_read - before == 3 * 50 * 16 + 4 * 256 + 16


@pytest.mark.slow
def test_a_dark_device_cannot_be_recalibrated_by_sweeps(numeric_kit):
    kit = numeric_kit()
    old = calibrated(kit)
    kit.strength = (0.0, 0.0)
    with pytest.raises(errors.CalibrationError, match="calibrate"):
        recalibrate(kit, old)


@pytest.mark.slow
def test_no_calibration_comes_of_sweeps_that_clip(numeric_kit):
    for brighter in (1.06, 1.15, 1.26):
        kit = numeric_kit(sigma=10.0)
        old = calibrated(kit)
        kit.strength = tuple(brighter * strength for strength in kit.strength)
        with pytest.raises(errors.CalibrationError, match="calibrate"):
            recalibrate(kit, old)
    kit = numeric_kit(sigma=10.0)
    old = calibrated(kit)
    kit.strength = tuple(0.9 * strength for strength in kit.strength)
    assert measure_drift(kit, recalibrate(kit, old)).rms_error < 0.3


def test_a_stronger_pair_is_dimmed_in_sums(numeric_kit):
    kit = numeric_kit(strength=(15_000.0, 5_000.0))
    compute = compute_on(kit)
    top = compute.calibration.modulators[0].shared.operands[255]
    assert top == pytest.approx(1 / 3, abs=0.01)
    assert compute.multiply_accumulate([255, 255], [100, 50]) == pytest.approx(150, abs=1)
