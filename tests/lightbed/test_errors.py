"""Errors are tables of one shape: a class is a row, and the tree that opens a module shows all rows."""

import importlib
import re

import pytest

from lightbed.errors import LightbedError

MODULES = (
    "lightning.errors",
    "ocs_drivers.errors",
    "testbed.errors",
    "testbed.operation_errors",
    "testbed.service_errors",
)
ROW = re.compile(r"^(?P<bars>[ │]*)[├└]── (?P<name>\w+)(?P<rest>.*)$", re.MULTILINE)


def classes_of(module):
    found = vars(importlib.import_module(module)).values()
    return [each for each in found if isinstance(each, type) and issubclass(each, LightbedError)]


def rows_of(module):
    """Return the rows of a tree: the name, that of the row above it, and who must act where the row says so."""
    text = importlib.import_module(module).__doc__
    above = [re.search(r"^ *(\w+)[^\n]*\n *[├]", text, re.MULTILINE)[1]]
    margin = min(len(row["bars"]) for row in ROW.finditer(text))
    for row in ROW.finditer(text):
        depth = (len(row["bars"]) - margin) // 4
        who = re.search(r"\((user|device|conflict|unknown|ourselves)\)", row["rest"])
        del above[depth + 1 :]
        yield row["name"], above[depth], who[1] if who else None
        above.append(row["name"])


@pytest.mark.parametrize("module", MODULES)
def test_a_tree_has_every_class_of_its_module_at_its_place(module):
    rows = {name: (base, who) for name, base, who in rows_of(module)}
    _root, *classes = [each for each in classes_of(module) if each.__module__ == module]
    assert len(classes) >= 8
    bases = {
        each: next(base for base in each.__bases__ if issubclass(base, LightbedError)) for each in classes
    }
    who = {each.__name__: each.who for each in classes}
    shown = {name: row for name, row in rows.items() if name in who}
    assert {each.__name__: base.__name__ for each, base in bases.items()} == {
        name: base for name, (base, _) in shown.items()
    }
    assert [name for name, (_, says) in shown.items() if says not in {None, who[name]}] == []


def test_a_class_takes_what_its_header_says_and_the_rest_of_its_base():
    class Base(LightbedError, code="base", who="device"):
        pass

    class Row(Base, code="base.row"):
        pass

    class Same(Base, ValueError):
        pass

    assert (Row.code, Row.who) == ("base.row", "device")
    assert (Same.code, Same.who) == ("base", "device")
