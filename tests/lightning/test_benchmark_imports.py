"""Imports of benchmarks are there: these run outside the suite, and a name that has moved would stop them."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from lightning.errors import MissingLibrary

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OF_LIGHT = ("photonic_*.py", "serving_*.py", "noise_aware.py", "convolution.py", "anomaly.py")


def imported(path):
    """Yield (module, name or "") of everything of this repository that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, each.name) for each in node.names)
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)


def files():
    return sorted({path for pattern in OF_LIGHT for path in BENCHMARKS.glob(pattern)})


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_is_there(path):
    ours = [each for each in imported(path) if each[0].partition(".")[0] in {"lightning", "fpga", "sim"}]
    assert ours
    for module, name in ours:
        try:
            found = import_module(module)
            there = not name or hasattr(found, name) or bool(import_module(f"{module}.{name}"))
        except MissingLibrary as error:
            pytest.skip(f"{error.problem}: {error.hint}")
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] not in {"lightning", "fpga", "sim"}:
                pytest.skip(f"{error.name} is not installed: pip install 'lightbed[serve,torch]'")
            raise
        assert there, f"{module} has no {name}"


def test_all_of_them_are_looked_at():
    assert len(files()) >= 7
