"""Every command of the how-tos and tutorials runs for whoever has the wheel, its extras and an empty folder.

A block of code after a line that ends in "`NAME`:" is a file of that name. In other blocks a line that begins with
`$ ` is a command, and the lines below it are its output. A block without such lines, whose first word is a program,
holds a command a line. All of a page runs in one shell, in the order of the page.

`PAGES` holds what a reader would put in place of names and addresses, and `LEFT_OUT` the commands that cannot run here,
each with its reason. Pages whose hosts live in namespaces of the kernel need root.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

import pytest
from needs import needs
from page_table import LEFT_OUT, MARK_OF_RUN, PAGES, PROGRAMS, Page

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT / "docs" / "how-to", ROOT / "docs" / "tutorial")
TEXTS = {path.stem: path.read_text(encoding="utf-8") for folder in FOLDERS for path in folder.glob("*.md")}
LIBRARIES = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
PROGRAMS_OF_TESTS = Path(sys.executable).parent
MARK = "----- end of a command, code "


@dataclass
class Step:
    """A command, or a file (without a command) and its text."""

    name: str
    is_file: bool = False
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n") + "\n"


def blocks_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each block of code with the line of prose before it."""
    prose, block, fence = "", [], False
    for line in [*text.splitlines(), "."]:
        is_fence = line.lstrip().startswith("```")
        if is_fence or (not fence and line and not line.startswith("    ")):
            if block:
                yield prose, block
                prose = ""
            block = []
            fence ^= is_fence
            prose = prose if is_fence else line
        elif fence or block or line:
            block.append(line if fence else line.removeprefix("    "))


def steps_of(text: str) -> Iterator[Step]:
    """Yield files and commands in the order of the page."""
    for prose, block in blocks_of(text):
        named = re.search(r"`([\w./-]+\.\w+)`[^`]{0,20}:$", prose)
        if any(line.startswith("$ ") for line in block):
            named_here = named if not block[0].startswith("$ ") else None
            first = next(at for at, line in enumerate(block) if line.startswith("$ "))
            if named_here:
                yield Step(named_here[1], is_file=True, lines=block[:first])
            for line in joined(block):
                if line.startswith("$ "):
                    yield Step(line.removeprefix("$ "))
        elif named:
            yield Step(named[1], is_file=True, lines=block)
        elif is_command(block[0]):
            yield from (Step(line) for line in joined(block) if line.strip())


def joined(lines: list[str]) -> list[str]:
    """Return lines with those joined that end in a backslash, or that an open quote goes on from."""
    found: list[str] = []
    for line in lines:
        if found and found[-1].endswith("\\"):
            found[-1] = f"{found[-1][:-1].rstrip()} {line.strip()}"
        else:
            found.append(line)
    return found


def is_command(line: str) -> bool:
    return line.split(" ", maxsplit=1)[0].partition("(")[0] in PROGRAMS


STEPS = {name: list(steps_of(text)) for name, text in TEXTS.items()}


def reason_left_out(page: str, command: str) -> str | None:
    """Return why a command of a page does not run here; None for one that runs."""
    fitting = (reason for pattern, reason in LEFT_OUT.get(page, {}).items() if re.search(pattern, command))
    return next(fitting, None)


# ------------------------------------------------------------------------------ what the table says


def test_no_line_that_looks_like_a_command_is_overlooked():
    """A line of code that begins with a program of ours is a step, or is shown inside a file."""
    for page, text in TEXTS.items():
        names = {step.name for step in STEPS[page]}
        files = {line for step in STEPS[page] for line in step.lines}
        for _, block in blocks_of(text):
            for line in joined(block):
                if re.match(r"(testbed|lightning|countaction|python3?|pip) ", line):
                    assert line in names or line in files, f"{page}: {line}"


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_a_page_is_in_the_table_or_has_no_commands(page):
    commands = [step.name for step in STEPS[page] if not step.is_file]
    left_out = LEFT_OUT.get(page, {})
    runs = [command for command in commands if reason_left_out(page, command) is None]
    assert bool(runs) == (page in PAGES)
    for pattern, reason in left_out.items():
        assert reason
        assert any(re.search(pattern, command) for command in commands), f"{page}: nothing fits {pattern}"
    known = PAGES.get(page, Page())
    for name in (*known.codes, *known.before, *known.after):
        assert name in commands, f"{page}: no command {name}"
    for name in known.background:
        assert any(command.startswith(name) for command in commands), f"{page}: no command {name}"


# ------------------------------------------------------------------------------ a reader with the wheel


@pytest.fixture(scope="session")
@needs("process")
def reader(tmp_path_factory, built_wheel):
    """Provide the programs of an environment that holds the wheel, beside the libraries of this one."""
    folder = tmp_path_factory.mktemp("reader")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    ours = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    # Path files inside a folder that a path file names are not read: the checkout stays away.
    (ours / "libraries.pth").write_text(f"{LIBRARIES}\n")
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*install, "--no-warn-script-location", "--ignore-installed", built_wheel], check=True)
    for program in PROGRAMS_OF_TESTS.iterdir():
        _lend(program, folder / "venv" / "bin", python)
    found = subprocess.run(
        [python, "-P", "-c", "import testbed, fpga; print(testbed.__file__, fpga.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=_environment(),
    )
    assert str(ROOT) not in found.stdout.replace(str(folder), "")
    return folder / "venv" / "bin"


def _environment() -> dict[str, str]:
    """Return the environment without what tests or a developer set; the token by which leftovers are found stays."""
    return {
        name: text
        for name, text in os.environ.items()
        if name == "LIGHTBED_TEST_RUN" or not name.startswith(("LIGHTBED_", "PYTHONPATH"))
    }


def _lend(program: Path, folder: Path, python: Path) -> None:
    """Make a program of this environment one of the reader's, with the reader's interpreter."""
    if not program.is_file() or (folder / program.name).exists() or program.name.startswith("activate"):
        return
    content = program.read_bytes()
    if content.startswith(b"#!") and b"python" in content.split(b"\n", 1)[0]:
        (folder / program.name).write_bytes(f"#!{python}\n".encode() + content.split(b"\n", 1)[1])
        (folder / program.name).chmod(0o755)
    else:
        (folder / program.name).symlink_to(program)


def script_of(page: str, folder: Path) -> str:
    """Return what a reader types for a page; files are written when the page shows them."""
    known = PAGES.get(page, Page())
    lines = ["exec 2>&1", *known.setup]
    for at, step in enumerate(STEPS[page]):
        if step.is_file:
            path = folder / ".files" / str(at)
            path.parent.mkdir(exist_ok=True)
            path.write_text(known.replace(step.text), encoding="utf-8")
            name = shlex.quote(known.replace(step.name))
            lines += [f"mkdir -p $(dirname {name})", f"cp {path} {name}"]
        elif reason_left_out(page, step.name) is None:
            command = known.replace(step.name)
            lines += known.before.get(step.name, [])
            lines.append(f"echo {shlex.quote('$ ' + command)}")
            if step.name.startswith(known.background):
                command = re.sub(r"\s+#.*", "", command)
                log = f".log-{at}"
                lines += [f"{command} > {log} 2>&1 < <(sleep 600) &", "SERVER=$!"]
                lines += [
                    f"for i in $(seq 300); do [ -s {log} ] && break; sleep 0.1; done; sleep 0.3; cat {log}"
                ]
                lines += [f"echo '{MARK}0'"]
            else:
                lines += [command, f"echo '{MARK}'$?"]
            lines += known.after.get(step.name, [])
    return "\n".join([*lines, *known.teardown, ""])


def transcript_of(page: str, folder: Path, programs: Path) -> str:
    """Run the commands of a page in one shell, and return what it printed."""
    ours = _environment()
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    known = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": cache,
        "XDG_STATE_HOME": "",  # a page finds its key below HOME, whatever other tests of this worker set
    }
    known |= {"HOST_ENVIRONMENT": str(ROOT / ".venv-host"), "PAGES": str(folder.parent / ".pages")}
    known |= {"COLUMNS": "110", "NO_COLOR": "1", "PYTHONUTF8": "1", "MPLBACKEND": "agg"}
    tutorial = folder.parent / ".pages" / "photonic-inference"
    tutorial.mkdir(parents=True)
    for step in STEPS["photonic-inference"]:
        if step.is_file:
            (tutorial / step.name).write_text(step.text, encoding="utf-8")
    script, log = folder.parent / "script", folder.parent / "log"
    script.write_text(script_of(page, folder.parent))
    with log.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "--norc", str(script)],
            cwd=folder,
            env=ours | known,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(timeout=900)
        finally:
            _end(shell, folder, ours | known)
    return log.read_text(encoding="utf-8", errors="replace")


def _end(shell: subprocess.Popen[bytes], folder: Path, environment: dict[str, str]) -> None:
    """End what a page started and did not end: programs of its session, and labs."""
    subprocess.run(["pkill", "-TERM", "-s", str(shell.pid)], check=False)
    shell.wait(timeout=30)
    listed = subprocess.run(
        ["testbed", "sim", "status", "--json"], env=environment, cwd=folder, capture_output=True, check=True
    )
    left = [lab["lab_id"] for lab in json.loads(listed.stdout)["labs"] if lab["lab"].endswith(MARK_OF_RUN)]
    if left:
        subprocess.run(["testbed", "sim", "down", *left], cwd=folder, env=environment, check=True)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.process
@pytest.mark.socket
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[getattr(pytest.mark, name) for name in known.needs])
        for page, known in sorted(PAGES.items())
    ],
)
def test_the_commands_of_a_page_run_in_an_empty_folder(page, reader, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()

    printed = transcript_of(page, folder, reader)

    commands = [step.name for step in STEPS[page] if not step.is_file]
    runs = [command for command in commands if reason_left_out(page, command) is None]
    known = {command: iter(codes) for command, codes in PAGES[page].codes.items()}
    wanted = [(command, next(known.get(command, repeat(0)))) for command in runs]
    codes = [int(code) for code in re.findall(rf"{MARK}(\d+)$", printed, re.MULTILINE)]
    found = [(name, code) for name, code in zip(runs, codes, strict=False)]
    (folder.parent / "printed").write_text(printed)
    assert found == wanted, printed
