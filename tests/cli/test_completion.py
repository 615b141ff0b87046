"""Shell completion and `--version` of the three programs, as a shell asks for them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from lightbed.completion import join_words

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {"testbed": "testbed.cli", "lightning": "lightning.cli", "countaction": "fpga.cli"}


def ran(program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, "-m", PROGRAMS[program], *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path} | variables,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        check=False,
    )


def completed(*words: str, program: str = "testbed", shell: str = "bash") -> list[str]:
    """Return what a shell is told; bash has taken the words apart at `:` and `=`."""
    asked = {f"_{program.upper()}_COMPLETE": f"complete_{shell}", "COMP_CWORD": str(len(words))}
    done = ran(program, **asked, COMP_WORDS="\n".join((program, *words)))
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_tells_its_version(program):
    done = ran(program, "--version")
    assert (done.returncode, done.stdout) == (0, f"{program} {version('lightbed')}\n")


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_brings_its_completion(program):
    done = ran(program, "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0
    assert f"_{program.upper()}_COMPLETE=complete_bash" in done.stdout


@pytest.mark.parametrize(
    ("program", "begin", "commands"),
    [
        ("testbed", "s", ["stop", "simulate", "schedule", "serve", "switch", "sim"]),
        ("lightning", "inf", ["infer"]),
        ("countaction", "pr", ["prove"]),
    ],
)
def test_commands_are_completed(program, begin, commands):
    assert completed(begin, program=program) == commands


def test_installing_writes_to_the_home_of_the_user(tmp_path):
    variables = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert ran("testbed", "--install-completion", "bash", **variables).returncode == 0
    assert "complete_bash" in (tmp_path / ".bash_completions" / "testbed.sh").read_text()


def test_schemes_families_and_labs_are_completed():
    assert completed("switch", "cal") == ["calient+tl1://", "calient+rest://"]
    assert completed("sim", "switch", "ro") == ["rome"]
    assert set(completed("apply", "labs/")) == {
        f"labs/testbed12{end}.yaml" for end in ("", "-board", "-mig", "-panel", "-planes")
    }


@pytest.mark.long
def test_ports_of_a_switch_are_completed_where_bash_goes_on(shared_twin):
    address = shared_twin("glimmerglass", "--size=2x8").urls["tl1"]
    scheme, _, rest = address.partition(":")
    host, _, port = rest.partition(":")
    asked = ("switch", scheme, ":", host, ":", port)

    assert completed(*asked, "disconnect", "1") == ["1", "10001", "10002"]
    assert completed(*asked, "connect", "1", ":", "2000") == [f"2000{n}" for n in range(1, 9)]
    assert completed(*asked, "conn") == ["connect"]


def test_a_switch_that_does_not_answer_completes_nothing():
    assert completed("switch", "glimmerglass+tl1", ":", "//127.0.0.1", ":", "1", "connect", "1") == []


def test_words_of_bash_are_joined_at_its_breaks():
    assert join_words(["p", "--scope", "=", "1", "x", ":", ""], 6) == (["p", "--scope=1"], "x:")
