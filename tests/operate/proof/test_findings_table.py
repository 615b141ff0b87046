"""The table of findings, its page, and that no finding is of a kind that is not in it."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.operate.findings import KINDS, hint_of
from testbed.operate.model import LinkFinding

ROOT = Path(__file__).parents[3]


def test_the_page_has_exactly_the_kinds_of_the_table():
    page = (ROOT / "docs/reference/findings.md").read_text(encoding="utf-8")
    rows = [tuple(row) for row in re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", page, re.MULTILINE)]
    assert rows == [(name, kind.meaning, kind.hint) for name, kind in KINDS.items()]


def test_every_finding_that_the_code_makes_is_in_the_table():
    made = set()
    for path in (ROOT / "testbed/operate").rglob("*.py"):
        made |= set(re.findall(r'LinkFinding\(\s*"(\w+)"', path.read_text(encoding="utf-8")))
    assert len(made) > 20
    assert made <= KINDS.keys()


def test_a_finding_has_the_hint_of_its_kind_unless_it_has_its_own():
    assert LinkFinding("missing_route", "e", "none").hint == hint_of("missing_route") == "run `testbed apply`"
    assert LinkFinding("missing_route", "e", "none", "wait").hint == "wait"
    assert LinkFinding("not in the table", "e", "none").hint == ""
