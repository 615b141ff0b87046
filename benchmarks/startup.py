"""Processor time of short commands: `--help` of every command, and commands that only read.

The first line is for the interpreter and the libraries alone; then there is one line per command. The time is the user
and system time of its process and of the processes that it waits for, the median of five runs of the installed console
script. The switches are twins; `plan` and `sim status` use a simulated lab with modelled hosts. Needs no root.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from fpga.cli import build_app as countaction_app
from lightning.cli import build_app as lightning_app
from sim.twins.families import FAMILIES
from testbed.cli.app import build_app as testbed_app
from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab

LAB = Path(__file__).parents[1] / "labs" / "testbed12.yaml"
SCRIPTS = Path(sys.executable).parent
REPEATS = 5
LIBRARIES = {"python": "sys", "typer": "typer", "typer with rich": "typer.rich_utils", "pydantic": "pydantic"}
LIBRARIES |= {"numpy": "numpy", "SQLAlchemy": "sqlalchemy", "asyncssh": "asyncssh"}
ASKED_HELP_S = 0.45
ASKED_READ_S = 0.4
ASKED_SSH_READ_S = 0.8
ASKED_STATUS_S = 0.45
ASKED_PLAN_S = 1.0


def processor_s(command: list[str], allowed: tuple[int, ...] = (0,)) -> float:
    """Return the median processor time of a command in s. Raises `RuntimeError` for an exit code not in `allowed`."""
    times = []
    for _ in range(REPEATS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in allowed:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        times.append(used.ru_utime + used.ru_stime)
    return statistics.median(times)


def report(words: list[str], asked_s: float, allowed: tuple[int, ...] = (0,)) -> None:
    script = str(SCRIPTS / words[0])
    seconds = processor_s([script, *words[1:]], allowed)
    line = {"benchmark": "startup", "command": " ".join(words), "processor_s": round(seconds, 3)}
    print(json.dumps({**line, "asked_processor_s": asked_s}), flush=True)


def helps() -> Iterator[list[str]]:
    """Yield the words of `--help` for every program, command and subcommand."""
    for program, app in (
        ("testbed", testbed_app()),
        ("lightning", lightning_app()),
        ("countaction", countaction_app()),
    ):
        yield [program, "--help"]
        for name, command in app.commands.items():
            yield [program, name, "--help"]
            inner = [program, name, "polatis+scpi://10.99.0.2"] if name == "switch" else [program, name]
            for under in getattr(command, "commands", ()):
                yield [*inner, under, "--help"]


@contextmanager
def twin(family: str) -> Iterator[dict[str, str]]:
    """Start a twin, and yield its ready line."""
    command = [sys.executable, "-m", "sim.twins", family, "--speed=1000"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()


def reads() -> None:
    for family in (family for family in FAMILIES if family != "manual"):
        with twin(family) as ready:
            for frontend, address in ready.items():
                if frontend in {"ready", "simulated", "family", "control"}:
                    continue
                asked_s = ASKED_SSH_READ_S if frontend == "cli" else ASKED_READ_S  # command lines use SSH
                report(["testbed", "switch", address, "read"], asked_s)


def labs() -> None:
    lab = replace(load_lab(LAB), name=f"startup-{os.getpid()}")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = stack.enter_context(start_lab(lab, hosts="model", may_move=True))
        file = scratch / "lab.yaml"
        file.write_text(render_lab(running.lab), encoding="utf-8")
        report(["testbed", "sim", "status"], ASKED_STATUS_S)
        report(["testbed", "sim", "status", "--json"], ASKED_STATUS_S)
        changes = (2,)  # nothing is patched yet
        report(["testbed", "plan", str(file), "--runs-dir", str(scratch)], ASKED_PLAN_S, changes)


def main() -> None:
    alone = {name: processor_s([sys.executable, "-c", f"import {of}"]) for name, of in LIBRARIES.items()}
    rounded = {name: round(seconds, 3) for name, seconds in alone.items()}
    print(json.dumps({"benchmark": "startup", "processors": os.cpu_count(), "processor_s": rounded}))
    labs()
    reads()
    for words in helps():
        report(words, ASKED_HELP_S)


if __name__ == "__main__":
    main()
