"""Decoding, and what is refused, because the number would be wrong and nobody would see it."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import lightning
from lightning import LightningCompute, LightningControl, LightningSignalProcessing, errors, from_slide
from lightning.kit.calibration import from_json, store


def _decoded(soc, runs_on=None, **keys):
    config = from_slide({"dac_0": 200, "dac_1": 200, "soft_avgs": 25, **keys})
    waveform = LightningControl(soc, config).acquire_decimated(runs_on or soc)
    return LightningSignalProcessing().decode(waveform)


@pytest.fixture
def calibration(kit):
    return from_json(kit.factory_calibration(), source="the twin")


@pytest.mark.parametrize("readouts", [[0, 1], [1, 0]])
def test_the_calibrated_readout_is_decoded_wherever_it_stands(kit, readouts):
    assert abs(_decoded(kit, readouts=readouts) - 200 * 200 / 255) <= 1


def test_without_the_calibrated_readout_its_number_is_named(kit):
    with pytest.raises(errors.WrongChannel, match="Add readout 1"):
        _decoded(kit, readouts=[0])


def test_a_sum_of_two_products_goes_to_510(kit):
    assert abs(_decoded(kit, dac_2=200, dac_3=200) - 2 * 200 * 200 / 255) <= 2


def test_more_light_than_can_be_measured_brings_a_warning():
    address = "sim://kit?laser_dbm=13"
    soc = lightning.connect(address)
    with pytest.warns(
        errors.SaturationWarning, match=r"sim-kit-0001 \(SIMULATED\): .* the answer is too small"
    ):
        assert _decoded(soc) == 255
    with pytest.warns(errors.SaturationWarning, match="2 answers are too small"):
        assert LightningCompute(soc).multiply([200, 1, 255], [200, 1, 255]).tolist()[::2] == [255, 255]


@pytest.mark.slow
def test_commands_say_so_too(capsys, tmp_path):
    for library in ("typer", "rich", "matplotlib"):
        pytest.importorskip(library, reason="the command line needs lightbed[kit]")
    from lightning.cli import run_app

    picture = ["--png", str(tmp_path / "x.png"), "--set", "soft_avgs=5"]
    for command in (["multiply", "200", "200"], ["scope", "200", "200", *picture]):
        for address, too_bright in (("sim://kit?laser_dbm=13", True), ("sim://kit", False)):
            assert run_app([*command, "--device", address, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["saturated"] is too_bright
        assert run_app([*command, "--device", "sim://kit?laser_dbm=13"]) == 0
        assert "warning: sim-kit-0001" in capsys.readouterr().err


def test_drawing_does_not_warn_before_somebody_decodes():
    pytest.importorskip("matplotlib", reason="draws: pip install 'lightbed[kit]'")
    soc = lightning.connect("sim://kit?laser_dbm=13")
    config = from_slide({"dac_0": 200, "dac_1": 200, "soft_avgs": 1})
    processing = LightningSignalProcessing()
    processing.plot_waveform(LightningControl(soc, config).acquire_decimated(soc))
    with pytest.warns(errors.SaturationWarning):
        assert processing.decode_adc_result == 255


def test_a_calibration_given_by_hand_is_checked_as_one_that_is_kept(kit, calibration):
    foreign = replace(calibration, device="another")
    stale = replace(calibration, conditions={**calibration.conditions, "firmware": "an older build"})
    config = from_slide({"dac_0": 200})
    for wrong, kind in ((foreign, errors.ForeignCalibration), (stale, errors.StaleCalibration)):
        for use in (
            lambda c: LightningControl(kit, config, calibration=c),
            lambda c: store.choose_calibration(kit, c),
        ):
            with pytest.raises(kind):
                use(wrong)
    assert LightningControl(kit, config, calibration=calibration).calibration is calibration


def test_another_device_than_the_one_compiled_for_is_refused(kit):
    other = lightning.connect("sim://kit?vary=yes&seed=8")
    assert other.identity != kit.identity
    with pytest.raises(errors.ForeignCalibration, match="sim-kit-0001"):
        _decoded(kit, runs_on=other)


def test_a_waveform_driven_by_another_device_is_refused(kit, calibration):
    waveform = LightningControl(kit, from_slide({"dac_0": 200, "soft_avgs": 1})).acquire_decimated(kit)
    waveform.origin = replace(waveform.origin, calibration=replace(calibration, device="another"))
    with pytest.raises(errors.ForeignCalibration, match="the calibration of another"):
        LightningSignalProcessing().decode(waveform)


def test_what_was_compiled_for_a_bare_configuration_takes_the_calibration_of_its_device(kit):
    """QICK's own form: `soc, soccfg = make_proxy(...)`, a program of `soccfg` that runs on `soc`."""
    soccfg = pytest.importorskip("qick").QickConfig(kit.get_cfg())
    assert abs(_decoded(soccfg, runs_on=kit) - 200 * 200 / 255) <= 1
    given = from_json(kit.factory_calibration(), source="the twin")
    foreign = LightningControl(soccfg, from_slide({}), calibration=replace(given, device="another"))
    with pytest.raises(errors.ForeignCalibration):
        foreign.acquire_decimated(kit)


def test_a_pause_too_short_for_the_next_pulses_is_refused(kit):
    with pytest.raises(errors.OutOfRange, match=r"relax_delay_us is 0\.19.*Give at least 0\.2, or reps=1"):
        _decoded(kit, relax_delay=0.19)
    for keys in ({"relax_delay": 0.2}, {"relax_delay": 0, "reps": 1}):
        assert abs(_decoded(kit, **keys) - 200 * 200 / 255) <= 1


@pytest.mark.parametrize("keys", [{"pulse_freq": 100}, {"res_phase": 90}])
def test_pulses_that_no_calibration_knows_are_not_decoded(kit, keys):
    with pytest.raises(errors.OutOfRange, match="calibrated for pulses of frequency 0 and phase 0"):
        _decoded(kit, **keys)


def test_generators_that_contradict_the_calibration_are_refused(kit):
    with pytest.raises(
        errors.WrongChannel, match=r"modulator 0 is driven by generator 2.*calibrated with generator 0"
    ):
        _decoded(kit, channel_0=2, channel_2=0)


def test_sums_need_no_buffer_for_samples(kit):
    config = from_slide({"word_0": 20000, "word_1": 20000, "reps": 200, "soft_avgs": 1})
    runtime = LightningControl(kit, config)
    assert runtime.acquire(kit)[0].shape == (2,)
    with pytest.raises(errors.ReadoutTooLong, match="50000"):
        runtime.acquire_decimated(kit)


def test_samples_that_are_no_numbers_are_named(kit):
    waveform = LightningControl(kit, from_slide({"dac_0": 200, "soft_avgs": 1})).acquire_decimated(kit)
    waveform[0][:, 0, 7] = np.nan
    with pytest.raises(errors.OutOfRange, match="sim-kit-0001: 1 of 250 samples are not finite"):
        LightningSignalProcessing().decode(waveform)


def test_a_recording_is_as_old_as_it_was_then(kit, calibration):
    """Only what says when it was made is a recording."""
    assert store.get_recording_date(kit) is None
    assert store.get_recording_date(SimpleNamespace(made=calibration.made)) == calibration.made
