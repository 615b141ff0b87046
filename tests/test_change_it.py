"""The page that says where to change what names files and names that are there, and few of them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "how-to" / "change-it.md"
PATH = re.compile(r"`((?:[a-z_0-9A-Z]+/)+[a-zA-Z_0-9.]+|pyproject\.toml)`")

ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| task ")
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


def source_files(cells: list[str]) -> list[str]:
    return PATH.findall(cells[0])


def test_the_ten_tasks_and_others_are_there():
    assert len(ROWS) >= 10


def test_named_files_exist_but_those_to_be_made():
    named = {path for cells in ROWS.values() for cell in cells for path in PATH.findall(cell)}
    assert len(named) > 20
    assert {path for path in named if "NEW" not in path and not (ROOT / path).exists()} == set()
    parents = {(ROOT / path.partition("NEW")[0].rpartition("/")[0]) for path in named if "NEW" in path}
    assert all(parent.is_dir() for parent in parents)


def test_names_to_begin_at_are_in_the_files_of_the_row():
    missing = []
    for task, cells in ROWS.items():
        paths = [path for cell in cells[:2] for path in PATH.findall(cell) if "NEW" not in path]
        text = "\n".join(
            (ROOT / path).read_text(encoding="utf-8") for path in paths if (ROOT / path).is_file()
        )
        names = re.findall(r"`([A-Z]\w+|[a-z]+_[a-z_]+)`", cells[1])
        missing += [f"{task}: {name}" for name in names if not re.search(rf"\b{name}\b", text)]
    assert missing == []
