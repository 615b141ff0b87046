"""Owners of entries in the database: processes, identified by machine, process id and start time."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

PERSON_VARIABLE = "LIGHTBED_ON_BEHALF_OF"
"""Environment variable of processes that the service starts: the person who submitted the run."""
RUN_VARIABLE = "LIGHTBED_RUN"
"""Environment variable of processes that the service starts: the id of the run."""
_person: ContextVar[str] = ContextVar("person", default="")


def get_current_process() -> str:
    """Return the owner text of this process: its id, start and machine, separated by spaces."""
    return f"{os.getpid()} {_read_process_start(os.getpid())} {_get_machine_name()}"


@contextmanager
def act_on_behalf(person: str) -> Iterator[None]:
    """Make `get_current_person` return `person` inside the block."""
    token = _person.set(person)
    try:
        yield
    finally:
        _person.reset(token)


def get_current_run() -> str:
    """Return the id of the service's run that this process executes, or "" if it executes none."""
    return os.environ.get(RUN_VARIABLE, "")


def get_requester() -> str:
    """Return the person on whose behalf this process acts, or "" if it acts for its own user."""
    return _person.get() or os.environ.get(PERSON_VARIABLE, "")


def get_current_person() -> str:
    """Return the person on whose behalf this process acts, or its user as `name@machine`."""
    if get_requester():
        return get_requester()
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name
        name = str(os.getuid())
    return f"{name}@{_get_machine_name()}"


def is_running(owner: str) -> bool:
    """Return True if the process that wrote `owner` still runs. Another process with a reused id does not count.

    A process of another machine cannot be checked, so it counts as running.
    """
    pid_text, start_text, machine = (*owner.split(" "), "", "")[:3]
    if machine and machine != _get_machine_name():
        return True
    return bool(start_text) and start_text == _read_process_start(int(pid_text))


def is_of_this_boot(owner: str) -> bool:
    """Return whether an owner started since the last boot of this machine."""
    return owner.partition(" ")[2].partition("/")[0] == _read_boot_id()


def _read_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _get_machine_name() -> str:
    return os.uname().nodename.replace(" ", "-") or "localhost"


def _read_process_start(number: int) -> str:
    """Return the start of a process, unique on this machine, or "" if it does not exist or is a zombie.

    The text holds the start in clock ticks since boot (proc(5), field 22 of `stat`) and the id of the boot.
    """
    try:
        status = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
        boot_id = _read_boot_id()
    except OSError:
        return ""
    fields = status.rpartition(")")[2].split()  # the command name may contain spaces and parentheses
    state, start_ticks = fields[0], fields[19]
    return "" if state in "ZX" else f"{boot_id}/{start_ticks}"
