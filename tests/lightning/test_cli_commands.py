"""The commands of `lightning` on the twin: what they print, what they write, and how they refuse."""

import contextlib
import io
import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from libraries import skip_without

from lightning.cli import COMMANDS, run_app
from lightning.kit.calibration import store

for library in ("qick", "typer"):
    skip_without(library, reason="the command line needs lightbed[kit]")

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _no_device_named(monkeypatch):
    monkeypatch.delenv("LIGHTBED_DEVICE", raising=False)


def ran(*words):
    """Return (exit code, standard output, standard error) of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_app(words)
    return code, out.getvalue(), err.getvalue()


def document(*words):
    """Return (exit code, the one document) of a command with --json."""
    code, out, _ = ran(*words, "--json")
    return code, json.loads(out)


def refused(*words):
    """Return the error that a command ends with, which a program sees too."""
    code, found = document(*words)
    assert (code, found["ok"]) == (1, False)
    return found["error"]


# -------------------------------------------------------------------------------------- multiply


def test_a_product_is_printed_with_the_calibration_that_gave_it():
    code, out, err = ran("multiply", "100", "50", "--device", "sim://kit")
    assert code == 0
    assert out.splitlines()[0] == "100 × 50 / 255 = 20  SIMULATED"
    assert "exact 19.61; factory calibration of sim-kit-0001" in out
    assert "SIMULATED" in err


@pytest.mark.parametrize(
    ("a", "b", "result"), [(255, 255, 255), (0, 200, 0), (-100, 50, -20), (-30, -200, 24)]
)
def test_products_with_either_sign(a, b, result):
    code, found = document("multiply", str(a), str(b))
    assert code == 0
    assert abs(found["result"] - result) <= 1
    assert (found["simulated"], found["device"], found["exact"]) == (
        True,
        "sim-kit-0001",
        round(a * b / 255, 4),
    )


@pytest.mark.parametrize("value", ["256", "-256", "1000000"])
def test_a_value_out_of_range_is_refused_by_name(value):
    error = refused("multiply", value, "1")
    assert error["code"] == "config.out-of-range"
    assert "-255 to 255" in error["message"]


def test_a_device_without_a_calibration_names_the_command_that_makes_one():
    error = refused("multiply", "1", "2", "--device", "sim://kit?vary=yes&seed=3")
    assert (error["code"], error["device"]) == ("calibration.none", "sim-kit-varied-0003")
    assert "lightning calibrate" in error["hint"]


def test_a_calibration_of_another_device_is_refused(kit):
    other = store.require(kit)
    store.find_path("x").parent.mkdir(parents=True, exist_ok=True)
    kept = store.save(other)
    kept.rename(store.find_path("sim-kit-varied-0003"))
    error = refused("multiply", "1", "2", "--device", "sim://kit?vary=yes&seed=3")
    assert error["code"] == "calibration.foreign"
    assert "sim-kit-0001" in error["message"]


def test_a_calibration_that_is_too_old_is_refused(kit):
    from dataclasses import replace

    store.save(replace(store.require(kit), origin="measured", made=datetime.now(UTC) - timedelta(hours=30)))
    error = refused("multiply", "1", "2")
    assert error["code"] == "calibration.stale"
    assert "30.0 h old" in error["message"]


@pytest.mark.socket
@pytest.mark.parametrize(
    ("device", "code"),
    [
        ("sim://kit?fault=dead_board", "device.gone"),
        ("sim://kit?fault=gone_in_acquisition", "device.gone"),
        ("sim://kit?fault=wrong_clock", "program.unsupported-clock"),
        ("qick://127.0.0.1:1", "device.gone"),
        ("qick://local", "device.gone"),
        ("sim://kitten", "address"),
        ("sim://kit?no_such_knob=1", "address"),
        ("gpib://7", "address.unknown-scheme"),
        ("kit", "address"),
        ("replay:///no/such/file.npz", "recording"),
    ],
)
def test_a_device_that_cannot_be_used_is_a_named_error(device, code):
    error = refused("scope", "1", "2", "--device", device)
    assert error["code"] == code
    assert error["hint"]


@pytest.mark.slow
def test_a_board_whose_counter_stands_still_is_left(monkeypatch):
    from lightning.kit.devices import guard
    from lightning.kit.devices.deadline import Patience

    monkeypatch.setattr(guard, "SIMULATED_PATIENCE", Patience(progress_s=0.2))
    error = refused("multiply", "1", "2", "--device", "sim://kit?fault=stuck_counter")
    assert error["code"] == "device.stuck"
    assert "shot counter" in error["message"]


def test_an_error_is_one_line_for_people():
    code, out, err = ran("multiply", "1", "2", "--device", "sim://kit?vary=yes")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("error: sim-kit-varied-0001: ")


@pytest.mark.parametrize("words", [("multiply",), ("multiply", "1", "two"), ("sweep", "4"), ("nonsense",)])
def test_wrong_usage_is_an_error_for_programs_too(words):
    error = refused(*words)
    assert error["code"] == "lightning.error"
    assert error["message"]


# ----------------------------------------------------------------------------------------- sweep


@pytest.mark.slow
def test_a_sweep_finds_the_half_wave_word_of_a_device_that_nobody_knows(tmp_path):
    table, picture = tmp_path / "sweep.csv", tmp_path / "sweep.png"
    words = ("sweep", "2", "--device", "sim://kit?v_pi_2=5.5", "--csv", str(table), "--png", str(picture))
    code, found = document(*words)
    assert code == 0
    assert found["half_wave_word"] == pytest.approx(22_000, rel=0.005)
    assert found["peak_word"] - found["null_word"] == pytest.approx(found["half_wave_word"], abs=1)
    assert found["residual"] < 0.005 < found["polynomial_residual"]
    assert found["written"] == [str(picture), str(table)]
    first, names, *rows = table.read_text().splitlines()
    assert re.fullmatch(
        r"# sim-kit-0001-[0-9a-f]{6} \(SIMULATED\)", first
    )  # another make than the nominal kit
    assert (names, len(rows)) == ("word,level,fit", 256)
    assert picture.read_bytes()[:8] == PNG


@pytest.mark.slow
def test_a_sweep_in_the_dark_says_so():
    error = refused("sweep", "0", "--device", "sim://kit?laser_dropped=on")
    assert error["code"] == "calibration"
    assert "laser" in error["hint"]


@pytest.mark.slow
def test_a_sweep_in_which_no_curve_is_found_says_so(monkeypatch):
    def flat(*args, **options):
        raise ValueError("a fringe needs 16 finite points or more")

    monkeypatch.setattr("lightning.kit.calibration.measurement.transfer.sweep_modulators", flat)
    error = refused("sweep", "0")
    assert error["code"] == "calibration"
    assert "16 finite points" in error["message"]


@pytest.mark.slow
def test_a_sweep_says_simulated_and_what_was_written(tmp_path):
    table = tmp_path / "sweep.csv"
    code, out, _ = ran("sweep", "0", "--points", "64", "--csv", str(table))
    assert code == 0
    assert out.splitlines()[0] == "modulator 0 of sim-kit-0001, 64 points  SIMULATED"
    assert out.splitlines()[-1] == f"written: {table}"
    assert len(table.read_text().splitlines()) == 66


# ----------------------------------------------------------------------------------------- scope


@pytest.mark.slow
def test_scope_draws_and_decodes(tmp_path):
    picture, table = tmp_path / "wave.png", tmp_path / "wave.csv"
    code, out, _ = ran("scope", "100", "50", "--png", str(picture), "--csv", str(table))
    assert code == 0
    assert out.splitlines()[0] == "modulators at 100, 50, 0, 0: decoded 20  SIMULATED"
    assert picture.read_bytes()[:8] == PNG
    columns = np.genfromtxt(table, delimiter=",", names=True, skip_header=1)
    assert columns.dtype.names == ("time_us", "i_1", "q_1")
    assert columns.size == 250


def test_scope_works_without_a_calibration_and_says_what_is_missing(tmp_path):
    picture = tmp_path / "wave.png"
    code, found = document("scope", "255", "255", "--device", "sim://kit?vary=yes", "--png", str(picture))
    assert (code, found["result"]) == (0, None)
    assert "lightning calibrate" in found["why"]
    assert found["words"] == [20_000, 20_000, 0, 0]
    assert picture.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--set", "readout_length=5000"), "program.readout-too-long"),
        (("--set", "readouts=7"), "program.wrong-channel"),
        (("--set", "channel_0=9"), "program.wrong-channel"),
        (("--set", "dac_gain_0=1"), "config.ambiguous"),
        (("--set", "dac_7=1"), "config.unknown-key"),
        (("--set", "soft_avgs"), "config"),
        (("--set", "soft_avgs=many"), "config.out-of-range"),
        (("300", "1"), "config.out-of-range"),
        (("1", "2", "3", "4", "5"), "config.out-of-range"),
        (("--png", "/no/such/folder/x.png"), "picture"),
        (("--png", "x.txt"), "picture"),
        (("--csv", "/no/such/folder/x.csv"), "file"),
    ],
)
def test_what_scope_cannot_do_is_a_named_error(words, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = refused("scope", *words)
    assert error["code"] == code
    assert error["message"]


@pytest.mark.slow
def test_settings_are_those_of_the_configuration(tmp_path):
    sets = ("--set", "word_0=12000", "--set", "readouts=0,1", "--set", "soft_avgs=2")
    code, found = document("scope", *sets, "--png", str(tmp_path / "x.svg"))
    assert (code, found["result"]) == (0, None)
    assert found["words"][0] == 12_000
    assert (found["settings"]["readouts"], found["settings"]["soft_avgs"]) == ([0, 1], 2)


@pytest.mark.long
def test_a_recorded_session_is_seen_again(tmp_path):
    kept, picture = tmp_path / "kept.npz", ("--png", str(tmp_path / "x.png"))
    code, first = document("scope", "200", "90", "--record", str(kept), *picture)
    assert code == 0
    assert str(kept) in first["written"]
    code, again = document("scope", "--device", f"replay://{kept}", *picture)
    assert code == 0
    assert (again["result"], again["settings"]) == (first["result"], first["settings"])


def test_a_recorded_fault_is_met_again(tmp_path):
    kept = tmp_path / "fault.npz"
    device = "sim://kit?fault=gone_in_acquisition"
    first = refused("scope", "9", "9", "--device", device, "--record", str(kept))
    again = refused("scope", "--device", f"replay://{kept}")
    assert first["code"] == again["code"] == "device.gone"


# ------------------------------------------------------------------------------------------- dot


@pytest.mark.slow
def test_a_dot_product_of_vectors_and_of_a_matrix(tmp_path):
    rng = np.random.default_rng(1)
    matrix, vector = rng.integers(0, 256, (3, 40)), rng.integers(0, 256, 40)
    np.save(tmp_path / "matrix.npy", matrix)
    np.savetxt(tmp_path / "vector.txt", vector[None], delimiter=",", fmt="%d")
    code, found = document("dot", str(tmp_path / "matrix.npy"), str(tmp_path / "vector.txt"), "--shots", "4")
    assert code == 0
    assert found["exact"] == pytest.approx((matrix @ vector / 255).tolist(), abs=1e-3)
    assert found["result"] == pytest.approx(found["exact"], abs=20)


@pytest.mark.slow
def test_a_dot_product_is_printed_with_the_exact_one():
    code, out, _ = ran("dot", "100,-50,200,7", "255,255,0,0", "--shots", "8")
    result, exact = out.splitlines()
    assert (code, exact) == (0, "exact: 50")
    assert result.endswith("  SIMULATED")
    assert abs(int(result.split()[0]) - 50) <= 3


@pytest.mark.parametrize("words", [("1,2", "3"), ("1,x", "3,4"), ("1.5,2", "3,4"), ("1,300", "3,4")])
def test_vectors_that_cannot_be_multiplied_are_refused(words):
    assert refused("dot", *words)["code"] == "config.out-of-range"


# ------------------------------------------------------------------------------------- the whole


def test_a_device_is_named_by_the_environment_too(monkeypatch):
    monkeypatch.setenv("LIGHTBED_DEVICE", "sim://kit?vary=yes&seed=3")
    assert refused("multiply", "1", "2")["device"] == "sim-kit-varied-0003"
    assert document("multiply", "1", "2", "--device", "sim://kit")[1]["device"] == "sim-kit-0001"


def test_an_interruption_has_a_code_of_its_own(monkeypatch):
    def interrupted(address):
        raise KeyboardInterrupt

    monkeypatch.setattr("lightning.kit.connection.connect", interrupted)
    assert ran("multiply", "1", "2") == (130, "", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_is_for_with_an_example(name):
    code, out, _ = ran(name, "--help")
    assert code == 0
    assert "For example: lightning" in " ".join(out.split())


def test_the_list_of_commands_is_complete():
    code, out, _ = ran("--help")
    assert code == 0
    assert all(f" {name} " in out for name in COMMANDS)


@pytest.mark.process
def test_help_needs_neither_qick_nor_matplotlib():
    script = (
        "import sys; from lightning.cli import run_app; run_app(['multiply', '--help']);"
        " print([name for name in ('qick', 'matplotlib', 'pyvisa') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"
