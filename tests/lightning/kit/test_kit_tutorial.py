"""The tutorials on computing with light are true: their files, their commands and their output, in order.

A block of code after "as `NAME`:" is a file of that name. A line of code that begins with `$ ` is a command; the
lines below it are what it prints, both streams together. `...` there stands for anything.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

for library in ("qick", "typer", "matplotlib", "pyvisa"):
    skip_without(library, reason="the tutorials begin with pip install 'lightbed[kit]'")

ROOT = Path(__file__).parents[3]
TUTORIALS = ROOT / "docs" / "tutorial"
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
    """Yield files and commands in the order of the page; a block of code ends where prose begins."""
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
    """Return whether the output is the one of the page, in which `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in shown.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def printed_by_shell(command: str, folder: Path) -> str:
    """Return what a command of the page prints in `folder`, with the programs of this environment."""
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
    return trimmed(done.stdout)


def printed_here(command: str, folder: Path) -> str:
    """Run a command without a shell's own words in this process: libraries are imported once."""
    program, *words = shlex.split(command)
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        if program == "python":
            runpy.run_path(words[0])
        else:
            assert program == "lightning"
            import_module("lightning.cli").run_app(words)
    return trimmed(printed.getvalue())


def trimmed(printed: str) -> str:
    return "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")


RUNS = {"photonic-kit": printed_by_shell, "photonic-inference": printed_here}
STEPS = {page: list(steps_of((TUTORIALS / f"{page}.md").read_text(encoding="utf-8"))) for page in RUNS}
INFERENCE = pytest.mark.skipif(
    not all(map(find_spec, ("sklearn", "PIL", "onnxruntime", "numba"))),
    reason="the tutorial begins with pip install 'lightbed[kit,inference]'",
)
COMMANDS = [
    pytest.param(page, index, step.name, marks=[INFERENCE] if page == "photonic-inference" else [])
    for page, steps in STEPS.items()
    for index, step in enumerate(steps)
    if not step.is_file
]


class Reader:
    """Somebody who works through a page from its beginning, as far as a test asks, in one folder."""

    def __init__(self, page: str, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self._printed: list[str] = []
        """Of every step so far; of a file nothing."""

    def printed(self, index: int) -> str:
        """Return what the command of this step printed."""
        while len(self._printed) <= index:
            self._printed.append(self._followed(STEPS[self.page][len(self._printed)]))
        return self._printed[index]

    def _followed(self, step: Step) -> str:
        if step.is_file:
            (self.folder / step.name).write_text(step.text + "\n", encoding="utf-8")
            return ""
        return RUNS[self.page](step.name, self.folder)


@pytest.fixture(scope="module")
@needs("process")
def readers(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightning.cli.evaluate.TIMING_DURATION_S", 0.0)  # the page's figures say ... anyway
        yield {page: Reader(page, tmp_path_factory.mktemp(page)) for page in RUNS}


@pytest.mark.long
@pytest.mark.parametrize(("page", "index", "command"), COMMANDS)
def test_the_output_is_that_of_the_page(page, index, command, readers):
    output = readers[page].printed(index)
    assert agrees(STEPS[page][index].text, output), output


@pytest.mark.parametrize(
    ("page", "commands", "files"),
    [
        (
            "photonic-kit",
            {"multiply", "scope", "run", "calibrate", "doctor"},
            ["product.py", "talk.py", "noise.py"],
        ),
        ("photonic-inference", {"compile", "evaluate", "sensitivity", "infer"}, ["train.py"]),
    ],
)
def test_the_page_has_all_steps(page, commands, files):
    lines = [step.name for step in STEPS[page] if not step.is_file]
    assert {line.split()[1] for line in lines if line.startswith("lightning")} == commands
    assert [step.name for step in STEPS[page] if step.is_file] == files


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("photonic-kit", ("wave.png", "curves.png")),
        pytest.param("photonic-inference", ("layers.png",), marks=INFERENCE),
    ],
)
def test_the_plots_are_drawn(page, names, readers):
    readers[page].printed(len(STEPS[page]) - 1)
    shown = (TUTORIALS / f"{page}.png").read_bytes()
    drawn = [(readers[page].folder / name).read_bytes() for name in names]
    assert {each[:8] for each in (shown, *drawn)} == {b"\x89PNG\r\n\x1a\n"}
    assert len(shown) < 60_000


@pytest.mark.parametrize(("shown", "output", "same"), [("a ... c", "a b\nc c", True), ("a.c", "abc", False)])
def test_dots_stand_for_anything_and_nothing_else_does(shown, output, same):
    assert agrees(shown, output) is same
