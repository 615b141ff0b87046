"""Debian packages: what the simulated lab's hosts need, and what only tests need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tools.installation.processes import run

_PATH = "/usr/sbin:/sbin"
_POLICY = Path("/usr/sbin/policy-rc.d")
_OUR_MARK = "temporary, by lightbed"
_SCRIPT = Path(__file__).parents[1] / "install-system"

LAB = {
    "sshd": "openssh-server",
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "ping": "iputils-ping",
    "sysctl": "procps",
}
TESTS = {
    "iverilog": "iverilog",
    "tclsh": "tcl",
    "g++": "g++",
    "make": "make",
    "bash": "bash",
    "unshare": "util-linux",
    "ethtool": "ethtool",  # what simulated hosts call for all but the optical modules
    "/usr/bin:/usr/local/bin/python3": "python3",  # hosts are asked what their system's Python finds
    # The server of databases that several hosts share; Debian keeps its programs off the path.
    ":".join(f"/usr/lib/postgresql/{version}/bin" for version in range(15, 20)) + "/initdb": "postgresql",
    # Other people's programs, run on simulated hosts.
    "iperf3": "iperf3",
    "lldpd": "lldpd",
    "mpirun": "openmpi-bin",
    "mpicc": "libopenmpi-dev",
    "ansible": "ansible-core",
}


def missing_packages(needs: Mapping[str, str], path: str) -> list[str]:
    """Return the packages of `needs` (program -> package) whose programs are not on `path`, each once.

    A program may bring the only folders that count, before its last slash.
    """
    lacking = []
    for program, package in needs.items():
        folders, _, name = program.rpartition("/")
        if shutil.which(name, path=folders or f"{path}:{_PATH}") is None and package not in lacking:
            lacking.append(package)
    return lacking


def left_a_policy() -> bool:
    """Return whether an installation that was killed left its ban on services behind."""
    try:
        return _OUR_MARK in _POLICY.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def as_root() -> list[str] | None:
    """Return what to put before a command for root; None when there is no way. May ask for a password."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    if run(["sudo", "-n", "true"]).status == 0:
        return ["sudo"]
    if not sys.stdin.isatty():
        return None
    return ["sudo"] if subprocess.run(["sudo", "-v"], check=False).returncode == 0 else None


def apt_install(packages: Iterable[str], tick: Callable[[], None] = lambda: None) -> str:
    """Install Debian packages without starting their services. Return why that failed; nothing when it did not."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get"
    before = as_root()
    if before is None:
        return "that takes root"
    done = run([*before, _SCRIPT, *packages], tick=tick)
    return "" if done.status == 0 else done.last_lines
