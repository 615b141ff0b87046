"""A pytest plugin that fails a run which leaves something behind: processes, namespaces, mounts, files, device nodes.

`python leftovers.py COMMAND` looks once for all that a command runs: of lanes side by side none knows what is whose.
Other suites and labs may run on the machine. A process is ours if it inherited the token of this run; a namespace or a
mount is left behind if it is new and no process lives in it. A directory `lightbed-PID-...` in memory is left behind if
that process has ended, another file in memory if no process maps it (PostgreSQL keeps such files).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "LIGHTBED_TEST_RUN"
PATIENCE_S = 20.0
"""Processes may still be ending when the last test has ended."""
LEFT_BEHIND = 6
"""Exit status of a run that leaves something behind, whatever its tests say."""

_NAMESPACES = Path("/run/netns")
_FOLDERS = (Path.home(), Path("/run"), Path("/dev/shm"))
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
# Caches, and what the programs of the system make when they are first used.
_ALLOWED = {
    f"{Path.home()}/{name}" for name in (".cache", ".local", ".config", ".ansible", ".dotnet", ".pki")
}
_ALLOWED |= {
    "/run/netns",
    "/run/mount",
    "/run/sshd",
    "/run/lightbed",
    "/run/lldpd",
    "/run/lock",
    "/run/postgresql",
}


def _list_process_folders() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def find_processes(token: str) -> dict[int, str]:
    """Return the command lines of the live processes that inherited the token, without this one."""
    processes = {}
    entry_of_token = f"{TOKEN}={token}".encode()
    for entry in _list_process_folders():
        if int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if entry_of_token in (entry / "environ").read_bytes().split(b"\0"):
                processes[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return processes


def _find_namespaces_in_use() -> set[int]:
    """Return the inodes of the network namespaces in which a process lives."""
    inodes = set()
    for entry in _list_process_folders():
        with suppress(OSError):
            inodes.add((entry / "ns" / "net").stat().st_ino)
    return inodes


def _is_used_by_its_process(name: str) -> bool:
    match = re.match(r"lightbed-(\d+)-", name)
    return match is not None and Path("/proc", match[1]).exists()


def _find_mapped_files() -> set[str]:
    """Return the files in memory that a process maps."""
    files = set()
    for entry in _list_process_folders():
        with suppress(OSError):
            files.update(re.findall(r"(/dev/shm/\S+)$", (entry / "maps").read_text(), re.MULTILINE))
    return files


def take_inventory() -> set[str]:
    """Return what a run may leave behind: namespaces, mounts, untracked files, entries of folders, device nodes."""
    in_use = _find_namespaces_in_use()
    things = set()
    if _NAMESPACES.is_dir():
        for path in _NAMESPACES.iterdir():
            with suppress(OSError):
                if path.stat().st_ino not in in_use:
                    things.add(f"namespace {path.name}")
    mounts = (line.split()[:3] for line in Path("/proc/self/mounts").read_text().splitlines())
    # `ip netns` mounts its folder on itself when it is first used, and names of namespaces below it.
    things.update(
        f"mount {place} ({kind})" for _, place, kind in mounts if kind != "nsfs" and place != str(_NAMESPACES)
    )
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # Sources are what somebody writes while the suite runs.
    untracked = (line[3:] for line in status.stdout.splitlines() if line.startswith("??"))
    things.update(f"file {path}" for path in untracked if not path.endswith((".py", ".md")))
    ignored_paths = _ALLOWED | _find_mapped_files()
    for folder in _FOLDERS:
        things.update(
            f"file {path}"
            for path in folder.iterdir()
            if str(path) not in ignored_paths and not _is_used_by_its_process(path.name)
        )
    for device in _DEVICES:
        with suppress(OSError):
            state = Path(device).stat()
            things.add(f"device {device}, mode {state.st_mode:o}, number {state.st_rdev}")
    return things


def find_leftovers(before: set[str], token: str) -> list[str]:
    """Return what was left since `before`, waiting for what is still ending."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        processes = find_processes(token)
        new = sorted(take_inventory() - before)
        if not (processes or new) or time.monotonic() > end_s:
            return [*(f"process {pid}: {command}" for pid, command in processes.items()), *new]
        time.sleep(0.5)


class _Watch:
    def __init__(self) -> None:
        self._token = uuid4().hex
        os.environ[TOKEN] = self._token
        self._before = take_inventory()
        self._leftovers: list[str] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        try:
            return (yield)
        finally:
            self._leftovers = find_leftovers(self._before, self._token)
            if self._leftovers:
                session.exitstatus = LEFT_BEHIND

    def pytest_unconfigure(self) -> None:
        if self._leftovers:
            print("The run left behind:", *self._leftovers, sep="\n  ", flush=True)


def pytest_configure(config: pytest.Config) -> None:
    # Runs of pytest inside a test inherit the token; what they leave is found by the outer run.
    if not hasattr(config, "workerinput") and config.getoption("--lane") and TOKEN not in os.environ:
        config.pluginmanager.register(_Watch())


def main(command: list[str]) -> int:
    """Run a command, and return its exit status, or `LEFT_BEHIND`."""
    token, before = uuid4().hex, take_inventory()
    code = subprocess.run(command, env={**os.environ, TOKEN: token}, check=False).returncode
    leftovers = find_leftovers(before, token)
    if not leftovers:
        return code
    print("The run left behind:", *leftovers, sep="\n  ", flush=True)
    return LEFT_BEHIND


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
