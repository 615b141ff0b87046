"""Python 2.7 and its clients: drivers of optical switches from before 2020 that still need it.

Nothing else uses Python 2.7. Without it the step is skipped without an error.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.installation.processes import run

_PRINT_PATH = "import sys; assert sys.version_info[:2] == (2, 7); sys.stdout.write(sys.executable)"


def find_python2(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the Python 2.7 on the `PATH`, or else of pyenv, or None."""
    for candidate in _list_candidates(environ):
        result = run(
            [candidate, "-c", _PRINT_PATH]
        )  # a shim of pyenv exists even if its Python is not selected
        if result.status == 0:
            return Path(result.output)
    return None


def _list_candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    on_path = shutil.which("python2.7", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)
    pyenv = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "/"), ".pyenv"))
    yield from sorted(pyenv.glob("versions/2.7*/bin/python2.7"), reverse=True)


def make_pip_command(python: Path, lock: Path, packages: Path) -> list[str | Path]:
    """Return the command that installs the packages of a lock file into a folder.

    Python 2.7.18 includes pip 19, but not virtualenv. Nothing is compiled: without a wheel the command fails at once.
    """
    compiled = "bcrypt,cffi,cryptography,pynacl"
    return [
        *(python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"),
        *("--only-binary", compiled, "--target", packages, "--requirement", lock),
    ]


def write_launcher(launcher: Path, python: Path, packages: Path) -> None:
    """Write a shell script that runs Python 2.7 with the packages."""
    words = f"PYTHONPATH={shlex.quote(str(packages))} exec {shlex.quote(str(python))}"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(f'#!/bin/sh\n{words} "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
