"""Owners of entries in the database: processes, told apart by machine, number and beginning."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

ON_BEHALF_OF = "LIGHTBED_ON_BEHALF_OF"
"""Variable of the processes that the service starts: the person who asked for it."""
RUN = "LIGHTBED_RUN"
"""Variable of the same: the run that was asked for."""
_person: ContextVar[str] = ContextVar("person", default="")


def this_process() -> str:
    """Return this process as an owner: its number, when it began, and its machine."""
    return f"{os.getpid()} {_birth(os.getpid())} {_machine()}"


@contextmanager
def on_behalf_of(person: str) -> Iterator[None]:
    """Let `this_person` be somebody who has asked this process, and whom it knows."""
    token = _person.set(person)
    try:
        yield
    finally:
        _person.reset(token)


def this_run() -> str:
    """Return the run of the service that this process carries out; empty without one."""
    return os.environ.get(RUN, "")


def asking_person() -> str:
    """Return the person on whose behalf this is done; empty where nobody but this process's user has asked."""
    return _person.get() or os.environ.get(ON_BEHALF_OF, "")


def this_person() -> str:
    """Return who asked for what is done here, or runs this process as this machine knows it: `name@machine`."""
    if asking_person():
        return asking_person()
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        name = str(os.getuid())
    return f"{name}@{_machine()}"


def is_running(owner: str) -> bool:
    """Return whether the very process that wrote `owner` still runs: numbers of processes are used again.

    Of a process of another machine nobody can tell here: it counts as running.
    """
    number, birth, machine = (*owner.split(" "), "", "")[:3]
    if machine and machine != _machine():
        return True
    return bool(birth) and birth == _birth(int(number))


def is_of_this_boot(owner: str) -> bool:
    """Return whether a process has run on this machine since it started."""
    return owner.partition(" ")[2].partition("/")[0] == _boot()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _machine() -> str:
    return os.uname().nodename.replace(" ", "-") or "localhost"


def _birth(number: int) -> str:
    """Return when a process began, in a form unique on this machine; empty when it does not exist.

    Its start in clock ticks since boot (proc(5), field 22 of `stat`) together with the boot's own id.
    """
    try:
        status = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
        boot = _boot()
    except OSError:
        return ""
    fields = status.rpartition(")")[2].split()  # the command before it may hold spaces and parentheses
    state, start_ticks = fields[0], fields[19]
    return "" if state in "ZX" else f"{boot}/{start_ticks}"
