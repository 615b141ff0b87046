"""Debian packages of the simulated lab's hosts, and of tests only."""

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
    "ethtool": "ethtool",  # simulated hosts run it for everything except optical modules
    "/usr/bin:/usr/local/bin/python3": "python3",  # a host reports the packages of its system's Python
    # The database server that several hosts share; Debian does not put its programs on the path.
    ":".join(f"/usr/lib/postgresql/{version}/bin" for version in range(15, 20)) + "/initdb": "postgresql",
    # Third-party programs that run on simulated hosts.
    "iperf3": "iperf3",
    "lldpd": "lldpd",
    "mpirun": "openmpi-bin",
    "mpicc": "libopenmpi-dev",
    "ansible": "ansible-core",
    # The scheduler whose jobs ask for light.
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
}


def find_missing_packages(needs: Mapping[str, str], path: str) -> list[str]:
    """Return the packages of `needs` (program -> package) whose programs are not on `path`, without duplicates.

    If a program contains a slash, the text before its last slash is searched instead of `path`.
    """
    missing = []
    for program, package in needs.items():
        folders, _, name = program.rpartition("/")
        if shutil.which(name, path=folders or f"{path}:{_PATH}") is None and package not in missing:
            missing.append(package)
    return missing


def has_leftover_policy() -> bool:
    """Return whether a killed installation left its policy behind, which keeps services from starting."""
    try:
        return _OUR_MARK in _POLICY.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def find_root_prefix() -> list[str] | None:
    """Return the prefix that runs a command as root, or None if that is impossible. May ask for a password."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    if run(["sudo", "-n", "true"]).status == 0:
        return ["sudo"]
    if not sys.stdin.isatty():
        return None
    return ["sudo"] if subprocess.run(["sudo", "-v"], check=False).returncode == 0 else None


def install_packages(packages: Iterable[str], tick: Callable[[], None] = lambda: None) -> str:
    """Install Debian packages without starting their services. Return the reason of a failure, or ""."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get"
    prefix = find_root_prefix()
    if prefix is None:
        return "root is required"
    result = run([*prefix, _SCRIPT, *packages], tick=tick)
    return "" if result.status == 0 else result.last_lines
