"""Tables of errors and findings are those of the classes, and every message can be read on one page."""

from __future__ import annotations

import re

import pytest

from tools.documentation import messages

TURNS = re.compile(
    r"\b(?<!there )(is|are) no (?!longer|other|more)[a-z]+|\bwhoever\b|\bgone? on with\b|\bmeant\b|\bwhole numbers?\b"
    r"|\bcarr(y|ied|ies) out\b|\b[Ll]eave (it|one) away\b|\bas it was\b|\bin place of\b|\bof ours\b"
)
"""Turns of phrase that a reader has to read twice, with a plain word for each: `is not a`, `integer`, `instead of`."""

FIELD = re.compile(r"\{[^{}]*\}")

QUOTES = frozenset({"sim/twins"})
"""Twins speak as their vendors do."""


@pytest.mark.parametrize("page", [messages.ERRORS, messages.FINDINGS], ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_those_of_the_classes(page):
    text = page.read_text(encoding="utf-8")
    assert messages.TABLE.search(text)
    assert messages.update_tables(text) == text


@pytest.fixture(scope="module")
def every_message():
    """Write the page with every message, and return its lines with the file of each."""
    lines = list(messages.write_message_page())
    target = messages.ROOT / "build/messages.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    file, rows = "", []
    for line in lines:
        if line.startswith("\n## "):
            file = line.removeprefix("\n## ").strip()
        elif file:
            rows.append((file, line))
    return rows


@pytest.mark.slow
def test_messages_of_all_packages_are_on_the_page(every_message):
    assert {file.partition("/")[0] for file, _ in every_message} == set(messages.PACKAGES)
    assert len(every_message) > 2500


@pytest.mark.slow
def test_no_message_has_a_turn_that_must_be_read_twice(every_message):
    odd = [
        row
        for row in every_message
        if TURNS.search(FIELD.sub("", row[1])) and not row[0].startswith(tuple(QUOTES))
    ]
    assert odd == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("raise ValueError(f'{name}: no such {kind}')", ["{name}: no such {kind}"]),
        ("raise LabError('it is gone', hint='Start it again')", ["it is gone", "Start it again"]),
        ("say('a b' if ready else 'c d')", ["a b / c d"]),
        ("option('Only this lab.')", ["Only this lab."]),
        ("raise ValueError(text)", []),
        ("compute('not a message')", []),
    ],
)
def test_a_message_is_what_is_raised_or_said(tmp_path, source, expected):
    (tmp_path / "a.py").write_text(source, encoding="utf-8")
    assert [text for _, text in messages.collect_messages(tmp_path / "a.py")] == expected
