"""A Python 2.7 and the clients that run on it: drivers of optical switches that were written before 2020 still do.

Nothing else of ours needs one, so its absence is no error, and the step is left out.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.installation.processes import run

_PRINT_IT = "import sys; assert sys.version_info[:2] == (2, 7); sys.stdout.write(sys.executable)"


def find_python2(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return a Python 2.7 of the `PATH`, or else of pyenv."""
    for candidate in _candidates(environ):
        done = run([candidate, "-c", _PRINT_IT])  # pyenv's shim is there also where its Python is not chosen
        if done.status == 0:
            return Path(done.output)
    return None


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    on_path = shutil.which("python2.7", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)
    pyenv = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "/"), ".pyenv"))
    yield from sorted(pyenv.glob("versions/2.7*/bin/python2.7"), reverse=True)


def pip_command(python: Path, lock: Path, packages: Path) -> list[str | Path]:
    """Return the command that installs a lock into a folder.

    pip 19 comes with Python 2.7.18, and virtualenv does not. Nothing is compiled: without a wheel it fails at once.
    """
    compiled = "bcrypt,cffi,cryptography,pynacl"
    return [
        *(python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"),
        *("--only-binary", compiled, "--target", packages, "--requirement", lock),
    ]


def write_launcher(launcher: Path, python: Path, packages: Path) -> None:
    """Write a program that runs Python 2.7 with the packages."""
    words = f"PYTHONPATH={shlex.quote(str(packages))} exec {shlex.quote(str(python))}"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(f'#!/bin/sh\n{words} "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
