"""The guided run on twins with something wrong: the step that fails, and the hint that it names."""

from __future__ import annotations

import json

import pytest
from libraries import skip_without

skip_without("qick")

import lightning
from lightning import errors
from lightning.kit import factory_calibration
from lightning.kit.calibration import find, from_json, save
from lightning.kit.calibration.guided import calibrate, run_guided
from lightning.kit.calibration.measurement import alignment, batch
from lightning.kit.calibration.measurement.bench import Bench
from lightning.kit.calibration.measurement.steps import STEPS
from lightning.kit.calibration.store import load_raw


def failed(run):
    return {outcome.step: outcome for outcome in run.outcomes if not outcome.passed}


@pytest.mark.slow
@pytest.mark.board
def test_without_light_the_run_ends_at_the_step_that_needs_it(tmp_path):
    run = run_guided(lightning.connect("sim://kit?seed=2&laser=off"))
    assert run.calibration is None
    assert [outcome.step for outcome in run.outcomes][-1] == "delay"
    assert "laser" in failed(run)["delay"].hint
    with pytest.raises(errors.CalibrationError, match=r"'delay' failed.*laser is on"):
        factory_calibration.write_factory_calibration("sim://kit?seed=2&laser=off", tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("knobs", "step", "hint"),
    [
        ("polarisation_rad=1.0", "polarisation", "paddles"),
        ("null_v_2=2.1", "bias", "move each bias"),
        ("transimpedance_ohm=560", "saturation", "lower the laser's power"),
    ],
)
def test_what_is_wrong_is_named_with_its_hint(knobs, step, hint):
    bench = Bench(lightning.connect(f"sim://kit?seed=2&drift=off&{knobs}"))
    needed = {"delay", "light", step} | ({"transfer"} if step == "saturation" else set())
    outcomes = {name: STEPS[name](bench) for name in STEPS if name in needed}
    assert not outcomes[step].passed
    assert hint in outcomes[step].hint
    assert outcomes["delay"].passed


@pytest.mark.slow
@pytest.mark.board
def test_turned_paddles_bring_the_light_back():
    soc = lightning.connect("sim://kit?seed=2&drift=off&polarisation_rad=1.0")
    seen = []

    def turn(brightness):
        for angle in (0.8, 0.4, 0.0):
            soc.knobs["polarisation_rad"] = angle
            seen.append(brightness())

    bench = Bench(soc, turn_paddles=turn)
    assert all(STEPS[name](bench).passed for name in ("delay", "light", "polarisation"))
    assert seen == sorted(seen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "ticks_per_ns", "delays"),
    [("lightning-zcu111", 0.384, (11, 11, 12, 0)), ("zcu111", 0.512, (15, 15, 15, 0))],
)
def test_delays_and_skews_are_found_whatever_the_clocks(profile, ticks_per_ns, delays):
    knobs = "delay_ns=1700&skew_ns_0=0.1&skew_ns_1=1.4&skew_ns_2=0.0&skew_ns_3=30.0"
    soc = lightning.connect(f"sim://kit?profile={profile}&seed=2&drift=off&{knobs}")
    bench = Bench(soc)
    assert STEPS["delay"](bench).passed
    first, *others = (tick / ticks_per_ns for tick in bench.arrival_ticks)
    assert first == pytest.approx(1700.1, abs=1 / ticks_per_ns)  # the trigger falls on a tick of the readout
    assert [other - first for other in others] == pytest.approx([1.3, -0.1, 29.9], abs=0.2)
    reader = bench.make_reader()
    assert reader.window.delays == delays
    levels = reader.read([[20_000, 20_000, 0, 0], [0, 0, 20_000, 20_000], [0, 20_000, 0, 0]]).levels
    assert levels[:2] == pytest.approx(levels[0], rel=0.02)
    assert levels[2] < 0.01 * levels[0]


def test_rows_that_cannot_be_are_refused_before_anything_is_sent():
    soc = lightning.connect("sim://kit?seed=2")
    reader = batch.TableReader(soc)
    for words, shots in ([[1, 2, 3]], 1), ([[0, 0, 0, 40_000]], 1), ([[0, 0, 0, 0]], 0):
        with pytest.raises(errors.OutOfRange):
            reader.read(words, shots=shots)
    with pytest.raises(errors.WrongChannel, match="7 generators"):
        batch.TableReader(soc, channels=(0, 1, 2, 9))
    with pytest.raises(errors.WrongChannel):
        batch.TableReader(soc, readout=5)


def test_another_processor_is_refused_by_name():
    with pytest.raises(errors.ProgramError, match="qick_processor"):
        batch.TableReader(lightning.connect("sim://kit?profile=zcu216"))


@pytest.mark.slow
def test_rows_come_in_their_order_over_several_tables_and_passes():
    soc = lightning.connect("sim://kit?seed=2&noise=off")
    reader = batch.TableReader(soc)
    count = reader.row_capacity + 100
    words = [[20_000, 20_000 if i % 3 == 0 else 0, 0, 0] for i in range(count)]
    readings = reader.read(words, shots=1)
    bright = readings.levels > 4_000
    assert bright.tolist() == [i % 3 == 0 for i in range(count)]
    many = reader.read(words[:64], shots=401)
    assert many.single_readings.shape == (64, 401)
    assert (many.single_readings == many.single_readings[:, :1]).all()


def test_a_board_that_goes_away_is_named():
    soc = lightning.connect("sim://kit?seed=2")
    reader = batch.TableReader(soc)
    soc.knobs["fault"] = "dead_board"
    with pytest.raises(errors.DeviceGone):
        reader.read([[0, 0, 0, 0]])
    with pytest.raises(errors.DeviceGone):
        alignment.find_arrival(soc, 0, (20_000, 20_000))


@pytest.mark.board
@pytest.mark.slow
def test_a_good_device_passes_every_step_and_measures_what_its_factory_did(tmp_path):
    soc = lightning.connect("sim://kit?drift=off")
    made = from_json(soc.factory_calibration())
    assert (made.origin, made.device) == ("factory", soc.identity)
    heard = []
    run = calibrate(soc, seed=77, report=heard.append)
    assert [outcome.step for outcome in heard] == list(STEPS)
    assert run.passed
    assert heard[0].skipped
    assert "by hand" in heard[0].hint
    fresh = run.calibration
    for mine, shipped in zip(fresh.modulators, made.modulators, strict=True):
        assert abs(mine.encoder.words - shipped.encoder.words).max() <= 60
    assert fresh.decoder.gain == pytest.approx(made.decoder.gain, rel=2e-3)
    assert fresh.timing.arrival == pytest.approx(made.timing.arrival, abs=0.05)
    path = save(fresh, raw=run.raw, folder=tmp_path)
    found = find(soc, folder=tmp_path)
    assert (found.device, found.origin, found.simulated) == (soc.identity, "measured", True)
    assert from_json(json.loads(path.read_text())).decoder == fresh.decoder
    assert {"sweep_0_words", "sweep_3_levels", "pairs_levels", "held_levels"} <= set(load_raw(path))
