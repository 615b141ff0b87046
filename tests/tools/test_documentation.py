"""Pages that are made: of commands, of docstrings, and the list of public names; and the site's table of contents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.lab.hosts.nccl_rules import NCCL_VERSION
from tools.documentation import architecture, interface
from tools.documentation.nccl_rules import write_attribute_table, write_nesting_table, write_text_table
from tools.documentation.resources import write_resources_table

ROOT = Path(__file__).parents[2]
NOT_IN_THE_TABLE = re.compile(r"decisions/(0.*|template)\.md")
"""Decisions, which are reached from their list, and the template."""


def test_the_page_of_the_public_interface_lists_what_packages_export():
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")

    assert (
        page.partition("\n\n| package")[2]
        == "\n".join(interface.write_interface_table())[len("| package") :] + "\n"
    )


def test_the_page_of_resources_has_every_module_as_it_was_last_accepted():
    page = (ROOT / "docs" / "reference" / "resources.md").read_text(encoding="utf-8")
    table = "\n".join(write_resources_table())

    assert f"\n\n{table}\n\n" in page
    assert "`preamble_finder`" in table
    assert "`photonic_mac_control`" in table


def test_the_page_of_nccl_has_every_rule_of_its_reader():
    page = (ROOT / "docs" / "reference" / "nccl-files.md").read_text(encoding="utf-8")

    for table in (
        write_text_table(),
        write_nesting_table(),
        write_attribute_table("topology"),
        write_attribute_table("graph"),
    ):
        lines = "\n".join(table)
        assert f"\n\n{lines}\n" in page
        assert lines.count("\n") > 5
    assert f"NCCL {NCCL_VERSION} " in page


def test_the_picture_of_the_rooms_is_that_of_the_contracts():
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.draw()


def test_public_names_exist():
    for package in interface.PUBLIC:
        module = interface.import_module(package)
        names = interface.list_exports(package)
        assert names
        assert [name for name in names if not hasattr(module, name)] == []


def test_the_table_of_contents_leads_to_every_page():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(
        re.findall(r": ([a-z-]+/[a-zA-Z/-]+\.md|[a-zA-Z]+\.md|decisions/README\.md)$", text, re.MULTILINE)
    )
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}

    assert {page for page in pages if not NOT_IN_THE_TABLE.fullmatch(page)} <= listed


@pytest.mark.slow
def test_pages_of_commands_name_every_command():
    pytest.importorskip("typer")
    pytest.importorskip("qick")
    pytest.importorskip("lark")
    from tools.documentation.command_pages import PROGRAMS, make_command_pages

    pages = make_command_pages()

    assert {path.rpartition("/")[2] for path in pages} == {f"{program}.md" for program in PROGRAMS}
    testbed = pages["reference/commands/testbed.md"]
    assert "## `testbed sim up`" in testbed
    assert "| `--really-move` |" in testbed
