"""The examples run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
ROOT = Path(__file__).parents[1]


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one_switch.py"], ["SIMULATED", "16 x 16", "port 1: ", "connected 3 pairs"]),
    ],
)
def test_an_example_runs_as_it_stands(arguments, words, tmp_path):
    program, *rest = arguments
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / program, *rest],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert [word for word in words if word not in done.stdout] == []
