"""The documentation is true where a machine can tell: links, commands, options, lab files, error codes, verbs."""

from __future__ import annotations

import asyncio
import inspect
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ocs_drivers.errors
import testbed.errors
import testbed.operation_errors
from lightning import errors as lightning_errors
from ocs_drivers import known_schemes
from sim.twins.__main__ import make_parser, make_settings
from sim.twins.families import FAMILIES, make_twin
from sim.twins.plant import Plant, make_plant_verbs

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
    """Yield words of every `testbed COMMAND ...` in code; what follows `--`, `;`, `#` or `&&` is not part of it."""
    for code in code_in(text):
        if re.match(r"testbed [a-z]", code):
            yield shlex.split(re.split(r" -- |;|#|&&|: |`", code)[0])[1:]


@pytest.fixture(scope="module")
def command_line():
    """Yield every command by its words (`sim up`), with the set of its options and its group's."""
    pytest.importorskip("typer")
    from testbed.cli.app import build_app

    def walk(command, words=(), inherited=frozenset()):
        named = (opt for param in command.params for opt in (*param.opts, *param.secondary_opts))
        options = inherited | {opt for opt in named if opt[:2] == "--"}
        does_something = not hasattr(command, "commands") or command.invoke_without_command
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, (*words, name), frozenset() if does_something else options)
        if words and does_something:
            yield " ".join(words), set(options)

    commands = dict(walk(build_app()))
    commands["sim switch"] |= {  # it hands them on
        option for action in make_parser()._actions for option in action.option_strings if option[:2] == "--"
    }
    return commands


def commands_of(words: list[str], known) -> list[str]:
    """`sim up`, `switch read` (the address between is left out), or a single word; `read|ports` are two."""
    groups = dict.fromkeys(("lease", "offload", "sim", "token"), words[1:2]) | {"switch": words[2:3]}
    if words[0] == "runs" and re.match("[a-z]", "".join(words[1:2])):  # by itself it lists
        groups["runs"] = words[1:2]
    named = groups.get(words[0], [""])
    names = [f"{words[0]} {name}".strip() for name in " ".join(named).split("|")]
    for name in names:
        assert name in known, f"no command `testbed {name}`"
    return names


def programs_in(text: str, program: str) -> Iterator[list[str]]:
    """Yield words of every `PROGRAM COMMAND ...` in code, for a program without groups of commands."""
    for code in code_in(text):
        if re.match(rf"{program} [a-z]", code):
            yield shlex.split(re.split(r";|#|&&|\||: |`|2>", code)[0])[1:]


def commands_and_options(app) -> dict[str, set[str]]:
    """Return every command of an application, with the set of its long options."""
    return {
        name: {option for param in command.params for option in param.opts if option[:2] == "--"}
        for name, command in app.commands.items()
    }


@pytest.fixture(scope="module")
def countaction():
    pytest.importorskip("lark")
    pytest.importorskip("typer")
    from fpga.cli import build_app

    return commands_and_options(build_app())


@pytest.fixture(scope="module")
def lightning():
    pytest.importorskip("qick")
    pytest.importorskip("typer")
    from lightning.cli import build_app

    return commands_and_options(build_app())


@by_page
def test_links_point_to_files(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    missing = [
        link
        for link in links
        if not re.match(r"[a-z]+:|#", link) and not (page.parent / link.partition("#")[0]).exists()
    ]
    assert missing == []


@cache
def find_reached_pages() -> set[Path]:
    """Return the pages to which links lead from the README."""
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        here = waiting.pop()
        if here in reached or not here.exists() or here.suffix != ".md":
            continue
        reached.add(here)
        links = re.findall(r"\]\(([^)\s:]+)\)", here.read_text(encoding="utf-8"))
        waiting += [(here.parent / link).resolve() for link in links]
    return reached


@pytest.mark.slow
@by_page
def test_every_page_is_reached_from_the_index(page):
    exempt = {ROOT / "docs" / "decisions" / "template.md", ROOT / "benchmarks" / "README.md"}
    assert page in find_reached_pages() | exempt


@pytest.mark.slow
@by_page
def test_commands_and_their_options_exist(page, command_line):
    for words in commands_in(page.read_text(encoding="utf-8")):
        named = {word.partition("=")[0] for word in words if word.startswith("--")}
        for command in commands_of(words, command_line):
            assert named <= command_line[command] | {"--help"}, words


def test_there_are_commands_to_check():
    found = [words for page in PAGES for words in commands_in(page.read_text(encoding="utf-8"))]
    assert len(found) > 50


def test_the_command_line_page_names_every_command_and_option(command_line):
    text = (REFERENCE / "command-line.md").read_text(encoding="utf-8").partition("\n# `countaction`\n")[0]
    shared = text.partition("\nThe *topology options*")[2].partition("\nOther options")[0]
    topology = set(re.findall(r"^\| `(--[a-z-]+)", shared, re.MULTILINE))
    assert {"--demand", "--epoch", "--plan"} <= topology
    described: dict[str, set[str]] = {}
    for section in text.split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        named = [name for words in commands_in(heading) for name in commands_of(words, command_line)]
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section))
        if named and re.search(r"topology\s+options", section, re.IGNORECASE):
            options |= topology
        for command in named:
            described.setdefault(command, set()).update(options)
        available = set().union(*(command_line[name] for name in named or command_line))
        assert options <= available | {"--help"}, heading
    everywhere = {"--json", "--help", "--version", "--install-completion", "--show-completion"}
    everywhere |= {"--database", "--lease", "--runs-dir", "--server"}  # common options
    assert described.keys() == command_line.keys()
    for command, options in command_line.items():
        assert options - everywhere <= described[command], command


@pytest.mark.slow
@by_page
@pytest.mark.parametrize("program", ["countaction", "lightning"])
def test_commands_of_other_programs_and_their_options_exist(page, program, request):
    known = request.getfixturevalue(program)
    for words in programs_in(page.read_text(encoding="utf-8"), program):
        assert words[0] in known, words
        named = {word.partition("=")[0] for word in words}
        assert {word for word in named if word[:2] == "--"} <= known[words[0]] | {"--help"}, words


@pytest.mark.parametrize("program", ["countaction", "lightning"])
def test_the_command_line_page_names_every_command_and_option_of_other_programs(program, request):
    known = request.getfixturevalue(program)
    text = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
    text = re.split(r"\n# ", text.partition(f"\n# `{program}`\n")[2])[0]
    general, *sections = text.split("\n## ")
    everywhere = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", general)) | {"--help"}
    described = {}
    for section in sections:
        ((command, *_),) = programs_in(section.partition("\n")[0], program)
        described[command] = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section))
    assert described.keys() == known.keys()
    for command, options in known.items():
        assert options - everywhere <= described[command] <= options, command


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
    from testbed.lab.schema import Schema

    text = (REFERENCE / "lab-file.md").read_text(encoding="utf-8")
    keys = {key for schema in Schema.__subclasses__() for key in schema.model_fields}
    assert len(keys) > 25
    assert {key for key in keys if not re.search(rf"`{key}`|[{{ ]{key}:", text)} == set()


def errors_of(module) -> list[type]:
    classes = (item for _, item in inspect.getmembers(module, inspect.isclass))
    return [item for item in classes if issubclass(item, Exception) and item.__module__ == module.__name__]


ERROR_TREES = (lightning_errors, ocs_drivers.errors, testbed.errors, testbed.operation_errors)


@pytest.mark.parametrize(
    "error",
    [error for tree in ERROR_TREES for error in errors_of(tree) if not issubclass(error, Warning)],
)
def test_the_errors_page_has_every_error(error):
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert f"| `{error.code}` | `{error.__name__}` | {error.who} |" in text


@pytest.fixture(scope="module")
def twins():
    """Return a twin of every family, not serving."""
    pytest.importorskip("asyncssh")
    pytest.importorskip("h11")

    async def made():
        return [
            make_twin(family, make_settings(make_parser().parse_args([family, "--size=8x8"])))
            for family in FAMILIES
        ]

    return asyncio.run(made())


def test_the_control_socket_page_has_every_verb(twins):
    text = (REFERENCE / "control-socket.md").read_text(encoding="utf-8")
    verbs = {*make_plant_verbs(Plant({})), *(verb for twin in twins for verb in twin.make_verbs())}
    assert len(verbs) > 15
    assert [verb for verb in sorted(verbs) if f'{{"do": "{verb}"' not in text] == []


def test_the_control_socket_page_has_every_fault_and_whose_it_is(twins):
    text = (REFERENCE / "control-socket.md").read_text(encoding="utf-8")
    _, shared, own = re.split(r"\n## Faults.*\n", text)
    everywhere = set.intersection(*(set(twin.faults) for twin in twins))
    rows = re.findall(r"^\| (`.*)$", shared, re.MULTILINE)
    listed = {fault for row in rows for fault in re.findall(r"`(\w+)`", row.partition("|")[0])}
    assert listed == everywhere
    families = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|", own, re.MULTILINE))
    expected: dict[str, set[str]] = {}
    for family, twin in zip(FAMILIES, twins, strict=True):
        for fault in set(twin.faults) - everywhere:
            expected.setdefault(fault, set()).add(family)
    assert {fault: set(re.findall(r"`([\w-]+)`", named)) for fault, named in families.items()} == expected


def test_the_page_on_twins_names_every_family_and_its_ways_in(twins):
    text = (ROOT / "docs/how-to/try-a-client-on-a-twin.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \| [^|]* \|$", text, re.MULTILINE)
    found = {
        family: set(re.findall(r"`([\w-]+)`", ways))
        for families, ways in rows
        for family in re.findall(r"`([\w-]+)`", families)
    }
    assert found == {family: set(twin.frontends) for family, twin in zip(FAMILIES, twins, strict=True)}


def test_the_page_on_real_switches_names_every_scheme():
    text = (ROOT / "docs/how-to/use-a-real-switch.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z0-9+-]+):/", text.partition("## 2.")[0]))
    assert named == set(known_schemes())
