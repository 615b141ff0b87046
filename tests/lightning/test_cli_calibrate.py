"""`lightning calibrate` on the twin: unattended, failing, and asking before it sets real instruments."""

import contextlib
import io
import json
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

from lightning.cli import run_app
from lightning.errors import AddressError, LightningError
from lightning.kit.calibration import store
from lightning.kit.calibration.measurement.steps import STEPS
from lightning.kit.devices.identity import DeviceIdentity

for library in ("qick", "typer", "pyvisa", "matplotlib"):
    skip_without(library, reason="the guided run needs lightbed[kit]")

module = pytest.importorskip("lightning.cli.calibrate")
DEVICE = "sim://kit?vary=yes&seed=8"
REAL = DeviceIdentity("board-7")


def ran(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_app(words)
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
@needs("socket")
def calibrated(tmp_path_factory):
    """Return (folder, exit code, output) of an unattended run on a device that nobody has calibrated."""
    folder = tmp_path_factory.mktemp("calibrated")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LIGHTBED_CALIBRATIONS", str(folder / "kept"))
        code, out, _ = ran("calibrate", "--device", DEVICE, "--yes", "--png", str(folder / "curves.png"))
    return folder, code, out


def test_every_step_is_reported_with_figure_and_limit(calibrated):
    _, code, out = calibrated
    lines = out.splitlines()
    reported = [line.split()[1] for line in lines if line[:4] in ("pass", "skip", "FAIL")]
    assert (code, reported) == (0, list(STEPS))
    assert out.count("limit:") == len(STEPS)
    assert [line.split()[1] for line in lines if line[:4] == "skip"] == ["bias"]
    assert "FAIL" not in out


def test_the_calibration_is_kept_with_its_raw_data_and_a_plot(calibrated):
    folder, _, out = calibrated
    kept = folder / "kept" / "sim-kit-varied-0008.json"
    assert out.splitlines()[-3:] == [
        "sim-kit-varied-0008 (SIMULATED): all 10 steps passed",
        f"written: {kept}",
        f"written: {folder / 'curves.png'}",
    ]
    assert "sweep_3_levels" in store.load_raw(kept)
    assert (folder / "curves.png").stat().st_size > 20_000


def test_products_are_right_with_it(calibrated, monkeypatch):
    monkeypatch.setenv("LIGHTBED_CALIBRATIONS", str(calibrated[0] / "kept"))
    code, out, _ = ran("multiply", "211", "187", "--device", DEVICE, "--json")
    found = json.loads(out)
    assert code == 0
    assert abs(found["result"] - 155) <= 1
    assert found["calibration"].startswith("calibration of sim-kit-varied-0008")


@pytest.mark.socket
def test_a_failed_step_is_an_error_with_its_hint_and_nothing_is_kept():
    code, out, _ = ran("calibrate", "--device", "sim://kit?laser_dropped=on", "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["saved"], found["simulated"]) == (1, False, None, True)
    assert found["error"]["code"] == "calibration"
    failed = next(each for each in found["steps"] if not each["passed"])
    assert found["error"]["hint"] == failed["hint"] != ""
    assert "laser" in failed["hint"] or "interlock" in failed["hint"]
    assert not list(Path(store.find_folder()).glob("*.json"))


@pytest.mark.socket
def test_a_failed_step_is_reported_with_its_hint(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = ran("calibrate", "--device", "sim://kit?laser_dropped=on", "--yes")
    assert code == 1
    assert "FAIL  " in out
    assert "\n                    hint: " in out
    assert out.splitlines()[-1].endswith("failed; nothing was saved")
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.socket
def test_an_instrument_that_is_not_there_is_a_named_error():
    code, out, _ = ran("calibrate", "--laser", "TCPIP::127.0.0.1::1::SOCKET", "--yes", "--json")
    assert code == 1
    assert json.loads(out)["error"]["code"] == "instrument.gone"


def test_real_instruments_are_set_for_nobody_who_was_not_asked():
    named = {"laser": "TCPIP::192.0.2.8::5000::SOCKET"}
    with pytest.raises(
        LightningError, match="board-7: laser would be set, but there is no terminal to ask for"
    ):
        module._confirm_changes(named, REAL, is_interactive=False, is_confirmed=False)
    module._confirm_changes(named, REAL, is_interactive=False, is_confirmed=True)
    module._confirm_changes({}, REAL, is_interactive=False, is_confirmed=False)


@pytest.mark.socket
def test_a_real_laser_with_a_simulated_kit_is_not_set_by_default_either():
    code, out, _ = ran("calibrate", "--laser", "TCPIP::127.0.0.1::1::SOCKET", "--json")
    assert code == 1
    assert json.loads(out)["error"]["hint"] == "Pass --yes"


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False)])
def test_a_person_is_asked_before_real_instruments_are_set(answer, goes_on, monkeypatch, capsys):
    import typer

    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    with contextlib.nullcontext() if goes_on else pytest.raises(typer.Abort):
        module._confirm_changes({"bias": "GPIB::5"}, REAL, is_interactive=True, is_confirmed=False)
    assert "bias: GPIB::5" in capsys.readouterr().out


def test_paddles_are_turned_until_the_person_is_done(monkeypatch, capsys):
    readings, answers, asked = iter([0.2, 0.6, 0.5]), iter(["", "", "d"]), []
    monkeypatch.setattr("builtins.input", lambda prompt: (asked.append(prompt), next(answers))[1])
    module._turn_paddles(lambda: next(readings))
    assert [prompt.split()[0] for prompt in asked] == ["20.0%", "60.0%", "50.0%"]
    assert "(best 60.0%)" in asked[-1]
    assert "Turn the paddles of the polarisation controller until the reading is" in capsys.readouterr().out


@pytest.mark.socket
def test_the_twin_brings_its_instruments(kit):
    assert set(module.choose_resources(kit, {}, is_lasting=False)) == {"laser", "meter"}
    named = module.choose_resources(kit, {}, is_lasting=True)
    assert module.choose_resources(kit, {"bias": "bench", "laser": "GPIB::5"}, is_lasting=False) == {
        "bias": named["bias"],
        "laser": "GPIB::5",
    }
    with module.open_instruments(named, is_required=False) as bench:
        assert bench.laser.identity.make.lower() == "santec"
        assert bench.bias.output_count == 4


def test_a_board_brings_no_instruments():
    class Board:
        simulated = False

    assert module.choose_resources(Board(), {}, is_lasting=True) == {}
    with pytest.raises(AddressError, match="this device has no laser of its own"):
        module.choose_resources(Board(), {"laser": "bench"}, is_lasting=True)
    with module.open_instruments({}, is_required=False) as bench:
        assert bench is None


def test_without_pyvisa_a_twin_is_calibrated_without_instruments(monkeypatch):
    import lightning.kit.instruments
    from lightning.errors import MissingLibrary

    def missing(resources):
        raise MissingLibrary("pyvisa is needed")

    monkeypatch.setattr(lightning.kit.instruments, "open_bench", missing)
    with module.open_instruments({"laser": "GPIB::5"}, is_required=False) as bench:
        assert bench is None
    with pytest.raises(MissingLibrary), module.open_instruments({"laser": "GPIB::5"}, is_required=True):
        pass
