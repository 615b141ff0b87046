"""One writer at a time for each device: a lock among threads, and an advisory file lock among processes.

A device has up to two names: its place (scheme, resolved host or path, port) and its serial number at that place.
Drivers that share one of these names share the lock.

VISA locks do not exclude other clients of a raw socket, so we do not use them. The file lock is `flock`. The kernel
releases it when the process ends, even after SIGKILL, so no stale lock remains.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
import threading
from contextlib import ExitStack
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Self
from weakref import WeakValueDictionary

from ocs_drivers.address import parse_address
from ocs_drivers.errors import AddressError, SwitchHeld

LOCK_DIRECTORY_VARIABLE = "LIGHTBED_LOCK_DIR"
"""Environment variable that overrides the directory of the lock files."""


def find_lock_directory() -> Path:
    """Return the directory of lock files, shared by all users of the machine; create it on first use."""
    configured_path = os.environ.get(LOCK_DIRECTORY_VARIABLE)
    directory = Path(configured_path) if configured_path else _find_shared_folder() / "ocs_drivers"
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o1777)
    return directory


def _find_shared_folder() -> Path:
    """Return a directory in which every user may create files, so that root and other users share the locks."""
    lock_folder = Path("/run/lock")
    is_open_to_all = lock_folder.is_dir() and lock_folder.stat().st_mode & stat.S_IWOTH
    return lock_folder if is_open_to_all else Path("/tmp")  # noqa: S108 - TMPDIR differs from user to user


def make_lock_names(address: str, vendor: str = "", serial: str = "") -> tuple[str, ...]:
    """Return the names under which one device is locked: its place, and its serial number if `serial` is not empty.

    Options are ignored. An address that cannot be parsed is its own name.

    >>> make_lock_names("polatis+scpi://127.0.0.1:5025?poll_s=1", "Polatis", "0123")
    ('polatis+scpi://127.0.0.1:5025', 'Polatis 0123 at 127.0.0.1')
    """
    bare_address = address.partition("?")[0]
    try:
        parsed_address = parse_address(bare_address)
    except AddressError:
        return (bare_address,)
    location = (
        os.path.realpath(parsed_address.path) if parsed_address.path else _resolve_host(parsed_address.host)
    )
    port = "" if parsed_address.port is None else f":{parsed_address.port}"
    location_name = f"{parsed_address.scheme}://{location}{port}"
    return (location_name, f"{vendor} {serial} at {location}") if serial else (location_name,)


@lru_cache(maxsize=256)
def _resolve_host(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None)[0][4][0])
    except OSError:
        return host


def make_lock_path(lock_name: str) -> Path:
    """Return the lock file of a device address: readable, and distinct for distinct addresses."""
    readable_name = re.sub(r"[^A-Za-z0-9.]+", "-", lock_name)[:80].strip("-")
    return find_lock_directory() / f"{readable_name}-{sha256(lock_name.encode()).hexdigest()[:8]}.lock"


class _NameLock:
    """Lock on one name of a device: a re-entrant thread lock, and a file lock while any thread holds it."""

    def __init__(self, lock_name: str) -> None:
        self.address = lock_name
        self.thread_lock = threading.RLock()
        self.hold_count = 0
        self.descriptor: int | None = None

    def acquire(self) -> None:
        self.thread_lock.acquire()
        try:
            if self.hold_count == 0:
                self.descriptor = _lock_file(self.address)
            self.hold_count += 1
        except BaseException:
            self.thread_lock.release()
            raise

    def release(self) -> None:
        self.hold_count -= 1
        descriptor = self.descriptor
        try:
            if self.hold_count == 0 and descriptor is not None:
                self.descriptor = None
                _unlock_file(descriptor)
        finally:
            self.thread_lock.release()


class DeviceLock:
    """Exclusive right to change one device, under all its names; re-entrant. Threads wait, other processes are refused.

    >>> with DeviceLock("example://switch"), DeviceLock("example://switch", "Example 0123"):
    ...     pass
    """

    _by_name: ClassVar[WeakValueDictionary[str, _NameLock]] = WeakValueDictionary()
    _registry_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, *names: str) -> None:
        with self._registry_lock:  # sorted: without one global order, two drivers could deadlock
            self._locks = [self._by_name.setdefault(name, _NameLock(name)) for name in sorted(set(names))]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for lock in self._locks:
                lock.acquire()
                stack.callback(lock.release)
            stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        with ExitStack() as stack:
            for lock in self._locks:
                stack.callback(lock.release)


def _lock_file(lock_name: str) -> int:
    path = make_lock_path(lock_name)
    descriptor = _open_lock_file(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _read_pid(descriptor)
        os.close(descriptor)
        raise _make_held_error(lock_name, path, pid) from None
    _write_pid(descriptor, f"{os.getpid()}\n")
    return descriptor


def _open_lock_file(path: Path) -> int:
    flags = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_RDWR, 0o666)
    except PermissionError:  # another user's file: we can lock it, but not write our pid
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _unlock_file(descriptor: int) -> None:
    _write_pid(descriptor, "")
    os.close(descriptor)


def _write_pid(descriptor: int, text: str) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    except OSError:  # the file is read-only, or the disk is full: the lock holds anyway
        return


def _read_pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else None


def _make_held_error(lock_name: str, path: Path, pid: int | None) -> SwitchHeld:
    holder = f"process {pid}" if pid is not None else "another process"
    return SwitchHeld(
        f"{holder} is changing this switch now; nothing was sent",
        pid=pid,
        device=lock_name,
        hint=f"Wait for it to finish, then read and plan again (lock file {path}).",
    )
