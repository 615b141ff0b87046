"""The markers that say what a test needs of the machine, and how a fixture passes them on.

A test names what it needs by a marker on itself, on its module, or on a fixture that it asks for:

    @pytest.fixture
    @needs("process", "socket")
    def twin(): ...

Every lane of the suite is an expression over the markers (`pytest -m "not kernel"`); no list of files is kept by hand.
The plugin `lanes` reads them, and holds every test to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

Function = TypeVar("Function", bound=Callable[..., Any])

MARKERS = {
    "process": "starts a process, also through a fixture",
    "socket": "opens a socket that is more than a pair in memory",
    "hdl": "needs tools for hardware: Icarus Verilog, Verilator, Yosys, solvers",
    "torch": "imports torch",
    "kernel": "needs root, network namespaces, sshd and tc",
    "slow": "takes some 0.2 s of processor time, or 0.8 s with all its cases; not in the fast lane",
    "long": "costs more than it proves every day; run by `make test-long`, or when it is named",
    "translates": "builds a model or machine code that stays in a cache; `make install-test` runs it once",
    "board": "is about what runs on a board: in `make test`, its environment alone runs it",
    "codec": "takes the branches of a codec, all of which the suite must take",
}

IMPLIED = {"hdl": ("process",), "kernel": ("process", "socket")}
"""Who needs the first needs the others."""


def needs(*names: str) -> Callable[[Function], Function]:
    """Mark a fixture: every test that asks for it gets these markers. Stands below `@pytest.fixture`."""
    unknown = set(names) - set(MARKERS)
    if unknown:
        raise ValueError(f"unknown markers: {', '.join(sorted(unknown))}")

    def mark(function: Function) -> Function:
        function.needs = names
        return function

    return mark


def needs_of(item: pytest.Item) -> set[str]:
    """Return the names of the markers of a test, those of its fixtures, and what they imply."""
    names = {marker.name for marker in item.iter_markers()} & set(MARKERS)
    fixtures = getattr(item, "_fixtureinfo", None)
    for definitions in fixtures.name2fixturedefs.values() if fixtures else ():
        for definition in definitions:
            names.update(getattr(definition.func, "needs", ()))
    for name in list(names):
        names.update(IMPLIED.get(name, ()))
    return names
