"""The documentation is true where a machine can tell: links, commands, options, lab files, error codes, verbs."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import ocs_drivers.errors
import testbed.errors
from sim.twins.plant import Plant, plant_verbs
from sim.twins.switch.fault_board import FaultBoard
from sim.twins.switch.faults import Faults
from sim.twins.switch.matrix import Matrix
from sim.twins.switch.panel import Panel

ROOT = Path(__file__).parent.parent
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = ROOT / "docs" / "reference"

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def code_in(text: str) -> Iterator[str]:
    """Inline code, and the lines of code blocks, without a shell's prompt."""
    yield from re.findall(r"`([^`\n]+)`", text)
    for line in text.splitlines():
        if line.startswith("    "):
            yield line.strip().removeprefix("$ ")


def commands_in(text: str) -> Iterator[list[str]]:
    """Words of every `testbed COMMAND ...` in code; what follows `;`, `#` or `&&` is not part of it."""
    for code in code_in(text):
        if re.match(r"testbed [a-z]", code):
            yield shlex.split(re.split(r";|#|&&|: |`", code)[0])[1:]


@pytest.fixture(scope="module")
def command_line():
    """Every command by its words (`sim up`), with the set of its options."""
    typer = pytest.importorskip("typer")
    from testbed.cli.app import build_app

    def walk(command, words=()):
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, (*words, name))
        if words and not hasattr(command, "commands"):
            yield " ".join(words), {opt for param in command.params for opt in param.opts if opt[:2] == "--"}

    return dict(walk(typer.main.get_command(build_app([]))))


def command_of(words: list[str], known) -> str:
    name = " ".join(words[:2]) if words[0] == "sim" else words[0]
    assert name in known, f"no command `testbed {name}`"
    return name


@by_page
def test_links_point_to_files(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    missing = [
        link
        for link in links
        if not re.match(r"[a-z]+:|#", link) and not (page.parent / link.partition("#")[0]).exists()
    ]
    assert missing == []


@by_page
def test_every_page_is_reached_from_the_index(page):
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        here = waiting.pop()
        if here in seen or not here.exists() or here.suffix != ".md":
            continue
        seen.add(here)
        links = re.findall(r"\]\(([^)\s:]+)\)", here.read_text(encoding="utf-8"))
        waiting += [(here.parent / link).resolve() for link in links]
    exempt = {ROOT / "docs" / "decisions" / "template.md", ROOT / "benchmarks" / "README.md"}
    assert page in seen | exempt


@by_page
def test_commands_and_their_options_exist(page, command_line):
    for words in commands_in(page.read_text(encoding="utf-8")):
        options = command_line[command_of(words, command_line)]
        named = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert named <= options | {"--help"}, words


def test_there_are_commands_to_check():
    found = [words for page in PAGES for words in commands_in(page.read_text(encoding="utf-8"))]
    assert len(found) > 50


def test_the_command_line_page_names_every_command_and_option(command_line):
    text = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
    described: dict[str, set[str]] = {}
    for section in text.split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        named = [command_of(words, command_line) for words in commands_in(heading)]
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section))
        for command in named:
            described.setdefault(command, set()).update(options)
        available = set().union(*(command_line[name] for name in named or command_line))
        assert options <= available | {"--help"}, heading
    everywhere = {"--json", "--help"}
    assert described.keys() == command_line.keys()
    for command, options in command_line.items():
        assert options - everywhere <= described[command], command


def test_lab_files_in_the_documentation_are_accepted():
    pytest.importorskip("pydantic")
    from testbed.lab.inventory import parse_lab

    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    labs = [parse_lab(block, ROOT / "labs" / "documented.yaml") for block in blocks]
    assert [lab.name for lab in labs] == ["bench"]


def test_the_lab_file_page_names_every_key():
    pytest.importorskip("pydantic")
    from testbed.lab.shape import Shape

    text = (REFERENCE / "lab-file.md").read_text(encoding="utf-8")
    keys = {key for shape in Shape.__subclasses__() for key in shape.model_fields}
    assert len(keys) > 25
    assert {key for key in keys if not re.search(rf"`{key}`|[{{ ]{key}:", text)} == set()


def errors_of(module) -> list[type]:
    classes = (item for _, item in inspect.getmembers(module, inspect.isclass))
    return [item for item in classes if issubclass(item, Exception) and item.__module__ == module.__name__]


@pytest.mark.parametrize("error", [*errors_of(ocs_drivers.errors), *errors_of(testbed.errors)])
def test_the_errors_page_has_every_error(error):
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert f"| `{error.code}` | `{error.__name__}` | {error.who} |" in text


def test_the_control_socket_page_has_every_verb_and_fault():
    text = (REFERENCE / "control-socket.md").read_text(encoding="utf-8")
    device = SimpleNamespace(matrix=Matrix(2, 2))
    board = FaultBoard(Faults(), device, line=None, sessions=None)
    verbs = {*plant_verbs(Plant({})), *Panel(None, device, None, board).verbs()}
    assert len(verbs) > 10
    assert [verb for verb in verbs if f'{{"do": "{verb}"' not in text] == []
    assert [fault for fault in board._known if f"`{fault}`" not in text] == []
