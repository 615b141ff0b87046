"""One word for one thing: the glossary's words, and docstrings in the imperative."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed")
PLACES = (*PACKAGES, "benchmarks", "docs", "examples", "tests", "tools")

PROSE = re.compile(
    r"\b(cures?|cured|anew|h[au]ng(s|ing)?[ -_]up|hung up|farewells?|deeds?|mended)\b", re.IGNORECASE
)
"""Words that nobody needs twice: hint, again, disconnect, logout, write operation, repaired."""

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

QUESTION = re.compile(r'(?:\A|:(?:[ ]+\#.*)?\n)\s*[rf]?"""\s*((?:What|Whether|How|Who|Which)\b.*)')
"""A docstring of a module, class or function that begins with a word of question."""


def files(*suffixes: str) -> Iterator[Path]:
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            if path.suffix in suffixes and path != Path(__file__):
                yield path
    yield from (path for path in sorted(ROOT.glob("*.md")) if path.suffix in suffixes)


@pytest.mark.slow
def test_prose_has_no_word_that_must_be_looked_at_twice():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in files(".py", ".md", ".toml")
        for text in [path.read_text(encoding="utf-8")]
        if PROSE.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        for match in PROSE.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize("package", [*PACKAGES, "tools", "benchmarks", "tests"])
def test_no_docstring_begins_with_a_question(package):
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.end()) + 1}: {match[1]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
        for match in QUESTION.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ('"""What stands here."""\n', True),
        ('def f(\n    a: int,\n) -> int:  # of a\n    """\n    Whether it is so.\n    """\n', True),
        ('class Row:\n    r"""Which row."""\n', True),
        ('def f():\n    """Return what it is."""\n', False),
        ('NAMES = {}\n"""What a table holds is a noun, not a question."""\n', False),
    ],
)
def test_a_question_is_found_at_the_beginning_of_a_docstring(text, is_refused):
    assert bool(QUESTION.search(text)) is is_refused


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
    word = re.compile(rf"\b({'|'.join(sorted(replaced))})\b")
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
        if word.search(f"{path.relative_to(ROOT)} {text}")  # few files are worth parsing
        for name in identifiers(path.relative_to(ROOT), ast.parse(text))
        if name in replaced
    }
    assert found == set()
