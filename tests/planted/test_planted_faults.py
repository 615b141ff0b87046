"""Each planted fault is found by the test that its row names: a suite that was cut finds what it found before."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("fpga", "lightning", "ocs_drivers", "sim", "testbed")
LEAST, LEAST_IN_A_ROOM = 60, 4
SURVIVAL = ("testbed/operate/engine/", "testbed/leases/", "testbed/storage/", "testbed/database_file.py")
LEAST_OF_SURVIVAL = 40

NOT_BY_A_TEST = re.compile(
    r"(\w+\.)*(ImportError|ModuleNotFoundError|SyntaxError|IndentationError|NameError)\b|Failed: Timeout"
)
"""What anything notices, or nothing: a row that ends so is not a fault of logic that this test found."""

minutes_long = [pytest.mark.long, pytest.mark.process, pytest.mark.timeout(600)]


def is_there(test: str) -> bool:
    """Return True if the file of a test defines it, in the class that is named, if any."""
    file, *classes, name = test.partition("[")[0].split("::")
    wanted = [*(f"class {each}\\b" for each in classes), f"def {name}\\("]
    text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else ""
    return all(re.search(f"^ *{each}", text, re.MULTILINE) for each in wanted)


def dotted(test: str) -> str:
    """Return a test's id as reports write it: `tests/a/test_b.py::test_c` is `tests.a.test_b.test_c`."""
    return test.replace(".py::", ".").replace("::", ".").replace("/", ".")


def of_test(test: str, cases) -> list[str]:
    """Those cases that are this test, with the parameters that it names, or whatever parameters."""
    return [case for case in cases if dotted(test) in {case, case.partition("[")[0]}]


# ------------------------------------------------------------------------------------- rows, at once


def test_what_a_row_replaces_stands_once_in_its_file(faults):
    counts = {
        fault.name: (ROOT / fault.file).read_text(encoding="utf-8").count(fault.before)
        for fault in faults
        if (ROOT / fault.file).exists()
    }
    assert {fault.name: counts.get(fault.name) for fault in faults} == dict.fromkeys(
        (fault.name for fault in faults), 1
    )


def test_a_row_changes_something(faults):
    assert [fault.name for fault in faults if fault.before == fault.after] == []


@pytest.mark.process
def test_a_row_uses_names_that_exist(faults, tmp_path):
    """A row that a rename left behind raises NameError, which any test finds."""
    for number, fault in enumerate(faults):
        if fault.file.endswith(".py") and (ROOT / fault.file).exists():
            text = (ROOT / fault.file).read_text(encoding="utf-8").replace(fault.before, fault.after)
            (tmp_path / f"{number}.py").write_text(f"# {fault.name}\n{text}", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--no-cache",
        "--select",
        "F821,E9",
        tmp_path,
    ]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_every_named_test_is_there(faults):
    assert [fault.found_by for fault in faults if not is_there(fault.found_by)] == []


def test_no_two_rows_are_about_the_same(faults):
    assert len({(fault.file, fault.before) for fault in faults}) == len(faults)
    assert len({fault.name for fault in faults}) == len(faults)


def test_there_are_enough_rows_in_every_room(faults):
    rooms = Counter(fault.room for fault in faults)
    assert len(faults) >= LEAST
    assert min(rooms.values()) >= LEAST_IN_A_ROOM


def test_there_are_enough_rows_where_operations_survive(faults):
    assert sum(fault.file.startswith(SURVIVAL) for fault in faults) >= LEAST_OF_SURVIVAL


# ------------------------------------------------------------------------------------ faults, planted


class TestPlanted:
    pytestmark = minutes_long

    def test_processes_import_the_copy(self, copy, tmp_path):
        """Also one that another one starts, elsewhere."""
        outer, inner = tmp_path / "outer.py", tmp_path / "inner.py"
        inner.write_text(
            f"import json; print(json.dumps([__import__(name).__file__ for name in {PACKAGES}]))"
        )
        outer.write_text(f"import subprocess, sys; subprocess.run([sys.executable, {str(inner)!r}], cwd='/')")
        found = json.loads(copy.run([sys.executable, str(outer)]))
        assert found == [str(copy.tree / name / "__init__.py") for name in PACKAGES]

    def test_every_named_test_passes_without_faults(self, copy, room, faults):
        tests = sorted({fault.found_by for fault in faults if fault.room == room})
        alone = any(fault.alone for fault in faults if fault.room == room)
        verdict = copy.test(tests, alone=alone)
        assert verdict.failed == {}, verdict.output
        ran = verdict.passed | verdict.skipped
        assert [test for test in tests if not of_test(test, ran)] == [], verdict.output

    def test_the_named_test_finds_the_fault(self, copy, fault):
        with copy.with_fault(fault):
            verdict = copy.test([fault.found_by], "-x", alone=fault.alone)
        if of_test(fault.found_by, verdict.skipped) and not verdict.passed | verdict.failed.keys():
            pytest.skip(f"this machine cannot run {fault.found_by}")
        found = of_test(fault.found_by, verdict.failed)
        assert found, verdict.output
        message = verdict.failed[found[0]]
        assert not NOT_BY_A_TEST.match(message), message
