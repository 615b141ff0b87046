"""Selection of the test files that a change may break: `python -m tools.test_changed [BASE]` prints them, one per line.

The change is the difference from the commit BASE (default: HEAD), including untracked files. A test file is selected if
it, or a `conftest.py` above it, has changed or imports a changed module, directly or through other modules. A module
name in a string counts as an import, because tables and entry points refer to modules in this way. The tests directly
in `tests/`, which read files of all packages, are selected by any change.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed", "tools")
EVERYTHING = ("pyproject.toml", "tests/conftest.py", "tests/plugins/", "requirements/")
"""Paths whose change may break any test."""

_IMPORTS = ROOT / "build" / "imports.json"


def find_changed_files(base: str) -> set[str]:
    """Return the paths, relative to the checkout, of files that differ from a commit, and of untracked files."""
    paths: set[str] = set()
    for command in (["diff", "--name-only", base], ["ls-files", "--others", "--exclude-standard"]):
        listed = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
        paths.update(listed.stdout.split())
    return paths


def get_module_name(path: Path) -> str:
    """Return the dotted name of a module from its path in the checkout."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_names(path: Path, module: str) -> list[str]:
    """Return the dotted names in a file's imports and strings, each with its parent packages; sorted."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            levels = package.split(".")
            parents = levels[: len(levels) - node.level + 1] if node.level else []
            source = ".".join([*parents, *([node.module] if node.module else [])])
            names.update((source, *(f"{source}.{alias.name}" for alias in node.names)))
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(PACKAGES)
        ):
            names.add(node.value.partition(":")[0])
    parents_too = ((name.rsplit(".", depth)[0] for depth in range(name.count(".") + 1)) for name in names)
    return sorted({name for chain in parents_too for name in chain if name.startswith(PACKAGES)})


class Imports:
    """The names that files import, cached in build/imports.json by the modification time and size of each file."""

    def __init__(self) -> None:
        self._cache: dict[str, Any] = json.loads(_IMPORTS.read_text()) if _IMPORTS.is_file() else {}

    def __call__(self, path: Path) -> list[str]:
        """Return the names that a file imports; `path` is relative to the checkout."""
        state = (ROOT / path).stat()
        stamp = [state.st_mtime_ns, state.st_size]
        entry = self._cache.get(str(path))
        if entry is None or entry[0] != stamp:
            entry = self._cache[str(path)] = [stamp, find_names(ROOT / path, get_module_name(path))]
        return list(entry[1])

    def save(self) -> None:
        """Write the cache for the next run."""
        _IMPORTS.parent.mkdir(exist_ok=True)
        _IMPORTS.write_text(json.dumps(self._cache))


def find_affected(changed: set[str], importers: dict[str, set[str]]) -> set[str]:
    """Return the changed modules and all modules that import them, directly or indirectly."""
    affected, pending = set(changed), list(changed)
    while pending:
        for importer in importers[pending.pop()] - affected:
            affected.add(importer)
            pending.append(importer)
    return affected


def find_tests(changed_files: set[str]) -> list[str]:
    """Return the paths of the test files that the change of these files may break."""
    if not changed_files:
        return []
    tests = sorted(path.relative_to(ROOT) for path in ROOT.glob("tests/**/test_*.py"))
    if any(file.startswith(EVERYTHING) for file in changed_files):
        return [str(path) for path in tests]
    imports = Imports()
    sources = {
        get_module_name(path.relative_to(ROOT)): path.relative_to(ROOT)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module, path in sources.items():
        for name in imports(path):
            importers[name].add(module)
    changed = set()
    for file in map(Path, changed_files):
        module = get_module_name(file) if file.suffix == ".py" else ""
        changed.add(module)
        if not importers[module]:
            # Nothing imports it: it is loaded by name at run time, or is a data file. Its packages count as changed.
            packages = file.parent.parts
            changed.update(
                ".".join(packages[:depth]) for depth in range(min(2, len(packages)), len(packages) + 1)
            )
    affected = find_affected(changed & set(sources), importers)

    def is_touched(path: Path) -> bool:
        return str(path) in changed_files or not affected.isdisjoint(imports(path))

    conftests = (path.relative_to(ROOT) for path in ROOT.glob("tests/*/**/conftest.py"))
    folders = {path.parent for path in conftests if is_touched(path)}
    top = Path("tests")  # the tests directly in it read files of all packages, and the documentation
    files = [
        str(path)
        for path in tests
        if path.parent == top or not folders.isdisjoint(path.parents) or is_touched(path)
    ]
    imports.save()
    return files


def main(arguments: list[str]) -> int:
    """Print the test files, and their number on standard error."""
    files = find_tests(find_changed_files(arguments[0] if arguments else "HEAD"))
    print(*files, sep="\n")
    print(f"{len(files)} test files may be broken by the change", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
