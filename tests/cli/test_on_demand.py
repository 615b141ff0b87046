"""Packages whose import waits: what is loaded when, and that they are whole afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

THREADS = """
import numpy
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    print({int(total) for total in pool.map(lambda n: numpy.arange(n).sum(), [3] * 8)}.pop())
"""


def outcome(*lines: str) -> str:
    """Return what a fresh interpreter prints that has put off NumPy."""
    program = "\n".join(
        [
            "import sys",
            "from testbed.commands.devices.session import load_on_demand",
            "load_on_demand('numpy', 'psutil', 'no_such_package')",
            *lines,
        ]
    )
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_an_import_alone_loads_nothing():
    assert outcome("import numpy as np", "print('numpy._core' in sys.modules)") == "False"


@pytest.mark.long
@pytest.mark.parametrize(
    "use",
    [
        "import numpy; print(numpy.arange(3).sum())",
        "from numpy import arange; print(arange(3).sum())",
        "import numpy.linalg, numpy; print(numpy.arange(3).sum())",
        "import numpy.ma as ma; print(ma.arange(3).sum())",
        THREADS,
    ],
)
def test_the_first_use_finds_the_whole_package(use):
    assert outcome(use, "assert type(sys.modules['numpy']).__name__ == 'module'") == "3"


def test_what_a_package_lacks_is_an_attribute_error():
    assert outcome("import numpy", "print(hasattr(numpy, 'no_such_thing'))") == "False"


def test_a_read_over_visa_does_without():
    """The processor time of `testbed switch ADDRESS read` is bounded; `benchmarks/startup.py` measures it."""
    said = outcome(
        "import pyvisa",
        "pyvisa.ResourceManager('@py').close()",
        "print([name for name in ('numpy._core', 'psutil._common') if name in sys.modules])",
    )
    assert said == "[]"
