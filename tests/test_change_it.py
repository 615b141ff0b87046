"""The pages that say where to change what name files, identifiers and tests that exist; the index reaches them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "how-to" / "change"
INDEX = FOLDER / "README.md"
PAGES = sorted(set(FOLDER.glob("*.md")) - {INDEX})
PATH = re.compile(r"`((?:[\w-]+/)+[\w.-]*|pyproject\.toml)`")
NAME = re.compile(r"`((?:_?[A-Z]\w+|_?[a-z]+(?:_[a-z]+)+))(?:\.\w+)?`")
PLACED = re.compile(NAME.pattern + r"(?: (?:and|or) " + NAME.pattern + r")? in " + PATH.pattern)
PLACEHOLDERS = {"NEW"}

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def prose_of(page: Path) -> str:
    """Return the text as one line, without the blocks of code."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return " ".join(
        line.strip() for line in lines if not re.match(r" {4,}", line) or line.strip().startswith("|")
    )


def source_of(path: str) -> str:
    """Return a file, or all sources of a folder."""
    found = ROOT / path
    files = sorted(found.rglob("*.py")) if found.is_dir() else [found]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def has_name(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def test_the_index_links_to_every_page_and_to_no_other():
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", INDEX.read_text(encoding="utf-8")))
    assert linked == {page.name for page in PAGES}
    assert len(linked) >= 15


@by_page
def test_files_exist_except_those_to_be_written(page):
    named = set(PATH.findall(page.read_text(encoding="utf-8")))
    assert len(named) >= 2
    assert {path for path in named if "NEW" not in path and not (ROOT / path).exists()} == set()
    parents = {path.partition("NEW")[0].rpartition("/")[0] for path in named if "NEW" in path}
    assert {parent for parent in parents if not (ROOT / parent).is_dir()} == set()


@by_page
def test_a_name_is_in_the_file_that_the_page_gives_for_it(page):
    missing = [
        f"{name}: {path}"
        for first, second, path in PLACED.findall(prose_of(page))
        for name in filter(None, (first, second))
        if "NEW" not in path and not has_name(source_of(path), name)
    ]
    assert missing == []


@by_page
def test_every_name_is_in_a_file_of_the_page(page):
    prose = prose_of(page)
    text = "\n".join(source_of(path) for path in PATH.findall(prose) if "NEW" not in path)
    names = set(NAME.findall(prose)) - PLACEHOLDERS
    assert {name for name in names if not has_name(text, name)} == set()


def test_most_names_have_a_file():
    placed = [match for page in PAGES for match in PLACED.findall(prose_of(page))]
    assert len(placed) >= 40


@by_page
def test_a_page_ends_with_tests_that_exist(page):
    text = page.read_text(encoding="utf-8")
    checks = re.findall(r"^Check: `pytest ([^`]+)`", text, re.MULTILINE)
    assert checks
    named = {word for check in checks for word in check.split() if word.startswith("tests")}
    assert {path for path in named if not (ROOT / path).exists()} == set()
