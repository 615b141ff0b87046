"""The examples in docstrings are true. They are the hand-computed checks of the formulas."""

from __future__ import annotations

import doctest
import importlib
import linecache
import re
from pathlib import Path

import pytest

from lightning.errors import MissingLibrary

ROOT = Path(__file__).parent.parent
IMPORT_TORCH = {"testbed.node.collective"}
PACKAGES = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed")


EXAMPLE = re.compile(rb"^ *(?:#: )?>>> ", re.MULTILINE)
"""A line with an example, and not the shift of Verilog in a text."""


def modules_with_examples() -> list[str]:
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in paths
        if EXAMPLE.search(path.read_bytes())
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.torch] if name in IMPORT_TORCH else [])
        for name in modules_with_examples()
    ],
)
def test_examples_are_true(name, monkeypatch):
    monkeypatch.setattr(
        linecache, "checkcache", lambda *_: None
    )  # doctest looks at every file at every example
    try:
        module = importlib.import_module(name)
    except MissingLibrary as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in PACKAGES:
            raise
        pytest.skip(f"{error.name} is not installed in this environment")
    failed, tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert tried > 0
    assert failed == 0


@pytest.mark.slow
def test_there_are_examples():
    assert "ocs_drivers.model" in modules_with_examples()
