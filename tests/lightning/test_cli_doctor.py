"""`lightning doctor`: every finding with its hint."""

import contextlib
import io
import json
import re
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from libraries import skip_without

from lightning import doctor
from lightning.kit import profiles
from lightning.kit.calibration import store

skip_without("qick", reason="a device is a QickConfig: pip install 'lightbed[kit]'")

ALL = {
    "numpy": "2.4.6",
    "qick": "0.2.436",
    "Pyro4": "4.82",
    "psutil": "7.0",
    "matplotlib": "3.11",
    "numba": "0.68",
}
ALL |= {"pyvisa": "1.16"}


def states(findings):
    return {each.name: each.state for each in findings}


def test_libraries_that_go_together_are_well():
    assert set(states(doctor.inspect_versions(ALL, "x86_64")).values()) == {"ok"}


@pytest.mark.parametrize(
    ("changed", "machine", "name", "state"),
    [
        ({"numpy": "1.24.4"}, "x86_64", "numpy", "bad"),
        ({"qick": "0.2.357"}, "x86_64", "qick's version", "warning"),
        ({"pynq": "4.0.0"}, "x86_64", "pynq", "warning"),
        ({"pynq": "4.0.0", "numpy": "1.26.4"}, "x86_64", "pynq", "ok"),
        ({"pynq": "3.1.2"}, "aarch64", "pynq", "bad"),
        ({"pynq": "3.0.1", "numpy": "1.26.4"}, "aarch64", "pynq", "ok"),
    ],
)
def test_versions_that_do_not_go_together_are_reported(changed, machine, name, state):
    found = {each.name: each for each in doctor.inspect_versions(ALL | changed, machine)}
    assert found[name].state == state
    assert bool(found[name].hint) is (state != "ok")


@pytest.mark.parametrize(
    ("library", "state"), [("qick", "bad"), ("Pyro4", "warning"), ("matplotlib", "warning")]
)
def test_a_library_that_is_missing_is_reported_with_its_extra(library, state):
    without = {name: version for name, version in ALL.items() if name != library}
    (found,) = (each for each in doctor.inspect_versions(without, "x86_64") if each.name == library)
    assert (found.state, found.found[:13]) == (state, "not installed")
    assert found.hint.startswith("install the extra [")


@pytest.mark.parametrize("extra", ["inference", "serve", "torch", "hdl"])
def test_what_trained_networks_need_is_reported_by_extra(extra):
    wanted = dict.fromkeys(doctor.PURPOSES[extra].libraries, "1.2")
    assert doctor.inspect_extra(extra, wanted).state == "ok"
    missing = list(wanted)[-1]
    found = doctor.inspect_extra(extra, wanted | {missing: ""})
    assert (found.state, found.hint) == ("warning", f"install the extra [{extra}] of lightbed")
    assert found.found.startswith(f"{missing} not installed: no ")


def test_extras_bring_what_doctor_looks_for():
    """As pyproject.toml says, the extras that an extra names included."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]

    def brought(extra):
        for line in extras[extra]:
            if line.startswith("lightbed["):
                for other in line[len("lightbed[") : -1].split(","):
                    yield from brought(other)
            else:
                yield re.split(r"[><=;]", line)[0]

    for extra, purpose in doctor.PURPOSES.items():
        assert set(purpose.libraries) <= set(brought(extra))
    reported = {each.name for each in doctor.inspect_environment()}
    assert reported >= set(doctor.PURPOSES)


def test_a_foreign_lightning_is_reported(tmp_path):
    assert doctor.inspect_name_conflict([str(tmp_path)]).state == "ok"
    (tmp_path / "lightning-2.5.0.dist-info").mkdir()
    found = doctor.inspect_name_conflict([str(tmp_path)])
    assert found.state == "bad"
    assert "separate environment" in found.hint


def test_a_file_that_went_with_a_foreign_lightning_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.name_conflict, "__file__", str(tmp_path / "name_conflict.py"))
    found = doctor.inspect_name_conflict([])
    assert (found.state, found.found) == (
        "warning",
        f"{tmp_path / '__init__.py'} was removed with another package named lightning",
    )


@pytest.mark.parametrize(
    ("sockets", "state"),
    [
        ([("127.0.0.1", 8888), ("::1", 8888), ("0.0.0.0", 22)], "ok"),
        ([("0.0.0.0", 8888)], "warning"),
        ([("::", 8888)], "warning"),
        ([], "ok"),
        (None, "ok"),
    ],
)
def test_a_server_that_others_reach_is_a_warning(sockets, state):
    assert doctor.inspect_servers(sockets).state == state


@pytest.mark.socket
def test_what_listens_here_is_seen():
    import socket

    psutil = pytest.importorskip("psutil")
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        opened.listen()
        assert psutil.CONN_LISTEN
        found = doctor.list_listening_sockets()
        assert found is None or opened.getsockname() in found


@pytest.mark.parametrize(
    ("address", "state"),
    [
        ("sim://kit", "ok"),
        ("qick://local", "ok"),
        ("qick://127.0.0.1", "ok"),
        ("qick://192.0.2.7", "warning"),
        ("qick://a b", "bad"),
    ],
)
def test_a_board_over_the_network_is_a_warning(address, state):
    assert doctor.inspect_exposure(address).state == state


@pytest.mark.parametrize(
    ("name", "state"),
    [("lightning-zcu111", "ok"), ("zcu111", "warning"), ("zcu216", "warning"), ("rfsoc4x2", "warning")],
)
def test_baluns_are_warned_of_because_the_pulses_have_frequency_0(name, state):
    soccfg = profiles.load(name).make_soccfg()
    found = doctor.inspect_coupling(soccfg)
    assert found.state == state
    assert ("pulse_freq 0 droop" in found.found) is (state == "warning")
    assert doctor.inspect_firmware(soccfg).found.startswith(f"{name}: ")


def test_firmware_that_nobody_described_is_reported():
    document = profiles.load("zcu111").config | {"fw_timestamp": "Tue Jan 6 2026"}
    assert doctor.inspect_firmware(document).state == "warning"
    assert "another build for ZCU111" in doctor.inspect_firmware(document).found
    assert doctor.inspect_coupling(document).state == "warning"
    assert "no profile" in doctor.inspect_firmware(document | {"board": "KV260"}).found


def test_a_healthy_twin_is_well_in_every_finding():
    assert set(states(doctor.inspect_device("sim://kit")).values()) == {"ok"}


@pytest.mark.socket
@pytest.mark.parametrize(
    ("address", "name", "word"),
    [
        ("sim://kit?fault=dead_board", "clocks", "answer"),
        ("sim://kit?fault=wrong_clock", "clocks", "not locked"),
        ("sim://kit?fault=gone_in_acquisition", "shots", "no answer"),
        ("sim://kit?laser_dropped=on", "light", "known products are off by"),
        ("sim://kit?bias_v_0=3.25", "light", "known products are off by"),
        ("qick://127.0.0.1:1", "device", "no board answers"),
    ],
)
def test_what_is_wrong_with_a_device_is_found(address, name, word):
    *_, last = doctor.inspect_device(address)
    assert (last.name, last.state) == (name, "bad")
    assert word in last.found
    assert last.hint


def test_firmware_on_which_light_cannot_be_looked_at_is_no_fault(kit):
    other = {
        "device": "sim-kit-0001-zcu216",
        "origin": "measured",
        "made": datetime.now(UTC),
        "conditions": {},
    }
    store.save(replace(store.require(kit), **other))
    *_, last = doctor.inspect_device("sim://kit?profile=zcu216")
    assert (last.name, last.state) == ("light", "warning")


def test_the_age_of_a_calibration_is_reported(kit):
    made = datetime.now(UTC) - timedelta(hours=3)
    store.save(replace(store.require(kit), origin="measured", made=made))
    assert doctor.inspect_calibration(kit).found.endswith(", 3.0 h old")
    stale = doctor.inspect_calibration(kit, now=made + timedelta(hours=30))
    assert (stale.state, "30.0 h old" in stale.found) == ("bad", True)


def test_an_absent_calibration_is_a_warning_and_ends_the_look():
    *_, last = doctor.inspect_device("sim://kit?vary=yes")
    assert (last.name, last.state) == ("calibration", "warning")
    assert "lightning calibrate" in last.hint


@pytest.mark.slow
@pytest.mark.parametrize(("device", "code"), [("sim://kit", 0), ("sim://kit?laser_dropped=on", 1)])
def test_the_command_prints_findings_and_ends_by_the_worst(device, code):
    pytest.importorskip("typer", reason="the command line needs lightbed[kit]")
    from lightning.cli import run_app

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert run_app(["doctor", "--device", device]) == code
    assert "ok    device: sim-kit-0001 (SIMULATED), board ZCU111" in out.getvalue()
    assert ("BAD   light: " in out.getvalue()) is bool(code)

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert run_app(["doctor", "--device", device, "--json"]) == code
    found = json.loads(out.getvalue())
    assert found["ok"] is not bool(code)
    assert {"name", "state", "found", "hint"} <= set(found["findings"][0])
