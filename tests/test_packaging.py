"""The wheel holds the five packages with their data and a spare module `lightning`, and nothing else."""

from __future__ import annotations

import configparser
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from wheels import PACKAGES

ROOT = Path(__file__).parent.parent
SPARE = "lightning.py"
"""Takes the place of a lost `lightning/__init__.py`: see docs/decisions/0032."""


def shipped_files() -> set[str]:
    """Return modules and data of the five packages, as the checkout has them."""
    wanted = (".py", ".json", ".typed", ".sv", ".cpp", ".ca", ".lark", ".tcl", ".yaml")
    return {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in wanted or path.name == "py.typed"
    }


@pytest.fixture(scope="module")
def wheel(built_wheel):
    """Yield the wheel, opened."""
    with zipfile.ZipFile(built_wheel) as archive:
        yield archive


def test_the_wheel_holds_the_five_packages_and_no_tests(wheel):
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {*PACKAGES, SPARE}


def test_every_module_and_data_file_is_in_the_wheel(wheel):
    in_wheel = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert in_wheel == shipped_files() | {SPARE}
    assert "sim/lab/wiring.schema.json" in in_wheel
    assert "testbed/lab/examples/testbed12.yaml" in in_wheel
    assert {f"{package}/py.typed" for package in PACKAGES} <= in_wheel


THEIR_FILES = {
    "lightning/__init__.py": "from lightning.fabric import Fabric\n",
    "lightning/__about__.py": "",
    "lightning/py.typed": "",
    "lightning/fabric/__init__.py": "class Fabric: ...\n",
    "lightning/pytorch/__init__.py": "",
    "lightning-2.6.6.dist-info/METADATA": "Metadata-Version: 2.1\nName: lightning\nVersion: 2.6.6\n",
    "lightning-2.6.6.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
"""The files of PyTorch Lightning's wheel that matter here."""
USE = """
import importlib.util, json, pkgutil, sys
import lightning, lightning.kit.profiles
from lightning import LightningConfig, errors
assert importlib.util.find_spec("lightning.kit.control")
names = [module.name for module in pkgutil.iter_modules(lightning.__path__)]
print(json.dumps([lightning.__file__, LightningConfig["dac_0"], "kit" in names]))
"""


@pytest.mark.long
@pytest.mark.parametrize("order", ["ours last", "theirs last"])
def test_ours_is_whole_when_theirs_was_installed_and_is_gone(wheel, tmp_path, order):
    theirs = tmp_path / "lightning-2.6.6-py3-none-any.whl"
    with zipfile.ZipFile(theirs, "w") as archive:
        for name, text in THEIR_FILES.items():
            archive.writestr(name, text)
        record = "lightning-2.6.6.dist-info/RECORD"
        archive.writestr(record, "".join(f"{name},,\n" for name in (*THEIR_FILES, record)))
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    site = next(place.glob("lib/python*/site-packages"))
    (site / "numpy.pth").write_text(str(Path(importlib.util.find_spec("numpy").origin).parents[1]) + "\n")

    def pip(*words):
        command = [sys.executable, "-m", "pip", "--python", python, *words]
        subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)

    def use():
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [python, "-c", USE]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )

    wheels = [wheel.filename, theirs]
    for each in wheels if order == "theirs last" else wheels[::-1]:
        pip("install", "--no-deps", "--no-index", each)
    assert use().returncode == 1
    pip("uninstall", "--yes", "lightning")
    done = use()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [str(site / SPARE), 0, True]


def dist_info(wheel, name: str) -> str:
    path = next(path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_numpy_is_the_only_core_dependency(wheel):
    metadata = Parser().parsestr(dist_info(wheel, "METADATA"))
    core = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert [line.partition(">")[0] for line in core] == ["numpy"]


def test_every_extra_of_the_table_exists(wheel):
    metadata = Parser().parsestr(dist_info(wheel, "METADATA"))
    rows = [
        line for line in (ROOT / "docs/how-to/install.md").read_text().splitlines() if line.startswith("| `[")
    ]
    named = {row.split("`")[1].strip("[]") for row in rows}
    assert named == set(metadata.get_all("Provides-Extra"))


def test_the_licence_is_in_the_wheel(wheel):
    assert dist_info(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()


def test_every_entry_point_leads_somewhere(wheel):
    """The module exists in the wheel and assigns, defines or imports the name."""
    entry_points = configparser.ConfigParser(delimiters=("=",))
    entry_points.optionxform = str
    entry_points.read_string(dist_info(wheel, "entry_points.txt"))
    targets = [target for section in entry_points.sections() for target in entry_points[section].values()]
    assert targets
    for target in targets:
        module, _, name = target.partition(":")
        path = module.replace(".", "/")
        found = [path for path in (f"{path}.py", f"{path}/__init__.py") if path in wheel.namelist()]
        assert len(found) == 1, target
        assert name in wheel.read(found[0]).decode(), target


def test_tests_run_on_what_was_installed():
    """In `.venv` the checkout itself, in `.venv-board` the wheel and not the checkout beside it."""
    import ocs_drivers

    # A build leaves metadata without an origin in the checkout: look at all there is.
    found = importlib.metadata.distributions(name="lightbed")
    origins = [json.loads(entry.read_text("direct_url.json") or "{}") for entry in found]
    is_editable = any(origin.get("dir_info", {}).get("editable", False) for origin in origins)
    assert Path(ocs_drivers.__file__).is_relative_to(ROOT / "ocs_drivers") == is_editable
