"""Libraries that a test module needs: looked for when tests are collected, imported when a test uses them.

Importing what all tests need would cost each worker seconds, whichever tests it runs.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


def skip_without(*names: str, reason: str = "") -> None:
    """Skip the test, or the module that is being collected, unless these libraries are installed."""
    for name in names:
        package = name.partition(".")[0]  # to look for a module in a package is to import the package
        if find_spec(package) is None:
            pytest.skip(reason or f"needs {name}, which is not installed", allow_module_level=True)


def library(name: str, *, reason: str = "") -> Any:
    """Return a stand-in for the library that imports it when an attribute is asked for; skip without it."""
    skip_without(name, reason=reason)
    return _Library(name)


class _Library:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest asks each name of a module whether it is a test or a fixture
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
