"""The tutorial on a shared lab is true: its commands, in order and in one shell, and what they print.

A line of code that begins with `$ ` is a command; the lines below it are what it prints, both streams together. `...`
stands for anything. The lab has another name than on the page, so that it meets no other lab of this machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("fastapi")
skip_without("httpx")
skip_without("pyarrow")

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial" / "shared-lab.md"
MARK = "----- end of a command -----"


def commands_of(page):
    """Return the commands of the page with what each prints."""
    found = []
    for line in page.splitlines():
        code = line.removeprefix("    ") if line.startswith("    ") else None
        if code is not None and code.startswith("$ "):
            found.append((code.removeprefix("$ "), []))
        elif code is not None and found:
            found[-1][1].append(code)
    return [(command, "\n".join(lines)) for command, lines in found]


COMMANDS = commands_of(PAGE.read_text(encoding="utf-8"))


def renamed(text):
    """Return a text of the page with a name for its lab that no other run of this machine has."""
    return re.sub(r"\bshared\b(?!-)", f"shared{os.getpid()}", text)


def agrees(shown, printed):
    pattern = ".*".join(re.escape(part) for part in shown.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


@pytest.fixture(scope="module")
@needs("process", "socket")
def printed(tmp_path_factory):
    """Provide what each command of the page printed, all of them run in one shell."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "labs").symlink_to(ROOT / "labs")
    script = "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n"
    script += "".join(f"{renamed(command)}\necho '{MARK}'\n" for command, _ in COMMANDS)
    known = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    known |= {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONUTF8": "1"}
    ours = {name: text for name, text in os.environ.items() if not name.startswith("LIGHTBED_")}
    log = folder / "printed"
    with log.open("w") as out:
        done = subprocess.run(
            ["bash"],
            input=script,
            cwd=folder,
            env=ours | known,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
    try:
        assert done.returncode == 0
        yield log.read_text(encoding="utf-8").split(f"{MARK}\n")
    finally:
        _take_down(folder, ours | known)


def _take_down(folder, environment):
    """End the lab of a page that went wrong half way."""
    for lab in (folder / "runs" / "labs").glob("*.yaml"):
        words = [sys.executable, "-m", "testbed.cli", "sim", "down", lab.stem]
        subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize("at", range(len(COMMANDS)), ids=lambda at: COMMANDS[at][0][:40])
def test_a_command_prints_what_the_page_shows(at, printed):
    shown, found = renamed(COMMANDS[at][1]), printed[at]

    assert agrees(shown.strip(), found.strip()), found


def test_the_page_has_two_users_and_a_refused_third():
    text = "\n".join(f"{command}\n{shown}" for command, shown in COMMANDS)

    assert len(COMMANDS) > 20
    assert text.count("testbed token create --role operator") == 2
    assert text.count("refused: service.role") == 1
    assert {command.split()[1] for command, _ in COMMANDS if command.startswith("testbed ")} >= {
        "sim",
        "serve",
    }
