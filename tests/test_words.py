"""One word for one thing: the glossary's words, and docstrings in the imperative."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed")
PLACES = (*PACKAGES, "benchmarks", "docs", "examples", "tests", "tools")

PROSE = re.compile(
    r"\b(cures?|cured|anew|h[au]ng(s|ing)?[ -_]up|hung up|farewells?|deeds?|mended)\b", re.IGNORECASE
)
"""Words that nobody needs twice: hint, again, disconnect, logout, write operation, repaired."""

FORMER = re.compile(
    r"""["'`](cure|dark_s|mended|hang_up)["'`]|def (cure|hang_up)\(|\bhang_up(\(\)| is now disconnect\b)"""
    r"""|@cure\.setter|\bcure: str\b|\bor cure\b|\bcure=|\.cure\b"""
)
"""Keys of JSON documents and files, properties and methods that keep their former name for one release, or for good."""

REPLACED = {
    "ocs_drivers": "conversation farewell unasked habits deed",
    "testbed/operate": "hearing strangers mended BroughtUp",
    "testbed/measure": "hearing strangers mended",
    "testbed/design": "tally crew exchange_links",
    "lightning/execution": "walk brute seam opening",
    "lightning/serving": "express tidy replays",
    "lightning/compiler": "stretches",
    "lightning/training": "strays",
    "sim/twins": "converse books Fate Complaint Objection",
    "fpga": "unroll Spot narration remark",
}
"""Identifiers and names of modules that have a standard word now, by room."""

QUESTIONS = ("What", "Whether", "How", "Who", "Which")


def files(*suffixes: str) -> Iterator[Path]:
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            if path.suffix in suffixes and path != Path(__file__):
                yield path
    yield from (path for path in sorted(ROOT.glob("*.md")) if path.suffix in suffixes)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(package: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path, parse(path)


def test_prose_has_no_word_that_must_be_looked_at_twice():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in files(".py", ".md", ".toml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in PROSE.finditer(FORMER.sub("", line))
    ]
    assert found == []


@pytest.mark.parametrize("package", [*PACKAGES, "tools", "benchmarks", "tests"])
def test_no_docstring_begins_with_a_question(package):
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}"
        for path, tree in modules(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(node)) and text.split()[0] in QUESTIONS
    ]
    assert found == []


def identifiers(path: Path, tree: ast.Module) -> Iterator[str]:
    yield from path.with_suffix("").parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


@pytest.mark.parametrize("room", REPLACED)
def test_no_identifier_that_was_replaced_remains_in_its_room(room):
    replaced = set(REPLACED[room].split())
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in modules(room)
        for name in identifiers(path.relative_to(ROOT), tree)
        if name in replaced
    }
    assert found == set()
