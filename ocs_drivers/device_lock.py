"""One writer at a time for each device: a lock among threads, and an advisory file lock among processes.

VISA locks give no exclusion on a raw socket, so we do not use them. The file lock is `flock`, which the
kernel drops when its process dies, however it dies: nothing is ever left to clean up.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Self
from weakref import WeakValueDictionary

from ocs_drivers.errors import SwitchHeld

LOCK_DIRECTORY = "LIGHTBED_LOCK_DIR"
"""Environment variable that names another directory for the lock files."""


def lock_directory() -> Path:
    """Where lock files lie: a place all users of the machine share, made on first use."""
    chosen = os.environ.get(LOCK_DIRECTORY)
    shared = Path("/run/lock")
    base = shared if os.access(shared, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    directory = Path(chosen) if chosen else base / "ocs_drivers"
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o1777)
    return directory


def lock_path(address: str) -> Path:
    """The lock file of a device address: readable, and distinct for distinct addresses."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", address)[:80].strip("-")
    return lock_directory() / f"{readable}-{sha256(address.encode()).hexdigest()[:8]}.lock"


class _Holder:
    """This process's share in one device's lock."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.threads = threading.RLock()
        self.depth = 0
        self.descriptor: int | None = None


class DeviceLock:
    """Exclusive right to change one device; re-entrant. Threads wait, other processes are refused.

    >>> with DeviceLock("example://switch"), DeviceLock("example://switch"):
    ...     pass
    """

    _holders: ClassVar[WeakValueDictionary[str, _Holder]] = WeakValueDictionary()
    _registry: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, address: str) -> None:
        with self._registry:
            self._holder = self._holders.setdefault(address, _Holder(address))

    def __enter__(self) -> Self:
        holder = self._holder
        holder.threads.acquire()
        try:
            if holder.depth == 0:
                holder.descriptor = _locked_file(holder.address)
            holder.depth += 1
        except BaseException:
            holder.threads.release()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        holder = self._holder
        holder.depth -= 1
        if holder.depth == 0 and holder.descriptor is not None:
            _unlock(holder.descriptor)
            holder.descriptor = None
        holder.threads.release()


def _locked_file(address: str) -> int:
    path = lock_path(address)
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _read_pid(descriptor)
        os.close(descriptor)
        raise _held(address, path, pid) from None
    _write_pid(descriptor, f"{os.getpid()}\n")
    return descriptor


def _open(path: Path) -> int:
    flags = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_RDWR, 0o666)
    except PermissionError:  # another user made it: enough to lock, not to leave our pid
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _unlock(descriptor: int) -> None:
    _write_pid(descriptor, "")
    os.close(descriptor)


def _write_pid(descriptor: int, text: str) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    except OSError:  # opened read-only, or no space: the lock holds all the same
        return


def _read_pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else None


def _held(address: str, path: Path, pid: int | None) -> SwitchHeld:
    holder = f"process {pid}" if pid is not None else "another process"
    return SwitchHeld(
        f"{holder} is changing this switch now; nothing was sent",
        pid=pid,
        device=address,
        cure=f"Wait for it to finish, then read and plan again (lock file {path}).",
    )
