import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from libraries import skip_without

import lightning
from lightning import LightningControl, LightningSignalProcessing, errors, from_slide
from lightning.kit.calibration import find, to_json
from lightning.kit.config import Configuration
from lightning.kit.recordings import recording as recordings

skip_without("qick", reason="records and replays a QickSoc: pip install 'lightbed[kit]'")

pytestmark = pytest.mark.board


@pytest.fixture
def file(tmp_path):
    return tmp_path / "fault.npz"


def _replay(file):
    return lightning.connect(f"replay://{file}")


def _decoded(waveform):
    processing = LightningSignalProcessing()
    processing.plot_waveform(waveform, draw=False)
    return int(processing.decode_adc_result)


def test_a_recorded_acquisition_comes_again_to_the_last_bit(kit, file):
    config = from_slide({"dac_0": 150, "dac_1": 170, "soft_avgs": 7})
    with lightning.record(kit, file) as soc:
        first = LightningControl(soc, config).acquire_decimated(soc)
    soc = _replay(file)
    again = LightningControl(soc, soc.config).acquire_decimated(soc)
    assert np.array_equal(again[0], first[0])
    assert (again.config, again.device) == (config, first.device)
    assert _decoded(again) == _decoded(first) == 100
    assert len(again.origin.rounds) == 7


def test_it_comes_as_often_as_it_is_asked_for(kit, file):
    config = from_slide({"soft_avgs": 2})
    with lightning.record(kit, file) as soc:
        runtime = LightningControl(soc, config)
        one, two = runtime.acquire_decimated(soc), runtime.acquire_decimated(soc)
    assert not np.array_equal(one[0], two[0])
    soc = _replay(file)
    runtime = LightningControl(soc, config)
    found = [runtime.acquire_decimated(soc)[0] for _ in range(3)]
    assert [np.array_equal(each, other[0]) for each, other in zip(found, (one, two, one), strict=True)] == [
        True
    ] * 3


def test_a_streamed_acquisition_is_recorded_too(kit, file):
    config = from_slide({"reps": 300, "readout_length": 3, "soft_avgs": 2})
    with lightning.record(kit, file) as soc:
        (first,) = LightningControl(soc, config).acquire(soc)
    soc = _replay(file)
    (again,) = LightningControl(soc, soc.config).acquire(soc)
    assert np.array_equal(first, again)


def test_version_2_is_recorded_too(file):
    device = lightning.connect("sim://kit?profile=zcu216")
    config = from_slide({"word_0": 9000, "word_1": 9000, "soft_avgs": 2})
    with lightning.record(device, file) as soc:
        first = LightningControl(soc, config).acquire_decimated(soc)
    soc = _replay(file)
    assert np.array_equal(LightningControl(soc, soc.config).acquire_decimated(soc)[0], first[0])


@pytest.mark.parametrize(
    ("fault", "kind"), [("gone_in_acquisition", errors.DeviceGone), ("stuck_counter", errors.DeviceStuck)]
)
def test_a_fault_comes_again(file, fault, kind, clock):
    from lightning.kit.devices.guard import GuardedSoc

    ticking = lambda: clock.wait(0.5) or clock()
    device = GuardedSoc(lightning.connect("sim://kit").unguarded, clock=ticking)
    device.knobs["fault"] = fault
    with pytest.raises(kind), lightning.record(device, file) as soc:
        LightningControl(soc, Configuration()).acquire_decimated(soc)
    replayed = GuardedSoc(_replay(file).unguarded, clock=ticking)
    with pytest.raises(kind, match="sim-kit-0001"):
        LightningControl(replayed, replayed.config).acquire_decimated(replayed)


def test_another_program_is_refused_with_the_recorded_configuration_named(kit, file):
    with lightning.record(kit, file) as soc:
        LightningControl(soc, from_slide({"soft_avgs": 1})).acquire_decimated(soc)
    soc = _replay(file)
    with pytest.raises(
        errors.RecordingError, match=r"Use the recorded configuration: LightningControl\(soc, soc\.config\)"
    ):
        LightningControl(soc, from_slide({"soft_avgs": 1, "dac_0": 1})).acquire_decimated(soc)


def test_more_runs_than_recorded_are_refused(kit, file):
    with lightning.record(kit, file) as soc:
        LightningControl(soc, from_slide({"soft_avgs": 1})).acquire_decimated(soc)
    soc = _replay(file)
    with pytest.raises(errors.RecordingError, match="ends before this get_decimated"):
        LightningControl(soc, from_slide({"soft_avgs": 2})).acquire_decimated(soc)


def test_the_replay_says_what_it_is(kit, file, capsys):
    with lightning.record(kit, file):
        pass
    _replay(file)
    assert f"replay://{file}: recording of sim-kit-0001, made 20" in capsys.readouterr().err


def test_a_calibration_is_as_old_as_it_was_then(file):
    """One measured a month ago was fresh when it was recorded."""
    soc = lightning.connect("sim://kit")
    month_ago = datetime.now(UTC) - timedelta(days=30)
    measured = replace(find(soc), origin="measured", made=month_ago - timedelta(minutes=5))
    recording = recordings.Recording(
        made_at=month_ago,
        device={"name": soc.identity, "simulated": True},
        soccfg=soc.get_cfg(),
        calibration=to_json(measured),
        settings=Configuration().settings.as_dict(),
    )
    recordings.save(recording, file)
    replayed = _replay(file)
    assert LightningControl(replayed, replayed.config).calibration.origin == "measured"
    recordings.save(replace(recording, made_at=datetime.now(UTC)), file)
    late = _replay(file)
    with pytest.raises(errors.StaleCalibration):
        LightningControl(late, late.config)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\x93NUMPY", b"text"])
def test_what_is_no_recording_is_named(file, content):
    file.write_bytes(content)
    with pytest.raises(errors.RecordingError, match="is not a valid recording"):
        _replay(file)


def test_other_archives_and_versions_are_named(file):
    np.savez(file, a=np.zeros(3))
    with pytest.raises(errors.RecordingError, match="is not a valid recording"):
        _replay(file)
    np.savez(file, head=np.array(json.dumps({"format": "lightbed.recording", "version": 99})))
    with pytest.raises(errors.RecordingError, match="version 99"):
        _replay(file)
    np.savez(file, head=np.array("[]"))
    with pytest.raises(
        errors.RecordingError,
        match=r"is not a lightbed recording \(TypeError\('list indices must be integers or",
    ):
        _replay(file)


def test_paths_that_cannot_be_used_are_named(kit, tmp_path):
    with pytest.raises(errors.RecordingError, match="cannot be read"):
        _replay(tmp_path / "none.npz")
    with pytest.raises(errors.RecordingError, match="cannot be written"), lightning.record(kit, tmp_path):
        pass


def test_nothing_pickled_is_in_the_file(kit, file):
    with lightning.record(kit, file) as soc:
        LightningControl(soc, from_slide({"soft_avgs": 1})).acquire_decimated(soc)
    with np.load(file, allow_pickle=False) as found:
        assert all(found[name].dtype.kind in "iuU" for name in found.files)
        calls = {each["call"] for each in json.loads(str(found["head"]))["events"]}
    assert {"load_bin_program", "start_tproc", "get_tproc_counter", "get_decimated"} <= calls


@pytest.mark.slow
def test_damaged_files_are_named_or_read(kit, file):
    with lightning.record(kit, file) as soc:
        LightningControl(soc, from_slide({"soft_avgs": 1})).acquire_decimated(soc)
    whole, draw, refused = file.read_bytes(), np.random.default_rng(4), 0
    for _ in range(150):
        damaged = bytearray(whole)
        if draw.random() < 0.3:
            del damaged[draw.integers(len(whole)) :]
        for at in draw.integers(max(1, len(damaged)), size=3):
            damaged[at : at + 1] = bytes([draw.integers(256)])
        file.write_bytes(damaged)
        try:
            recordings.load(file)
        except errors.RecordingError:
            refused += 1
    assert refused >= 75


def test_errors_come_again_as_their_kind():
    from lightning.kit.recordings.replay import _make_error

    assert isinstance(_make_error("RuntimeError", "too long"), RuntimeError)
    assert str(_make_error("NotSimulated", "mux")) == "NotSimulated: mux"
    assert isinstance(_make_error("UnicodeDecodeError", "x"), ConnectionError)
