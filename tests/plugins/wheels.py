"""The wheel of this checkout, built once in a session without asking an index."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from needs import needs

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed")
_BUILD = "import sys, setuptools.build_meta as backend; print(backend.build_wheel(sys.argv[1]))"


@pytest.fixture(scope="session")
@needs("process")
def built_wheel(tmp_path_factory) -> Path:
    """Provide a wheel that was built from a copy of the sources, tests included."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "tests", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-c", _BUILD, str(target)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return next(target.glob("lightbed-*.whl"))
