"""The bars of accuracy, on kits whose half-wave voltages, nulls and extinctions nobody told the calibration."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import skip_without

skip_without("qick")

import lightning
from lightning.kit.calibration.decoder import (
    compute_accuracy,
    compute_rms_error,
    compute_true_product,
)
from lightning.kit.calibration.drift import measure_drift, recalibrate
from lightning.kit.calibration.guided import run_guided
from lightning.kit.calibration.measurement.batch import TableReader
from lightning.kit.calibration.measurement.bench import Bench
from lightning.kit.calibration.measurement.delay import Arrival
from lightning.kit.calibration.measurement.pairs import Encoders, compute_true_sums
from lightning.kit.calibration.measurement.steps import STEPS, measure_noise
from lightning.kit.compute import LightningCompute

pytestmark = pytest.mark.board

PAIRS = np.random.default_rng(2024).integers(0, 256, (2, 4_096))
ROUNDED = np.rint(compute_true_product(*PAIRS))


def calibrated(address):
    soc = lightning.connect(address)
    run = run_guided(soc)
    assert run.passed, [outcome for outcome in run.outcomes if not outcome.passed]
    return soc, run


@pytest.fixture(scope="module")
def kit():
    """Return a kit of its own make."""
    return calibrated("sim://kit?seed=11&vary=yes")


def answers(kit, *, window=None, shots=1, count=4_096):
    soc, run = kit
    compute = LightningCompute(soc, run.calibration, window=window, shots=shots)
    return compute.analogue_product(PAIRS[0, :count], PAIRS[1, :count])


def wrong(analogue, count=4_096):
    off = np.abs(np.clip(np.rint(analogue), 0, 255) - ROUNDED[:count])
    return float(np.mean(off > 0)), int(off.max())


@pytest.mark.long
def test_one_decimated_sample_at_default_noise_gives_99_7_per_cent(kit):
    found = compute_accuracy(np.clip(np.rint(answers(kit, window=1)), 0, 255), *PAIRS)
    assert found >= 99.7


@pytest.mark.long
def test_averaging_gives_99_85_per_cent_of_at_most_99_887(kit):
    found = compute_accuracy(np.clip(np.rint(answers(kit, shots=4, count=2_048)), 0, 255), *PAIRS[:, :2_048])
    assert 99.85 <= found <= 99.90


@pytest.mark.long
def test_constant_noise_of_1_657_gives_99_25_per_cent_of_one_sample(kit):
    soc, _ = kit
    soc.knobs["noise"] = "constant"
    try:
        found = compute_accuracy(np.clip(np.rint(answers(kit, window=1)), 0, 255), *PAIRS)
    finally:
        soc.knobs["noise"] = "on"
    assert 99.25 <= found <= 99.87


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("bits", "share", "count"), [(16, 0.005, 4_096), (12, 0.04, 1_024)])
def test_without_noise_the_integers_of_the_board_are_off_by_one_at_most_and_seldom(bits, share, count):
    kit = calibrated(f"sim://kit?seed=5&vary=yes&noise=off&adc_bits={bits}")
    seldom, most = wrong(answers(kit, window=1, shots=4, count=count), count)
    assert most <= 1
    assert seldom <= share


@pytest.mark.long
def test_linear_words_as_published_are_no_encoder(kit, chebyshev_decoder):
    soc, run = kit
    words = np.zeros((1_024, 4), dtype=np.int64)
    words[:, :2] = np.rint(PAIRS[:, :1_024].T * 20_000 / 255)  # as the published library drives
    levels = LightningCompute(soc, run.calibration).rows.read(words, shots=4).levels
    published = chebyshev_decoder(levels[:512], compute_true_product(*PAIRS[:, :512]))(levels[512:])
    assert compute_accuracy(published, *PAIRS[:, 512:1_024]) < 98.0


@pytest.mark.long
@pytest.mark.parametrize("seed", [21, 22])
def test_any_make_is_calibrated_without_its_parameters_and_better_than_by_polynomials(
    seed, polynomial_decoder, chebyshev_decoder
):
    rng = np.random.default_rng(seed)
    knobs = "".join(
        f"&v_pi_{i}={rng.uniform(4.4, 5.6):.3f}&null_v_{i}={rng.uniform(2.6, 3.4):.3f}"
        f"&extinction_db_{i}={rng.uniform(20, 26):.2f}"
        for i in range(4)
    )
    soc, run = calibrated(f"sim://kit?seed={seed}{knobs}")
    pairs = PAIRS[:, :1_024]
    values = np.zeros((1_024, 4), dtype=np.int64)
    values[:, :2] = pairs.T
    levels = (
        LightningCompute(soc, run.calibration)
        .rows.read(run.calibration.look_up_words(values), shots=4)
        .levels
    )
    decoded = run.calibration.decode_table(levels, values)
    assert compute_accuracy(np.clip(np.rint(decoded), 0, 255), *pairs) >= 99.85
    train, held = slice(0, 512), slice(512, None)
    truth = compute_true_product(*pairs)
    ours = compute_rms_error(decoded[held], *pairs[:, held])
    second = compute_rms_error(polynomial_decoder(levels[train], truth[train])(levels[held]), *pairs[:, held])
    third = compute_rms_error(chebyshev_decoder(levels[train], truth[train])(levels[held]), *pairs[:, held])
    assert ours < 0.06
    assert min(second, third) > 3 * ours


@pytest.mark.long
def test_after_a_drift_one_sweep_per_modulator_brings_the_accuracy_back():
    soc, run = calibrated("sim://kit?seed=31&vary=yes&drift=off")
    stale, rows = run.calibration, LightningCompute(soc, run.calibration).rows
    pairs = PAIRS[:, :512]
    assert not measure_drift(rows, stale).needs_recalibration
    for i in range(4):
        soc.knobs[f"null_v_{i}"] += 0.05 * soc.knobs[f"v_pi_{i}"]
    assert compute_accuracy(np.clip(np.rint(answers((soc, run), shots=4, count=512)), 0, 255), *pairs) < 95.0
    asked = measure_drift(rows, stale)
    assert asked.needs_recalibration
    assert "lightning calibrate" in str(asked)
    fresh = recalibrate(rows, stale)
    again = LightningCompute(soc, fresh, shots=4).analogue_product(*pairs)
    assert compute_accuracy(np.clip(np.rint(again), 0, 255), *pairs) >= 99.7
    assert not measure_drift(rows, fresh).needs_recalibration
    soc.knobs["laser_dbm"] -= 0.5
    assert measure_drift(rows, fresh).needs_recalibration
    dimmer = recalibrate(rows, fresh)
    assert dimmer.decoder.gain[0] / fresh.decoder.gain[0] == pytest.approx(10**-0.05, rel=2e-3)
    assert not measure_drift(rows, dimmer).needs_recalibration


@pytest.mark.long
def test_sums_of_two_products_and_their_signs(kit):
    soc, run = kit
    compute = LightningCompute(soc, run.calibration)
    rng = np.random.default_rng(8)
    a, b = rng.integers(-255, 256, (2, 1_024, 2))
    truth = (a * b).sum(axis=1) / 255
    found = compute.analogue_sum(a, b)
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.5
    assert np.abs(compute.multiply_accumulate(a[:64], b[:64]) - truth[:64]).max() <= 2
    mixed = (np.sign(a * b).sum(axis=1) == 0).sum()
    assert mixed >= 400
    values = rng.integers(0, 256, (512, 4))
    assert np.sqrt(np.mean((compute.measure(values) - compute_true_sums(values)) ** 2)) < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("rin_db_hz", [-132.0, -138.0])
def test_the_noise_model_finds_the_lasers_intensity_noise(kit, rin_db_hz):
    from sim.twins.rfsoc.signals.decimation import make_taps

    soc, run = kit
    before = soc.knobs["rin_db_hz"]
    soc.knobs["rin_db_hz"] = rin_db_hz
    try:
        rows = LightningCompute(soc, run.calibration, window=1).rows
        found = measure_noise(rows, run.calibration.look_up_words)
    finally:
        soc.knobs["rin_db_hz"] = before
    filtered = make_taps("fir")
    seen_hz = float(soc.knobs["bandwidth_hz"]) * np.sum(filtered**2) / np.sum(filtered) ** 2
    assert found.compute_rin_db_hz(seen_hz) == pytest.approx(rin_db_hz, abs=0.5)


@pytest.mark.slow
def test_too_much_noise_fails_its_step_and_names_the_laser(kit):
    soc, run = kit
    made = run.calibration
    bench = Bench(soc, arrivals=tuple(Arrival(ticks, 1.0, 1.0) for ticks in made.timing.arrival))
    full, shared = (tuple(getattr(m, name) for m in made.modulators) for name in ("encoder", "shared"))
    bench.encoders, bench.decoder = Encoders(full, shared, (1.0, 1.0)), made.decoder
    assert STEPS["noise"](bench).passed
    before = soc.knobs["rin_db_hz"]
    soc.knobs["rin_db_hz"] = -120.0
    try:
        outcome = STEPS["noise"](bench)
    finally:
        soc.knobs["rin_db_hz"] = before
    assert not outcome.passed
    assert "RIN" in outcome.hint


def test_the_decoder_says_when_the_converter_was_at_its_end(kit):
    soc, run = kit
    found = run.calibration
    full = {0: 255, 1: 255, 2: 0, 3: 0}
    assert not found.decode(0.9 * found.decoder.gain[0], full).is_saturated
    peaks = [m.encoder.words[255] for m in found.modulators]
    readings = TableReader(soc).read([peaks], shots=4)
    assert found.decode(float(readings.levels[0]), full, peak=readings.peak_level).is_saturated


@pytest.mark.slow
def test_a_waveform_of_the_kit_and_a_batch_agree(kit, monkeypatch, tmp_path):
    soc, run = kit
    monkeypatch.setenv("LIGHTBED_CALIBRATIONS", str(tmp_path))
    compute = LightningCompute(soc, run.calibration)
    config = lightning.Configuration()
    sp = lightning.LightningSignalProcessing()
    for a, b in [(0, 255), (17, 200), (128, 128), (255, 255), (90, 31)]:
        config["dac_0"], config["dac_1"] = a, b
        control = lightning.LightningControl(soc, config, calibration=run.calibration)
        by_waveform = sp.decode(control.acquire_decimated(soc))
        assert by_waveform == pytest.approx(a * b / 255, abs=1.0)
        assert compute.multiply(a, b) == pytest.approx(by_waveform, abs=1)
