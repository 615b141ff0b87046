"""Owners of entries in the database: processes, told apart by machine, number and beginning."""

from __future__ import annotations

import os
from pathlib import Path


def this_process() -> str:
    """Return this process as an owner: its number, when it began, and its machine."""
    return f"{os.getpid()} {_birth(os.getpid())} {_machine()}"


def is_running(owner: str) -> bool:
    """Return whether the very process that wrote `owner` still runs: numbers of processes are used again.

    Of a process of another machine nobody can tell here: it counts as running.
    """
    number, birth, machine = (*owner.split(" "), "", "")[:3]
    if machine and machine != _machine():
        return True
    return bool(birth) and birth == _birth(int(number))


def _machine() -> str:
    return os.uname().nodename.replace(" ", "-") or "localhost"


def _birth(number: int) -> str:
    """Return when a process began, in a form unique on this machine; empty when it does not exist.

    Its start in clock ticks since boot (proc(5), field 22 of `stat`) together with the boot's own id.
    """
    try:
        status = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
    fields = status.rpartition(")")[2].split()  # the command before it may hold spaces and parentheses
    state, start_ticks = fields[0], fields[19]
    return "" if state in "ZX" else f"{boot}/{start_ticks}"
