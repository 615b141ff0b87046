import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from lightning import errors
from lightning.kit.calibration import Calibration, Outcome, find, from_json, load, require, save, to_json
from lightning.kit.calibration.decoder import Decoder
from lightning.kit.calibration.document import Modulator, Timing
from lightning.kit.calibration.encoder import dim_encoder, make_encoder
from lightning.kit.calibration.fringe import Fringe
from lightning.kit.calibration.noise import NoiseModel
from lightning.kit.calibration.store import find_path, load_raw

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Device:
    simulated = True
    firmware = "Oct 7 2022"

    def __init__(self, identity, document=None):
        self.identity = identity
        self._document = document

    def factory_calibration(self):
        return self._document

    def __getitem__(self, key):
        return {"board": "ZCU111", "fw_timestamp": self.firmware}[key]


def modulator(channel, half_wave):
    curve = Fringe((0.0, np.pi / 2), 0.0, half_wave, 10.0, 15_000.0, 1.0)
    full = make_encoder(curve)
    return Modulator(channel, curve, full, dim_encoder(curve, full, 0.5) if channel % 2 == 0 else full, 1.0)


@pytest.fixture
def calibration():
    return Calibration(
        device="kit-7",
        made=NOW,
        origin="measured",
        simulated=True,
        readout=1,
        modulators=(modulator(0, 2e4), modulator(1, 2.1e4), modulator(2, 1.9e4), modulator(3, 2e4)),
        decoder=Decoder(5.0, (30.0, 31.0, 32.0, 33.0), (15_000.0, 15_000.0), 0.0, 7_500.0, 16_384.0, 0.1),
        noise=NoiseModel(100.0, 0.5, 4e-5, 0.01, 1),
        timing=Timing((146.0, 146.2, 145.9, 146.1), 2.6, 171),
        conditions={"laser_dbm": 10.0, "firmware": "Oct 7 2022"},
        outcomes=(Outcome("laser", True, "10.00 dBm", "on", ""),),
    )


def test_a_document_comes_back_as_it_was(calibration):
    again = from_json(json.loads(json.dumps(to_json(calibration))))
    assert again.device == "kit-7"
    assert again.made == NOW
    assert again.decoder == calibration.decoder
    assert again.noise == calibration.noise
    assert again.timing == calibration.timing
    assert again.outcomes == calibration.outcomes
    assert dict(again.conditions) == dict(calibration.conditions)
    for mine, theirs in zip(again.modulators, calibration.modulators, strict=True):
        assert mine.curve == theirs.curve
        assert (mine.encoder.words == theirs.encoder.words).all()
        assert mine.encoder.operands == pytest.approx(theirs.encoder.operands, abs=1e-9)
        assert (mine.shared.words == theirs.shared.words).all()


def test_words_come_for_values_and_dark_ones_for_the_rest(calibration):
    assert calibration.encode({0: 255}) == {0: 20_000, 1: 0, 2: 0, 3: 0}
    assert calibration.encode({0: 255, 1: 255})[1] == 21_000
    shared = calibration.encode({0: 255, 1: 255, 2: 255, 3: 255})
    assert shared == {0: 10_000, 1: 21_000, 2: 9_500, 3: 20_000}


@pytest.mark.parametrize("values", [{0: 256}, {1: -1}, {2: 0.5}, {4: 3}])
def test_values_and_generators_outside_are_refused(calibration, values):
    with pytest.raises(errors.OutOfRange):
        calibration.encode(values)


def test_levels_decode_to_products_sums_and_zero(calibration):
    values = {0: 255, 1: 51}
    level = float(calibration.decoder.predict(calibration.compute_operands([[255, 51, 0, 0]]))[0])
    found = calibration.decode(level, values)
    assert found.value == 51
    assert found.analogue_result == pytest.approx(51, abs=0.01)
    assert not found.is_saturated
    assert calibration.decode(5.0, {}).value == 0
    assert calibration.decode(20_000.0, values, peak=16_384.0).is_saturated
    assert calibration.decode(20_000.0, values).value == 255
    sums = {0: 255, 1: 255, 2: 255, 3: 51}
    level = float(calibration.decoder.predict(calibration.compute_operands([[255, 255, 255, 51]]))[0])
    assert calibration.decode(level, sums).value == 306


def test_skew_is_in_nanoseconds(calibration):
    assert calibration.timing.skew_ns == pytest.approx((0.52, 0.52))


def test_kept_found_and_named(calibration, tmp_path):
    raw = {"sweep_0_levels": np.arange(5.0)}
    path = save(calibration, raw=raw, folder=tmp_path)
    found = find(Device("kit-7"), folder=tmp_path, now=NOW)
    assert found.describe() == "calibration of kit-7, made 2026-03-01T12:00:00+00:00 (SIMULATED device)"
    assert load_raw(path)["sweep_0_levels"].tolist() == [0, 1, 2, 3, 4]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["kit-7.json", "kit-7.npz"]


def test_the_folder_follows_the_environment(calibration, tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTBED_CALIBRATIONS", str(tmp_path / "a"))
    assert save(calibration).parent == tmp_path / "a"
    monkeypatch.delenv("LIGHTBED_CALIBRATIONS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "b"))
    assert find_path("kit-7") == tmp_path / "b" / "lightbed" / "calibrations" / "kit-7.json"


def test_names_that_are_no_file_names_get_files_of_their_own():
    names = ["a/b", "a-b", "a b", "../a", "", "ZCU111 at 10.0.0.7, firmware of Oct 7 2022"]
    paths = [find_path(name, "/x") for name in names]
    assert len(set(paths)) == len(names)
    assert all(str(path.parent) == "/x" for path in paths)


def test_none_is_none_and_required_is_an_error(tmp_path):
    assert find(Device("kit-8"), folder=tmp_path) is None
    with pytest.raises(errors.NotCalibrated, match="lightning calibrate"):
        require(Device("kit-8"), folder=tmp_path)


def test_a_factory_calibration_serves_until_one_is_measured(calibration, tmp_path):
    factory = to_json(replace(calibration, origin="factory"))
    device = Device("kit-7", factory)
    years_later = NOW + timedelta(days=900)
    assert find(device, folder=tmp_path, now=years_later).describe().startswith("factory calibration")
    save(replace(calibration, made=years_later), folder=tmp_path)
    assert find(device, folder=tmp_path, now=years_later).origin == "measured"


def test_another_devices_calibration_is_refused(calibration, tmp_path):
    save(calibration, folder=tmp_path)
    find_path("kit-7", tmp_path).rename(find_path("kit-9", tmp_path))
    with pytest.raises(errors.ForeignCalibration, match="kit-7"):
        find(Device("kit-9"), folder=tmp_path, now=NOW)


def test_another_firmware_has_other_ticks_and_counts(calibration, tmp_path):
    device = Device("kit-7", to_json(replace(calibration, origin="factory")))
    device.firmware = "Dec 15 2025"
    assert find(device, folder=tmp_path, now=NOW) is None
    save(calibration, folder=tmp_path)
    with pytest.raises(
        errors.StaleCalibration,
        match="this calibration was measured with firmware Oct 7 2022, but firmware Dec",
    ):
        find(device, folder=tmp_path, now=NOW)
    device.firmware = "Oct 7 2022"
    assert find(device, folder=tmp_path, now=NOW) is not None


def test_an_old_calibration_is_refused_and_the_age_can_be_set(calibration, tmp_path, monkeypatch):
    save(calibration, folder=tmp_path)
    later = NOW + timedelta(hours=30)
    with pytest.raises(errors.StaleCalibration, match="is 30"):
        find(Device("kit-7"), folder=tmp_path, now=later)
    assert find(Device("kit-7"), folder=tmp_path, now=later, max_age=timedelta(hours=31)) is not None
    monkeypatch.setenv("LIGHTBED_CALIBRATION_HOURS", "48")
    assert find(Device("kit-7"), folder=tmp_path, now=later) is not None
    monkeypatch.setenv("LIGHTBED_CALIBRATION_HOURS", "soon")
    with pytest.raises(errors.OutOfRange, match="LIGHTBED_CALIBRATION_HOURS"):
        find(Device("kit-7"), folder=tmp_path, now=later)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"version": 2}, errors.UnknownVersion),
        ({"version": None}, errors.UnknownVersion),
        ({"format": "a cake"}, errors.UnknownVersion),
        ({"decoder": {}}, errors.CalibrationError),
        ({"modulators": []}, errors.CalibrationError),
        ({"made": "yesterday"}, errors.CalibrationError),
    ],
)
def test_a_document_of_another_kind_or_a_broken_one_is_refused(calibration, tmp_path, change, kind):
    path = tmp_path / "kit-7.json"
    path.write_text(json.dumps({**to_json(calibration), **change}))
    with pytest.raises(kind, match="calibrate"):
        load(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(errors.CalibrationError, match="cannot be read"):
        load(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(
        errors.UnknownVersion,
        match=r"is not a JSON document \(Expecting property name enclosed in double quotes",
    ):
        load(tmp_path / "text.json")


def test_a_failed_save_leaves_the_old_document(calibration, tmp_path, monkeypatch):
    path = save(calibration, folder=tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save(replace(calibration, readout=0), folder=tmp_path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["kit-7.json"]
