"""The tutorial on the photonic kit is true: its files, its commands and their output, in order.

A block of code after "as `NAME`:" is a file of that name. A line of code that begins with `$ ` is a command; the
lines below it are what it prints, both streams together. `...` there stands for anything.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

for library in ("qick", "typer", "matplotlib", "pyvisa"):
    pytest.importorskip(library, reason="the tutorial begins with pip install 'lightbed[kit]'")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "photonic-kit.md"
LIGHTNING = f"{sys.executable} -m lightning.cli"


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
    """Files and commands in the order of the page; a block of code ends where prose begins."""
    step: Step | None = None
    for line in page.splitlines():
        code = line[4:] if line.startswith("    ") else None
        named = re.search(r"as `([\w.]+)`:$", line) if code is None else None
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
    """Whether the output is the one of the page, in which `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in shown.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def printed_by(command: str, folder: Path) -> str:
    """What a command of the page prints in `folder`, with the programs of this environment."""
    known = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "110"}
    known |= {"NO_COLOR": "1", "PYTHONUTF8": "1", "PYTHONPATH": str(ROOT), "LIGHTBED_DEVICE": ""}
    known |= {"LIGHTBED_CALIBRATIONS": str(folder / "calibrations")}
    done = subprocess.run(
        re.sub(r"^lightning ", f"{LIGHTNING} ", command),
        shell=True,
        cwd=folder,
        env=os.environ | known,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")


STEPS = list(steps_of(PAGE.read_text(encoding="utf-8")))
COMMANDS = [(index, step.name) for index, step in enumerate(STEPS) if not step.is_file]


class Reader:
    """Somebody who works through the page from its beginning, as far as a test asks, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._printed: list[str] = []
        """Of every step so far; of a file nothing."""

    def printed(self, index: int) -> str:
        """What the command of this step printed."""
        while len(self._printed) <= index:
            self._printed.append(self._followed(STEPS[len(self._printed)]))
        return self._printed[index]

    def _followed(self, step: Step) -> str:
        if step.is_file:
            (self.folder / step.name).write_text(step.text + "\n", encoding="utf-8")
            return ""
        return printed_by(step.name, self.folder)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return Reader(tmp_path_factory.mktemp("tutorial"))


@pytest.mark.parametrize(("index", "command"), COMMANDS)
def test_the_output_is_that_of_the_page(index, command, reader):
    output = reader.printed(index)
    assert agrees(STEPS[index].text, output), output


def test_the_page_has_all_steps():
    words = {name.split()[1] for _, name in COMMANDS if name.startswith("lightning")}
    assert words == {"multiply", "scope", "run", "calibrate", "sweep", "doctor"}
    assert [step.name for step in STEPS if step.is_file] == ["product.py", "talk.py", "noise.py"]


def test_the_pictures_are_drawn(reader):
    reader.printed(len(STEPS) - 1)
    shown = (PAGE.parent / "photonic-kit.png").read_bytes()
    drawn = [(reader.folder / name).read_bytes() for name in ("wave.png", "curves.png")]
    assert {each[:8] for each in (shown, *drawn)} == {b"\x89PNG\r\n\x1a\n"}
    assert len(shown) < 60_000


@pytest.mark.parametrize(("shown", "output", "same"), [("a ... c", "a b\nc c", True), ("a.c", "abc", False)])
def test_dots_stand_for_anything_and_nothing_else_does(shown, output, same):
    assert agrees(shown, output) is same
