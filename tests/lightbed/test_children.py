"""Children that run our modules import this installation, whatever lies in the current folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import lightbed
from lightbed.children import make_child_environment, make_module_command


@pytest.mark.process
def test_a_folder_of_the_same_name_in_the_current_folder_is_not_taken_for_ours(tmp_path):
    for name in ("sim", "lightbed", "testbed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('that of somebody else')")
    command = make_module_command("sim.twins", "--list")
    done = subprocess.run(
        command, env=make_child_environment(), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "polatis" in done.stdout


def test_our_folder_comes_first_and_what_was_there_stays():
    root = str(Path(lightbed.__file__).resolve().parent.parent)
    assert make_child_environment({"A": "b"}) == {"A": "b", "PYTHONPATH": root}
    assert make_child_environment({"PYTHONPATH": "/x"})["PYTHONPATH"] == f"{root}{os.pathsep}/x"
