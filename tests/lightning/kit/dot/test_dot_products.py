"""Dot products by light, on the kit's twin, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from libraries import skip_without

skip_without("qick")

import lightning
from lightning.errors import (
    CalibrationError,
    DarkWarning,
    DeviceGone,
    ForeignCalibration,
    OutOfRange,
    ProgramError,
)
from lightning.kit.calibration.drift import recalibrate
from lightning.kit.calibration.guided import run_guided
from lightning.kit.calibration.measurement.batch import TableReader
from lightning.kit.compute import LightningCompute
from lightning.kit.dot import Symbol, VectorCore, dot, get_core, matvec
from lightning.kit.dot.program import TileReader

pytestmark = pytest.mark.board

QUIET = "sim://kit?noise=off&adc_bits=16"


@pytest.fixture(scope="module")
def quiet(calibration):
    """Return a kit without noise: what is left is rounding in words, samples and counts."""
    return VectorCore(lightning.connect(QUIET), calibration)


@pytest.fixture(scope="module")
def noisy(calibration):
    return VectorCore(lightning.connect("sim://kit?seed=4"), calibration)


def vectors(seed, shape, low=-255):
    return np.random.default_rng(seed).integers(low, 256, (2, *shape))


def true_dot(weights, inputs):
    return (weights * inputs).sum(axis=-1) / 255


@pytest.mark.long
@pytest.mark.parametrize("low", [0, -255])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 784, 5000])
def test_without_noise_dot_products_are_numpys_within_rounding(quiet, length, low):
    """A quarter of 1/255 a product in a random walk, and 2e-4 of the answer."""
    weights, inputs = vectors(length, (6, length), low)
    truth = true_dot(weights, inputs)
    error = np.abs(quiet.analogue_dot(weights, inputs) - truth)
    assert (error <= 0.25 * np.sqrt(length) + 2e-4 * np.abs(truth)).all()


@pytest.mark.long
def test_default_noise_of_one_shot_leaves_half_a_255th_per_root_of_the_length(noisy):
    weights, inputs = vectors(1, (60, 784))
    error = noisy.analogue_dot(weights, inputs, shots=1) - true_dot(weights, inputs)
    per_root = np.sqrt(np.mean(error**2) / 784)
    assert 0.2 <= per_root <= 0.5
    assert 100 - 100 * np.sqrt(np.mean(error**2)) / (784 * 255) >= 99.99


@pytest.mark.slow
def test_more_shots_reduce_the_spread_as_their_root(noisy):
    """A ratio of two spreads of 80 differences has itself a spread of 11 %: a third is three of these."""
    weights, inputs = vectors(2, (1, 200))
    many = np.broadcast_to(weights, (80, 200)), np.broadcast_to(inputs, (80, 200))
    once, often = (np.std(noisy.analogue_dot(*many, shots=shots)) for shots in (1, 16))
    assert 4 * 2 / 3 <= once / often <= 4 * 3 / 2


@pytest.mark.slow
def test_signs_are_those_of_the_products(quiet):
    assert quiet.dot([255, -255, 255, -255], [255, 255, -255, -255]) == 0
    assert quiet.dot([255, -255], [255, -255]) == 510
    assert quiet.dot([255, -255], [-255, 255]) == -510


def test_two_vectors_give_an_int_and_arrays_an_array(quiet):
    answer = quiet.dot([100], [50])
    assert type(answer) is int
    assert answer == 20
    assert quiet.dot([[100]], [50]).tolist() == [20]


def test_zeros_are_exact_and_need_no_light(quiet):
    assert quiet.analogue_dot([0, 0, 5], [9, 0, 0]).item() == 0.0
    assert quiet.analogue_dot(np.zeros((3, 4)), np.ones((3, 4))).tolist() == [0.0, 0.0, 0.0]


def test_rows_of_a_batch_are_the_same_as_one_by_one(quiet):
    weights, inputs = vectors(3, (7, 90))
    batch = quiet.analogue_dot(weights, inputs)
    alone = [quiet.analogue_dot(weights[i], inputs[i]).item() for i in range(7)]
    assert np.abs(batch - alone).max() <= 0.1


def test_matrix_times_vector(quiet):
    matrix = vectors(4, (20, 50))[0]
    vector = vectors(5, (50,))[1]
    truth = matrix @ vector / 255
    answers = quiet.matvec(matrix, vector)
    assert answers.shape == (20,)
    assert np.abs(answers - truth).max() <= 0.5 + 0.25 * np.sqrt(50) + 2e-4 * np.abs(truth).max()


def test_matrix_times_matrix(quiet):
    left, right = vectors(6, (4, 30))[0], vectors(7, (30, 5))[1]
    truth = left @ right / 255
    answers = quiet.matmul(left, right)
    assert answers.shape == (4, 5)
    assert np.abs(answers - truth).max() <= 0.5 + 0.25 * np.sqrt(30) + 2e-4 * np.abs(truth).max()


def test_64_products_a_pair_are_one_window_of_one_run(quiet, monkeypatch):
    runs = []
    measured = quiet.tile_reader._measure_pass
    monkeypatch.setattr(
        quiet.tile_reader, "_measure_pass", lambda *call: runs.append(call[1]) or measured(*call)
    )
    quiet.analogue_dot(np.full(128, 200), np.full(128, 100))
    assert runs == [3]  # a tile, and a dark one at either end


def test_a_table_of_products_is_swept_in_one_run(quiet, monkeypatch):
    runs = []
    measured = quiet.tile_reader._measure_pass
    monkeypatch.setattr(
        quiet.tile_reader, "_measure_pass", lambda *call: runs.append(call[1]) or measured(*call)
    )
    table = np.arange(1, 41)[:, None] * 6
    answers = quiet.analogue_dot(table, [[255]])
    assert runs == [48]
    assert np.abs(answers - table[:, 0]).max() <= 0.3


@pytest.mark.slow
def test_the_guard_takes_up_a_skew_that_nobody_measured(calibration):
    device = lightning.connect(QUIET)
    core = VectorCore(device, calibration)
    weights, inputs = vectors(8, (6, 100))
    truth = true_dot(weights, inputs)
    straight = core.analogue_dot(weights, inputs)
    device.knobs["skew_ns_1"] = device.knobs["skew_ns_1"] + 0.4  # 2.5 samples
    device.knobs["skew_ns_3"] = device.knobs["skew_ns_3"] - 0.3
    askew = core.analogue_dot(weights, inputs)
    assert np.abs(straight - truth).max() <= 2.5
    assert np.abs(askew - straight).max() <= 1.5


@pytest.mark.slow
def test_other_symbols_serve_too(calibration):
    core = VectorCore(lightning.connect(QUIET), calibration, symbol=Symbol(64, 8))
    weights, inputs = vectors(9, (4, 300))
    error = np.abs(core.analogue_dot(weights, inputs) - true_dot(weights, inputs))
    assert error.max() <= 0.25 * np.sqrt(300) + 2e-4 * 300 * 64


@pytest.mark.long
@pytest.mark.slow
def test_a_kit_of_another_make_with_its_own_calibration():
    device = lightning.connect("sim://kit?seed=23&vary=yes")
    run = run_guided(device)
    assert run.calibration is not None
    core = VectorCore(device, run.calibration)
    weights, inputs = vectors(10, (40, 784))
    error = core.analogue_dot(weights, inputs, shots=4) - true_dot(weights, inputs)
    assert 100 - 100 * np.sqrt(np.mean(error**2)) / (784 * 255) >= 99.99


@pytest.mark.long
def test_drift_is_undone_by_sweeping_and_tuning_again(calibration):
    device = lightning.connect("sim://kit?seed=6")
    core = VectorCore(device, calibration)
    weights, inputs = vectors(11, (30, 400), low=0)
    truth = true_dot(weights, inputs)
    fresh = np.sqrt(np.mean((core.analogue_dot(weights, inputs) - truth) ** 2))
    for index in range(4):
        device.knobs[f"null_v_{index}"] = device.knobs[f"null_v_{index}"] + 0.05 * 5.0
    drifted = np.sqrt(np.mean((core.analogue_dot(weights, inputs) - truth) ** 2))
    fresh_calibration = recalibrate(TableReader(device), calibration)
    recalibrated = VectorCore(device, fresh_calibration)
    after = np.sqrt(np.mean((recalibrated.analogue_dot(weights, inputs) - truth) ** 2))
    assert drifted >= 50 * fresh
    assert after <= 3 * fresh


@pytest.mark.slow
def test_a_receiver_that_compresses_is_reported(calibration):
    device = lightning.connect("sim://kit?noise=off&adc_bits=16")
    device.knobs["saturation_v"] = 0.6
    with pytest.raises(CalibrationError, match="the receiver compresses"):
        VectorCore(device, calibration).tune()


def test_a_laser_that_is_off_is_reported(calibration):
    device = lightning.connect("sim://kit?laser=off")
    with pytest.raises(
        CalibrationError, match="Check that the laser is on, then run `lightning calibrate` with this device"
    ):
        VectorCore(device, calibration).tune()


@pytest.mark.slow
def test_a_laser_that_goes_out_after_tuning_is_reported(calibration):
    device = lightning.connect(QUIET)
    core = VectorCore(device, calibration)
    core.tune()
    device.knobs["laser_dropped"] = "on"
    with pytest.warns(DarkWarning, match="laser on"):
        core.dot([200] * 100, [200] * 100)


@pytest.mark.slow
def test_a_board_that_is_lost_in_mid_acquisition_is_reported_at_once(calibration):
    device = lightning.connect(QUIET)
    core = VectorCore(device, calibration)
    core.tune()
    device.knobs["fault"] = "gone_in_acquisition"
    with pytest.raises(DeviceGone, match="sim-kit-0001"):
        core.dot([1, 2], [3, 4])


@pytest.mark.parametrize("shots", [0, -1, 1.5, True])
def test_shots_are_whole_and_at_least_one(quiet, shots):
    with pytest.raises(OutOfRange, match="shots must be an integer of 1 or more, not"):
        quiet.dot([1], [1], shots=shots)


def test_shapes_that_are_no_matrices_are_refused(quiet):
    with pytest.raises(OutOfRange, match="a matrix and a vector"):
        quiet.matvec([1, 2], [3, 4])
    with pytest.raises(OutOfRange, match="two matrices"):
        quiet.matmul([[1, 2]], [3, 4])


def test_other_firmware_is_refused_by_name(calibration):
    device = lightning.connect("sim://kit?profile=zcu216")
    with pytest.raises(ProgramError, match="qick_processor"):
        TileReader(device, calibration)


def test_a_readout_that_is_not_there_is_refused(calibration):
    device = lightning.connect(QUIET)
    with pytest.raises(CalibrationError, match="readout 7"):
        VectorCore(device, replace(calibration, readout=7))


def test_the_calibration_of_another_device_is_refused(calibration):
    device = lightning.connect(QUIET)
    with pytest.raises(ForeignCalibration):
        VectorCore(device, replace(calibration, device="another"))


@pytest.mark.slow
def test_by_way_of_lightning_compute_one_core_is_tuned_once(calibration):
    compute = LightningCompute(lightning.connect(QUIET), calibration)
    assert get_core(compute) is get_core(compute)
    assert dot(compute, [100, 50], [51, 255]) == 70
    assert matvec(compute, [[255, 0], [0, -255]], [7, 9], shots=1).tolist() == [7, -9]
    assert get_core(compute).tuning is get_core(compute).tuning


@pytest.mark.slow
def test_a_compute_does_vectors_on_its_own_calibration():
    compute = LightningCompute("sim://kit?noise=off")
    weights, inputs = [200, -30, 7, 0], [10, 40, 90, 255]
    assert compute.dot(weights, inputs) == round(np.dot(weights, inputs) / 255)
    assert list(compute.matvec([weights, inputs], inputs, shots=8)) == [
        round(np.dot(row, inputs) / 255) for row in (weights, inputs)
    ]
    assert compute.vectors is compute.vectors
    assert compute.vectors.calibration is compute.calibration
