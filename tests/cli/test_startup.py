"""Imports that a command may make until it has answered: anything else must be asked for where it is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
OURS = {"fpga", "lightbed", "lightning", "ocs_drivers", "testbed"}
TYPER = {"typer", "click", "annotated_doc", "colorama", "shellingham", "typing_extensions"}
RICH = {"rich", "markdown_it", "mdurl", "pygments", "attr", "attrs"}
PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_inspection", "typing_extensions"}
VISA = {"pyvisa", "pyvisa_py", "numpy", "psutil", "serial", "typing_extensions", "usb", "gpib_ctypes", "gpib"}
ON_DEMAND = {"numpy", "psutil"}
"""Libraries that PyVISA imports, and that no read of a switch uses."""
SSH = {"asyncssh", "cryptography", "nacl", "bcrypt", "fido2", "OpenSSL"}

DEAR = {
    "asyncio": 40,
    "concurrent.futures": 10,
    "email": 15,
    "http.client": 15,
    "importlib.metadata": 20,
    "multiprocessing": 15,
    "sqlite3": 10,
    "ssl": 15,
    "unittest": 20,
    "urllib.request": 20,
    "xml": 10,
}
"""Modules of the standard library that are watched, with the milliseconds of processor time that they take."""

METADATA = {"email", "importlib.metadata"}
"""Imported by pydantic, which looks for plug-ins."""


def imported_by(*words: object, codes: tuple[int, ...] = (0,)) -> dict[str, list[str]]:
    """Return the imports of a command: a module's name with the chain of modules by which it came."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("imports_of.py")), *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["codes"]) <= set(codes), done.stdout + done.stderr
    return found["imported"]


def too_much(imported: dict[str, list[str]], allowed: set[str]) -> dict[str, str]:
    """Return libraries, and watched modules of the standard library, that are not allowed; with how they came."""
    tops: dict[str, list[str]] = {}
    for name, chain in imported.items():
        tops.setdefault(name.partition(".")[0], chain)
    foreign = {top for top in tops.keys() - sys.stdlib_module_names - OURS if not top.startswith("_")}
    watched = DEAR.keys() & imported.keys()
    return {
        name: " <- ".join(imported.get(name, tops.get(name, [])))
        for name in sorted((foreign | watched) - allowed)
    }


@pytest.mark.long
@pytest.mark.parametrize("package", ["testbed.cli", "lightning.cli", "fpga.cli"])
def test_help_of_every_command_imports_what_formats_it(package):
    imported = imported_by(package, "--every-help")

    assert {"typer", "rich"} <= {name.partition(".")[0] for name in imported}
    assert too_much(imported, TYPER | RICH) == {}


@pytest.mark.long
@pytest.mark.parametrize("package", ["testbed.cli", "lightning.cli", "fpga.cli"])
def test_a_program_lists_its_commands_without_importing_one(package):
    before = {"app", "command_group", "errors", "output"}  # what starts a command and tells its end
    imported = imported_by(package, "--help")

    held = {name.rpartition(".")[2] for name in imported if name.startswith(f"{package}.")}
    assert held <= before


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "front", "libraries"),
    [
        ("polatis", "tl1", set()),
        ("polatis", "scpi", VISA - ON_DEMAND | {"asyncio", "concurrent.futures", "ssl", *METADATA}),
        ("telescent", "cli", SSH | {"asyncio", "concurrent.futures", "ssl", "urllib.request", *METADATA}),
    ],
)
def test_reading_a_switch_imports_its_wire(shared_twin, family, front, libraries):
    address = shared_twin(family).urls[front]

    imported = imported_by("testbed.cli", "switch", address, "read")

    assert "rich.table" in imported
    assert too_much(imported, TYPER | RICH | libraries) == {}


@pytest.mark.usefixtures("up")
def test_the_status_of_labs_imports_nothing_of_labs():
    imported = imported_by("testbed.cli", "sim", "status")

    assert "testbed.lab.simulated.supervisor" in imported
    assert too_much(imported, TYPER | RICH) == {}


@pytest.mark.long
def test_a_plan_imports_no_database_and_no_way_to_hosts(lab_file, tmp_path):
    runs = tmp_path / "runs"

    imported = imported_by("testbed.cli", "plan", lab_file, "--runs-dir", runs, codes=(2,))

    allowed = TYPER | PYDANTIC | VISA | {"yaml", "cython_runtime", "concurrent.futures", *METADATA}
    assert "testbed.operate.plan" in imported
    assert too_much(imported, allowed) == {}
    assert not runs.exists()


def test_an_import_that_is_not_allowed_is_named_with_its_chain():
    imported = imported_by("testbed.cli", "topology", "--nodes", 4, "--degree", 2)

    found = too_much(imported, TYPER | PYDANTIC | METADATA)

    assert set(found) == {"numpy"}
    assert "testbed.design.topology.circulants" in found["numpy"].split(" <- ")
