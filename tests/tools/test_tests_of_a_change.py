"""`make test-changed` runs the tests of a change, and of all that imports what changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import test_changed as changed

ROOT = Path(__file__).parents[2]


def test_names_are_imports_at_any_place_packages_and_strings(tmp_path):
    source = tmp_path / "room.py"
    source.write_text(
        "from sim.models import clock\nfrom . import near\n\ndef late():\n    import fpga.bus.address\n"
        "TABLE = {'a': 'testbed.cli.demo:run', 'b': 'testbed in words'}\nimport numpy\n"
    )
    names = changed.find_names(source, "testbed.operate.room")
    assert {
        "sim",
        "sim.models",
        "sim.models.clock",
        "testbed.operate.near",
        "fpga.bus",
        "fpga.bus.address",
    } <= set(names)
    assert "testbed.cli.demo" in names
    assert "numpy" not in names


def test_importers_are_followed_to_any_depth_and_through_cycles():
    importers = {"a": {"b"}, "b": {"c", "a"}, "c": set(), "d": set()}
    assert changed.find_affected({"a"}, importers) == {"a", "b", "c"}


@pytest.mark.long
def test_a_change_runs_the_tests_of_its_room_and_of_those_that_import_it():
    tests = changed.find_tests({"fpga/bus/address.py"})
    assert "tests/fpga/bus/test_address.py" in tests
    assert not [
        test for test in tests if test.startswith(("tests/ocs_drivers", "tests/leases", "tests/storage"))
    ]


@pytest.mark.long
def test_a_command_that_is_found_by_its_name_counts_as_its_package():
    assert "tests/cli/test_demo.py" in changed.find_tests({"testbed/commands/measure/demo.py"})


@pytest.mark.long
def test_a_page_breaks_no_code_and_a_plugin_may_break_all():
    pages = changed.find_tests({"docs/how-to/nothing.md"})
    assert "tests/test_docs.py" in pages
    assert {Path(test).parent for test in pages} == {Path("tests")}
    assert changed.find_tests(set()) == []
    assert len(changed.find_tests({"tests/plugins/lanes.py"})) == len(list(ROOT.glob("tests/**/test_*.py")))
