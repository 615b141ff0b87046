"""Our package and a fake PyTorch Lightning in one environment, in every order of installation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lightning
from lightning import name_conflict

PACKAGE = Path(lightning.__file__).parent
THEIR_INIT = "from lightning.fabric import Fabric\n"


def install_ours(site):
    """Write files over what is there, as a wheel does."""
    shutil.copytree(
        PACKAGE, site / "lightning", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )


def install_theirs(site, *, record=True):
    """Write files as `pip install lightning` does."""
    package = site / "lightning"
    for part in ("fabric", "pytorch"):
        (package / part).mkdir(parents=True, exist_ok=True)
        (package / part / "__init__.py").write_text("class Fabric: ...\n")
    (package / "__about__.py").write_text("")
    (package / "__version__.py").write_text("")
    (package / "__init__.py").write_text(THEIR_INIT)
    if record:
        info = site / "lightning-2.5.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: lightning\nVersion: 2.5.1\n")


def run_import(*sites, what="import lightning"):
    """Run a new Python with these folders before all others."""
    first = [str(each) for each in sites]
    code = f"import sys; sys.path[:0] = {first}; {what}; print(lightning.__file__)"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=sites[0],
        env=environment,
        check=False,
    )


def assert_refused(done):
    assert done.returncode == 1, done.stdout
    reported = done.stderr.strip().splitlines()[-1]
    assert reported.startswith("ImportError: another package named lightning (PyTorch Lightning)")
    assert "pip uninstall -y lightning" in reported


@pytest.mark.process
def test_alone_ours_is_imported(tmp_path):
    install_ours(tmp_path)
    done = run_import(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "lightning" / "__init__.py")


@pytest.mark.process
@pytest.mark.parametrize("record", [True, False])
def test_ours_installed_last_refuses(tmp_path, record):
    install_theirs(tmp_path, record=record)
    install_ours(tmp_path)
    assert_refused(run_import(tmp_path))


@pytest.mark.process
@pytest.mark.parametrize(
    "what", ["import lightning.cli", "from lightning.kit.control import LightningControl"]
)
def test_theirs_installed_last_is_refused_by_our_modules(tmp_path, what):
    install_ours(tmp_path)
    install_theirs(tmp_path)
    assert (tmp_path / "lightning" / "__init__.py").read_text() == THEIR_INIT
    assert_refused(run_import(tmp_path, what=what))


@pytest.mark.process
def test_ours_refuses_beside_theirs_in_another_folder(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    install_ours(ours)
    install_theirs(theirs)
    assert_refused(run_import(ours, theirs))


@pytest.mark.process
def test_after_the_hint_ours_is_run_import(tmp_path):
    install_ours(tmp_path)
    install_theirs(tmp_path)
    shutil.rmtree(tmp_path / "lightning")
    shutil.rmtree(tmp_path / "lightning-2.5.1.dist-info")
    install_ours(tmp_path)
    assert run_import(tmp_path).returncode == 0


def test_folders_that_their_caches_left_behind_are_no_conflict(tmp_path):
    install_ours(tmp_path)
    (tmp_path / "lightning" / "pytorch" / "__pycache__").mkdir(parents=True)
    assert name_conflict.find_foreign_package([str(tmp_path)]) == ""


def test_libraries_of_similar_names_are_no_conflict(tmp_path):
    for name in ("lightning_utilities", "lightning_fabric", "lightning_utilities-0.14.dist-info"):
        (tmp_path / name).mkdir()
    (tmp_path / "lightning").mkdir()
    assert name_conflict.find_foreign_package([str(tmp_path), str(tmp_path / "none"), ""]) == ""


def test_an_unknown_package_of_that_name_is_foreign(tmp_path):
    (tmp_path / "lightning").mkdir()
    (tmp_path / "lightning" / "__init__.py").write_text("")
    assert "is another package" in name_conflict.find_foreign_package([str(tmp_path)])


@pytest.mark.process
def test_importing_needs_numpy_only(tmp_path):
    install_ours(tmp_path)
    heavy = ["qick", "Pyro4", "numba", "scipy", "matplotlib", "typer", "rich", "pyvisa", "pynq", "sim"]
    done = run_import(tmp_path, what=f"import lightning; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.splitlines()[0] == "[]", done.stderr
