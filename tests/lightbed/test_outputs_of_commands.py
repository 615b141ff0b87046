"""Every command that writes a file writes to a device as it stands, and refuses a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("lark")
skip_without("typer")
skip_without("matplotlib")

import fpga
from fpga.cli import run_app as countaction
from testbed.cli.app import run_app as run_testbed

MODULE = str(Path(fpga.__file__).parent / "library" / "argmax.ca")
SMALL = ("vgg16", "--nodes", "4", "--set", "batch_per_device=2")
WRITERS = {
    "countaction explain --svg": (countaction, ["explain", MODULE, "--svg"]),
    "countaction sim --vcd": (countaction, ["sim", MODULE, "--stimulus", "STIMULUS", "--vcd"]),
    "countaction sim --png": (countaction, ["sim", MODULE, "--stimulus", "STIMULUS", "--png"]),
    "testbed optimise --out": (run_testbed, ["optimise", *SMALL, "--steps", "5", "--chains", "1", "--out"]),
}


@pytest.fixture
def write(tmp_path, capsys):
    """Return a function: the exit code and the errors of a writer, given the name of its output."""
    stimulus = tmp_path / "stimulus.csv"
    assert countaction(["sim", MODULE, "--init", str(stimulus)]) == 0
    capsys.readouterr()

    def write(name, output):
        run, words = WRITERS[name]
        code = run([*(str(stimulus) if word == "STIMULUS" else word for word in words), str(output)])
        return code, capsys.readouterr().err

    return write


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_a_device_is_written_to_and_stays(write, null_device, writer):
    code, _ = write(writer, null_device)

    assert code == 0
    assert null_device.stat().st_rdev == os.makedev(1, 3)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_and_a_link_to_nothing_are_refused_with_a_reason(write, tmp_path, writer):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")

    for name, reason in (
        ("folder", "it is a folder"),
        ("link", "it is a link to nowhere, which does not exist"),
    ):
        code, error = write(writer, tmp_path / name)
        assert code != 0
        assert reason in error
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.long
def test_a_plan_on_standard_output_stands_there_alone(capfdbinary):
    run, words = WRITERS["testbed optimise --out"]

    assert run([*words, "-"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["format"]
