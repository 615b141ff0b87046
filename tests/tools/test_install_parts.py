"""The parts of the installer that decide: packages that lack, where the cache lies, what is made again."""

from __future__ import annotations

import io
import itertools
import os
import sys
from pathlib import Path

import pytest

from tools.installation import environments, system, translations
from tools.installation.environments import Environment, Installer, compute_digest, find_locked_version
from tools.installation.processes import InstallError
from tools.installation.progress import Line
from tools.installation.python2 import find_python2
from tools.installation.uv import Uv, can_link, find_cache_home

ROOT = Path(__file__).parents[2]


def programs(folder, *names):
    for name in names:
        (folder / name).touch(0o755)
    return str(folder)


def test_a_package_is_missing_once_however_many_programs_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(system, "_PATH", str(tmp_path / "none"))
    needs = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}
    path = programs(tmp_path, "ip")
    assert system.find_missing_packages(needs, path) == ["iproute2", "nftables"]
    programs(tmp_path, "tc", "nft")
    assert system.find_missing_packages(needs, path) == []


def test_a_program_may_have_to_be_in_a_folder_of_its_own(tmp_path):
    path = programs(tmp_path, "python3")
    assert system.find_missing_packages({f"{tmp_path}/none/python3": "python3"}, path) == ["python3"]
    assert system.find_missing_packages({f"{tmp_path}/none:{tmp_path}/python3": "python3"}, "") == []


def test_caches_lie_in_the_users_folder_or_in_the_checkout(tmp_path, monkeypatch):
    checkout, home = tmp_path / "checkout", tmp_path / "home"
    home.mkdir()
    in_checkout = checkout / ".tools" / "cache"
    assert find_cache_home(checkout, {"HOME": str(home)}) == home / ".cache"
    assert find_cache_home(checkout, {"HOME": str(home), "XDG_CACHE_HOME": f"{home}/x"}) == home / "x"
    assert find_cache_home(checkout, {}) == in_checkout
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)  # as with sudo
    assert find_cache_home(checkout, {"HOME": str(home)}) == in_checkout


def test_a_place_without_links_is_told(tmp_path, monkeypatch):
    assert can_link(tmp_path / "cache", tmp_path / "checkout")
    (tmp_path / "file").touch()
    assert not can_link(tmp_path / "file" / "cache", tmp_path / "checkout")

    def refused(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused)
    assert not can_link(tmp_path / "cache", tmp_path / "checkout")
    assert list((tmp_path / "checkout").iterdir()) == list((tmp_path / "cache").iterdir()) == []


def test_a_digest_tells_parts_apart():
    assert compute_digest(("ab", "c")) != compute_digest(("a", "bc"))
    assert compute_digest(("ab", b"c")) == compute_digest((b"ab", "c"))


def test_versions_are_those_of_the_lock():
    lock = "numpydoc==1.9 \\\nnumpy==2.4.6 \\\n    --hash=sha256:0"
    assert find_locked_version(lock, "numpy") == "2.4.6"
    with pytest.raises(InstallError, match="make lock"):
        find_locked_version(lock, "nump")


def test_uv_is_the_locked_one_or_the_one_that_is_named(tmp_path):
    locked = Uv(ROOT, Path(sys.executable), {})
    assert locked.path == ROOT / ".tools" / f"uv-{locked.version}"
    assert "--hash=sha256:" in locked.lock.read_text()
    named = tmp_path / "uv"
    with pytest.raises(InstallError, match="which is not a program"):
        Uv(ROOT, Path(sys.executable), {"UV": str(named)}).is_installed()
    named.touch(0o755)
    assert Uv(ROOT, Path(sys.executable), {"UV": str(named)}).is_installed()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return a checkout with nothing but what stamps are made of, where Python writes no bytecode."""
    monkeypatch.setattr(environments, "is_written_by_python", lambda: False)
    for name in ("compile_packages", "compile_folders"):
        monkeypatch.setattr(environments, name, lambda *_: None)
    for name in ("requirements/ci.lock", "requirements/board.lock", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("numpy==2.4.6\n")
    monkeypatch.setattr(environments, "translate", lambda *_: "")
    for name in ("README.md", "LICENSE", "tools/wheel.py", "sim/a.py", "sim/models/contention/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x\n")
    return tmp_path


def steps_left(root):
    """Return the keys of what is to be done."""
    installer = Installer(root, Path("/usr/bin/python3"), Uv(root, Path("/usr/bin/python3"), {}))
    steps = [*installer.list_steps(), *installer.list_host_steps(), *installer.list_board_steps()]
    return [step.key for step in steps if not step.is_done()]


def stamp_all(root, monkeypatch):
    """Go through all steps as if each did its work."""
    for name in dir(Installer):
        if name.startswith("_install"):
            monkeypatch.setattr(Installer, name, lambda *_: None)
    for name in (".venv", ".venv-host", ".venv-board"):
        (root / name).mkdir()
    installer = Installer(root, Path("/usr/bin/python3"), Uv(root, Path("/usr/bin/python3"), {}))
    line = Line("", io.StringIO(), lambda: 0.0, lambda _: None)
    for step in (*installer.list_steps(), *installer.list_host_steps(), *installer.list_board_steps()):
        step.act(line)


ALL = [
    *(".venv/.locked", ".venv/.torch", ".venv/.compiled", ".venv/.project", ".venv/.checkout-compiled"),
    ".venv/.translated",
    *(".venv-host/.made", ".venv-board/.locked", ".venv-board/.wheel", ".venv-board/.compiled"),
]
CHANGES = {
    "requirements/ci.lock": ALL[:6],
    "requirements/board.lock": [".venv-board/.locked", ".venv-board/.wheel", ".venv-board/.compiled"],
    "pyproject.toml": [
        ".venv/.project",
        ".venv/.checkout-compiled",
        ".venv-board/.wheel",
        ".venv-board/.compiled",
    ],
    "sim/a.py": [".venv/.checkout-compiled", ".venv-board/.wheel", ".venv-board/.compiled"],
    "sim/models/contention/a.py": [
        ".venv/.checkout-compiled",
        ".venv/.translated",
        ".venv-board/.wheel",
        ".venv-board/.compiled",
    ],
    "tools/wheel.py": [".venv-board/.wheel", ".venv-board/.compiled"],
    "sim/a.pyc": [],
}


@pytest.mark.parametrize("changed", CHANGES)
def test_what_is_made_is_made_again_only_when_something_changed(checkout, monkeypatch, changed):
    assert steps_left(checkout) == ALL
    stamp_all(checkout, monkeypatch)
    assert steps_left(checkout) == []
    (checkout / changed).write_text("numpy==2.4.6\nscipy==1\n")
    assert steps_left(checkout) == CHANGES[changed]


def test_another_version_of_numpy_remakes_the_hosts_environment(checkout, monkeypatch):
    stamp_all(checkout, monkeypatch)
    (checkout / "requirements/ci.lock").write_text("numpy==2.4.7\n")
    assert ".venv-host/.made" in steps_left(checkout)


@pytest.mark.parametrize("name", ["clients", "docs"])
def test_an_environment_of_one_lock_is_made_again_with_another_lock(tmp_path, monkeypatch, name):
    monkeypatch.setattr(Installer, "_install_lock", lambda *_: None)
    monkeypatch.setattr(environments, "find_python2", lambda _: None)
    lock = tmp_path / "requirements" / f"{name}.lock"
    lock.parent.mkdir()
    (tmp_path / f".venv-{name}").mkdir()
    installer = Installer(tmp_path, Path("/usr/bin/python3"), Uv(ROOT, Path("/usr/bin/python3"), {}))
    steps = {"clients": installer.list_clients_steps, "docs": installer.list_docs_steps}[name]
    for version in ("1", "2"):
        lock.write_text(f"a=={version}\n")
        (step,) = steps()
        assert (step.key, step.is_done()) == (f".venv-{name}/.locked", False)
        step.act(Line("", io.StringIO(), lambda: 0.0, lambda _: None))
        assert steps()[0].is_done()


def python2_of(folder, pip_status=0):
    """Write a program that says it is a Python 2.7, and whose pip installs or fails."""
    python = folder / "python2.7"
    folder.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\nif [ "$1" = -c ]; then printf %s {python}; else echo no wheel; exit {pip_status}; fi\n'
    )
    python.chmod(0o755)
    return python


@pytest.mark.process
def test_python_2_is_found_on_the_path_and_behind_a_shim_of_pyenv(tmp_path):
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "python2.7").write_text("#!/bin/sh\nexit 127\n")  # as pyenv's, where another Python is chosen
    (shims / "python2.7").chmod(0o755)
    environ = {"PATH": str(shims), "HOME": str(tmp_path)}
    assert find_python2(environ) is None
    of_pyenv = python2_of(tmp_path / ".pyenv" / "versions" / "2.7.18" / "bin")
    assert find_python2(environ) == of_pyenv
    on_path = python2_of(tmp_path / "bin")
    assert find_python2({**environ, "PATH": str(tmp_path / "bin")}) == on_path


@pytest.mark.process
@pytest.mark.parametrize("pip_status", [0, 1])
def test_clients_of_python_2_are_made_or_the_line_says_why_not(tmp_path, monkeypatch, pip_status):
    python = python2_of(tmp_path / "bin", pip_status)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "clients-python2.lock").write_text("a==1\n")
    uv = Uv(ROOT, Path("/usr/bin/python3"), {"PATH": str(python.parent)})
    (step,) = Installer(tmp_path, Path("/usr/bin/python3"), uv).list_python2_steps()
    line = Line("", io.StringIO(), lambda: 0.0, lambda _: None)
    step.act(line)
    launcher = tmp_path / ".venv-clients-python2" / "bin" / "python"
    assert (step.is_done(), launcher.exists()) == (pip_status == 0, pip_status == 0)
    assert ("no wheel" in line.detail) == (pip_status == 1)


def test_bytecode_is_left_to_python_where_python_writes_it(checkout, monkeypatch):
    monkeypatch.setattr(environments, "is_written_by_python", lambda: True)
    assert steps_left(checkout) == [key for key in ALL if not key.endswith("compiled")]


def test_an_environment_that_is_gone_holds_nothing(tmp_path):
    assert not Environment(tmp_path / "gone").has_stamp(".locked", "")


@pytest.mark.parametrize("folder", translations.FOLDERS)
def test_a_folder_whose_change_is_translated_again_holds_machine_code(folder):
    sources = [path.read_text() for path in (ROOT / folder).glob("*.py")]
    assert any("compiled import" in text or "def compile_function(" in text for text in sources)


@pytest.mark.slow
def test_programs_that_are_translated_at_installation_run():
    pytest.importorskip("numba", reason="nothing is translated without numba: pip install 'lightbed[sim]'")
    commands = itertools.chain.from_iterable(translations.CHAINS)
    programs = [words[-1] for words in commands if words[0] == "bin/python"]
    assert programs
    for program in programs:
        exec(program, {})
