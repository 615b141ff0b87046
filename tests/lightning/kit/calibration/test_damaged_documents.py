"""A damaged or edited calibration is refused by name, and never becomes a wrong product or a traceback."""

from __future__ import annotations

import copy
import json
import random
import warnings
from datetime import UTC, datetime, timedelta

import pytest

from lightning import errors
from lightning.kit.calibration import find, from_json, load
from lightning.kit.calibration.store import find_path

pytestmark = pytest.mark.board

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAMAGE = (None, "", "x", "../x", True, -1, 0, 1.5, 40_000, -20_000, 10**30, 1e9, 1e308, [], {}, [[]])
DAMAGE += (float("nan"), float("inf"), 10**400)


@pytest.fixture(scope="module")
def document():
    from importlib import resources

    text = (resources.files("sim.twins.rfsoc.kit") / "factory_calibration.json").read_text(encoding="utf-8")
    return json.loads(text)


class Device:
    """With a factory calibration, and as many generators and readouts as the kit."""

    identity, simulated = "sim-kit-0001", True

    def __init__(self, document):
        self.document = document

    def factory_calibration(self):
        return self.document

    def __getitem__(self, key):
        return {"board": "ZCU111", "fw_timestamp": "Oct 7 2022", "gens": [0] * 7, "readouts": [0] * 2}[key]


def places(node, path=()):
    """Yield the path of every field of the document, containers included."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


def damaged(document, path, value):
    changed = copy.deepcopy(document)
    owner = changed
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("decoder", "gain"), [float("nan")] * 2),
        (("decoder", "gain"), [0, 0]),
        (("decoder", "offset"), None),
        (("decoder", "offset"), "x"),
        (("modulators", 0, "encoder", "words", 200), -20_000),
        (("modulators", 0, "encoder", "words", 200), 40_000),
        (("modulators", 0, "encoder", "words", 200), 10**30),
        (("modulators", 0, "channel"), 1),
        (("timing", "arrival"), [1e9] * 4),
        (("timing", "arrival"), [float("nan")] * 4),
        (("timing", "tick_ns"), "a"),
        (("conditions",), "abc"),
        (("raw",), "../elsewhere.npz"),
    ],
)
def test_what_cannot_be_is_refused(document, path, value):
    with pytest.raises(errors.CalibrationError, match=r"is damaged.*lightning calibrate"):
        from_json(damaged(document, path, value))


@pytest.mark.slow
def test_damage_of_any_one_field_never_gives_a_raw_error_or_another_product(document):
    rng = random.Random(5)
    fields = list(places(document))
    short = [path for path in fields if len(path) < 5]
    whole = from_json(document)
    full = whole.decoder.predict(whole.compute_operands([[200, 200, 0, 0]]))
    refused = 0
    for _ in range(150):
        broken = damaged(document, rng.choice(short if rng.random() < 0.7 else fields), rng.choice(DAMAGE))
        try:
            found = from_json(broken)
        except errors.CalibrationError:
            refused += 1
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            words, answer = found.encode({0: 200, 1: 200}), found.decode_table(full, [[200, 200, 0, 0]])
        assert all(abs(word) <= 32_766 for word in words.values())
        assert abs(answer[0]) < 10_000
    assert refused >= 100


def test_a_channel_or_readout_that_the_firmware_lacks_is_refused(document, tmp_path):
    for path, value in ((("modulators", 0, "channel"), 9), (("readout",), 5)):
        kept = damaged({**document, "origin": "measured", "made": NOW.isoformat()}, path, value)
        find_path("sim-kit-0001", tmp_path).write_text(json.dumps(kept))
        with pytest.raises(errors.CalibrationError, match=f"{value}, but the firmware has 0 to"):
            find(Device(None), folder=tmp_path, now=NOW)


def test_the_future_is_refused_beyond_some_minutes(document, tmp_path):
    path = find_path("sim-kit-0001", tmp_path)
    for ahead, fits in ((timedelta(minutes=5), True), (timedelta(days=400), False)):
        path.write_text(json.dumps({**document, "origin": "measured", "made": (NOW + ahead).isoformat()}))
        if fits:
            assert find(Device(None), folder=tmp_path, now=NOW) is not None
        else:
            with pytest.raises(
                errors.CalibrationError,
                match=r"in the future, so its age is unknown",
            ):
                find(Device(None), folder=tmp_path, now=NOW)


def test_only_the_device_is_believed_that_its_calibration_does_not_age(document, tmp_path):
    old = {**document, "made": "2020-01-01T00:00:00+00:00"}
    path = find_path("sim-kit-0001", tmp_path)
    path.write_text(json.dumps(old))
    with pytest.raises(errors.StaleCalibration, match="h old"):
        find(Device(document), folder=tmp_path, now=NOW)
    assert find(Device(old), folder=tmp_path, now=NOW).origin == "factory"
    path.unlink()
    assert find(Device(old), folder=tmp_path, now=NOW).origin == "factory"


def test_brackets_without_end_are_no_document(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(
        errors.UnknownVersion,
        match=r"is not a JSON document",
    ):
        load(path)
