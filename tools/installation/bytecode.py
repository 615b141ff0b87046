"""Bytecode of installed packages.

pip compiles what it installs and uv does not. Where Python writes no bytecode (PYTHONDONTWRITEBYTECODE, an environment
of another user), every process would compile all that it imports: two seconds of processor time for torch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path

from tools.installation.processes import run

_TESTS = r"/tests/"
"""A fifth of all, and hardly ever imported."""


def site_packages(environment: Path) -> Path:
    """Return the folder of an environment's packages."""
    (folder,) = environment.glob("lib/python*/site-packages")
    return folder


def compile_all(environment: Path, tick: Callable[[], None]) -> None:
    """Compile what is not compiled. What cannot be (for another Python) is left to whoever imports it."""
    run([*_compileall(environment), "-x", _TESTS, site_packages(environment)], tick=tick)


def share_bytecode(source: Path, target: Path, tick: Callable[[], None]) -> None:
    """Compile `target`, where a module that is the very file of `source` takes the bytecode from there."""
    left = link_bytecode(site_packages(source), site_packages(target))
    if left:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as files:
            files.write("\n".join(map(str, left)))
            files.flush()
            run([*_compileall(target), "-i", files.name], tick=tick)


def link_bytecode(source: Path, target: Path) -> list[Path]:
    """Link the bytecode of modules in `source` to those in `target` that are the same file; return the others.

    Bytecode is valid for a time and a size of its module, which are those of the file and not of its name.
    """
    left = []
    for module in target.rglob("*.py"):
        if "tests" in module.parts:
            continue
        twin = source / module.relative_to(target)
        compiled, wanted = (Path(cache_from_source(str(path))) for path in (twin, module))
        try:
            if not twin.samefile(module):
                raise FileNotFoundError
            wanted.parent.mkdir(parents=True, exist_ok=True)
            os.link(compiled, wanted)
        except FileExistsError:
            continue
        except OSError:
            left.append(module)
    return left


def _compileall(environment: Path) -> list[str | Path]:
    return [environment / "bin" / "python", "-m", "compileall", "-q", "-j", "0"]
