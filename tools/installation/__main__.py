"""`tools/install [test | board | clients | docs | uv]`: installation of missing parts, step by step."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.installation import system
from tools.installation.environments import Installer, Step
from tools.installation.processes import InstallError
from tools.installation.progress import Line, Progress, format_duration, read_durations, write_durations
from tools.installation.uv import Uv, find_cache_home

ROOT = Path(__file__).parents[2]
PARTS = ("all", "test", "board", "clients", "docs", "uv")
WITHOUT_LAB = (
    "Without them there are no hosts in network namespaces: use 'testbed demo --hosts model'",
    "or install them as root",
)
WITHOUT_TESTS = ("Without them the tests that need them are skipped", "install them as root")


def print_line(text: str) -> None:
    """Print a line on standard error."""
    print(f"install: {text}", file=sys.stderr, flush=True)


def acquire_lock() -> None:
    """Acquire the lock of this checkout, and wait while another installation holds it.

    Child processes inherit the lock, so it is released when this process and all its children have ended.
    """
    handle = os.open(ROOT / "tools" / "install", os.O_RDONLY)
    os.set_inheritable(handle, True)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print_line("another installation runs in this checkout; waiting for it")
        fcntl.flock(handle, fcntl.LOCK_EX)


def make_system_steps(key: str, needs: dict[str, str], failure_texts: tuple[str, str]) -> list[Step]:
    """Return the step that installs missing Debian packages.

    If that fails, the step succeeds, but its line gives the consequence and the command (`failure_texts`).
    """
    missing = system.find_missing_packages(needs, os.environ.get("PATH", os.defpath))

    def act(line: Line) -> None:
        failure = system.install_packages(missing, line.tick)
        if failure:
            consequence, remedy = failure_texts
            line.detail = (
                f"not installed: {failure}. {consequence}, {remedy}: apt-get install {' '.join(missing)}"
            )

    title = f"Debian packages: {', '.join(missing)}"
    return [Step(key, title, lambda: not (missing or system.has_leftover_policy()), act)]


def list_steps(part: str, uv: Uv, python: Path) -> list[Step]:
    """Return all steps of a part, in order."""

    def fetch(line: Line) -> None:
        uv.fetch(line.tick)

    installer = Installer(ROOT, python, uv)
    uv_step = Step("uv", f"uv {uv.version}, which installs the rest", uv.is_installed, fetch)
    if part == "test":
        return [
            *make_system_steps("test packages", system.TESTS, WITHOUT_TESTS),
            *installer.list_test_steps(),
        ]
    if part == "uv":
        return [uv_step]
    if part == "board":
        return [uv_step, *installer.list_steps(), *installer.list_board_steps()]
    if part == "clients":
        return [uv_step, *installer.list_clients_steps()]
    if part == "docs":
        return [uv_step, *installer.list_docs_steps()]
    return [
        *make_system_steps("lab packages", system.LAB, WITHOUT_LAB),
        uv_step,
        *installer.list_steps(),
        *installer.list_host_steps(),
    ]


def install(part: str) -> None:
    """Run the steps of a part that are not done yet."""
    start = time.monotonic()
    uv = Uv(ROOT, Path(sys.executable))
    steps = [step for step in list_steps(part, uv, Path(sys.executable)) if not step.is_done()]
    if not steps:
        return
    durations = find_cache_home(ROOT, os.environ) / "lightbed" / "install-seconds.json"
    progress = Progress([step.key for step in steps], sys.stderr, read_durations(durations))
    try:
        for step in steps:
            with progress.step(step.key, step.title) as line:
                step.act(line)
    finally:
        for note in uv.list_notes():
            print_line(note)
    write_durations(durations, progress.durations_s)
    print_line(f"done in {format_duration(time.monotonic() - start)}")


def main(arguments: Sequence[str]) -> int:
    """Install a part, and return the exit status."""
    part = arguments[0] if arguments else "all"
    if part not in PARTS or len(arguments) > 1:
        print_line(f"unknown part '{' '.join(arguments)}': {', '.join(PARTS)}")
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    acquire_lock()
    try:
        install(part)
    except InstallError as error:
        for line in str(error).splitlines():
            print_line(line)
        return 1
    except KeyboardInterrupt:
        print_line("interrupted; run the same command to continue")
        return 130
    if part == "uv":
        print(Uv(ROOT, Path(sys.executable)).path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
