"""Without the extra that a program needs it says which, and tells its version nevertheless."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process


def run(program, *words):
    code = (
        f"import sys; sys.modules['typer'] = None; sys.argv[0] = 'x'; from {program}.cli import main; main()"
    )
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("program", "name", "extra"),
    [("testbed", "testbed", "testbed"), ("lightning", "lightning", "kit"), ("fpga", "countaction", "fpga")],
)
def test_without_typer_a_program_says_what_to_install_and_which_version_it_is(program, name, extra):
    done = run(program, "doctor")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {name} needs typer. Hint: install the extra [{extra}] of lightbed\n"
    done = run(program, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{name} ")
