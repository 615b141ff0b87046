"""The tables by which the programs list their commands, and names that packages import later."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from lightbed.lazy import make_lazy_attributes

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = [
    ".".join(path.parent.relative_to(ROOT).parts)
    for room in ("fpga", "lightning")
    for path in sorted((ROOT / room).rglob("__init__.py"))
    if "= make_lazy_attributes(" in path.read_text(encoding="utf-8")
]


def paragraph(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split("\n\n")[0].split())


@pytest.mark.slow
@pytest.mark.parametrize("module", ["testbed.cli.app", "lightning.cli", "fpga.cli"])
def test_a_line_of_the_table_is_what_the_command_says_of_itself(module):
    room = import_module(module)
    commands = room.build_app().commands

    told = {name: paragraph(command.help or "") for name, command in commands.items()}

    assert told == {name: line for name, (_, line) in room.COMMANDS.items() if " " not in name}
    assert all(command.name == name for name, command in commands.items())


def test_values_are_converted_all_the_same(testbed):
    given = testbed("topology", "--nodes", "12", "--degree", "4", "--demand", "4:4e9", "--json")
    wrong = testbed("topology", "--nodes", "twelve", "--degree", "4")

    assert given.code == 0
    assert given.json["nodes"] == 12
    assert (wrong.code, "twelve" in wrong.err or "nodes" in wrong.err) == (1, True)


def test_packages_with_later_names_were_found():
    assert {"fpga", "lightning", "lightning.compiler"} <= set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_is_there(package):
    module = import_module(package)
    star: dict[str, object] = {}
    exec(f"from {package} import *", star)

    assert set(module.__all__) <= set(dir(module))
    assert set(module.__all__) <= star.keys()
    assert not any(isinstance(star[name], ModuleType) for name in module.__all__ if name != "errors")
    with pytest.raises(AttributeError, match="has no attribute 'nobody'"):
        _ = module.nobody


@pytest.mark.parametrize("package", PACKAGES)
def test_no_later_name_is_that_of_a_module(package):
    folder = ROOT.joinpath(*package.split("."))
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert modules & set(import_module(package).__all__) - {"errors"} == set()


def test_a_later_name_is_imported_once():
    find, names = make_lazy_attributes("fpga", {"beats": "Beats"})

    assert find("Beats") is import_module("fpga.beats").Beats
    assert "Beats" in names()


@pytest.mark.parametrize("demand", ["4:nan", "4:1e400", "4", "four:1e9", ":"])
def test_a_demand_that_is_no_number_is_refused_with_the_form(testbed, demand):
    refused = testbed("topology", "--nodes", "12", "--degree", "4", "--demand", demand)
    assert refused.code == 1
    assert f"--demand '{demand}' is not NODES:BYTES" in refused.err
