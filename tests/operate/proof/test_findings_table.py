"""The table of findings, its page, and that no finding is of a kind that is not in it."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.operate.findings import FINDING_KINDS
from testbed.operate.proof.host_findings import MISSING_ROUTE

ROOT = Path(__file__).parents[3]


def test_the_page_has_exactly_the_kinds_of_the_table():
    page = (ROOT / "docs/reference/findings.md").read_text(encoding="utf-8")
    rows = [tuple(row) for row in re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", page, re.MULTILINE)]
    assert rows == [(name, kind.meaning, kind.hint) for name, kind in FINDING_KINDS.items()]


def test_every_finding_that_the_code_makes_is_in_the_table():
    made = set()
    for path in (ROOT / "testbed/operate").rglob("*.py"):
        made |= set(re.findall(r'FindingKind\(\s*"(\w+)"', path.read_text(encoding="utf-8")))
    assert len(made) > 20
    assert made == FINDING_KINDS.keys()


def test_a_finding_has_the_hint_of_its_kind_unless_it_has_its_own():
    assert MISSING_ROUTE.report("e", "none").hint == MISSING_ROUTE.hint == "run `testbed apply`"
    assert MISSING_ROUTE.report("e", "none", "wait").hint == "wait"
