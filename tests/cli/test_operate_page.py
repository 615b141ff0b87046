"""Every command of the page on operating a lab is executed, in the situation that its section is for."""

from __future__ import annotations

import re
import shlex
import sqlite3
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.lab.control import send_request

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
SECTIONS = dict(section.split("\n", 1) for section in PAGE.split("\n## ")[1:])


def commands_of(text):
    """Yield the words of each `$ testbed ...` and the exit code that the page says, 0 where it says none."""
    for line in re.findall(r"^    \$ testbed (.*)$", text, re.MULTILINE):
        words, _, remark = line.partition("#")
        told = re.search(r"exit code (\d+)", remark)
        yield shlex.split(words), int(told.group(1)) if told else 0


@pytest.fixture
def run(testbed, up):
    def run(words):
        return testbed(*(str(up[1]) if word == "LAB" else word for word in words))

    return run


def newest_epoch_was_killed(runs):
    with sqlite3.connect(runs / "lightbed.sqlite") as connection:
        gone = "owner = '1 gone/0'"
        connection.execute(
            f"update intents set {gone}, state = 'intended', applied_at = null where epoch = 2"
        )
        connection.execute(
            f"update operations set {gone}, state = 'running', stage = 'circuits' "
            "where id = (select operation from intents where epoch = 2)"
        )
    connection.close()


def prepare(section, run, runs, up, after):
    """Bring the lab into the situation of a section."""
    if section == "A change may cut off its operator":
        after(1)
        return
    after(2)
    if "unfinished" in section or "unknown" in section:
        newest_epoch_was_killed(runs)
    if "unknown" in section:
        held = send_request(up[0].control_addresses["ocs1"], {"do": "truth"})["connections"]
        send_request(up[0].control_addresses["ocs1"], {"do": "operator", "disconnect": [held[0][0]]})
        assert run(["resume", "LAB"]).code == 2


@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if list(commands_of(text))])
def test_every_command_does_what_its_section_says(section, run, runs, up, after):
    prepare(section, run, runs, up, after)
    for words, code in commands_of(SECTIONS[section]):
        ran = run(words)
        assert ran.code == code, (words, ran.out, ran.err)


def test_the_page_has_commands_of_all_that_it_is_for():
    found = {words[0] for text in SECTIONS.values() for words, _ in commands_of(text)}
    assert found >= {"journal", "resume", "history", "rollback", "confirm", "stop", "apply", "plan"}
