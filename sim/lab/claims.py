"""Claims of lab ids and subnets: on the whole machine for root, otherwise among the labs of a user.

A claim is a locked file. When the process that holds the claim ends, in whatever way, the kernel releases the lock, so
no claim is stale: a file without a lock claims nothing. The content of the file describes the holder.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path

_SUBNET_PREFIX = "subnet-"
_ATTEMPT_COUNT = 4
_ATTEMPT_PAUSE_S = 0.005


def find_claims_folder() -> Path:
    """Return the folder of claims: /run/lightbed for root, otherwise a folder of the user."""
    if os.geteuid() == 0:
        return Path("/run/lightbed")
    runtime_folder = os.environ.get("XDG_RUNTIME_DIR")
    return (
        Path(runtime_folder) / "lightbed" if runtime_folder else Path.home() / ".local/state/lightbed/claims"
    )


def find_user() -> str:
    """Return the name of the user who runs this process; under sudo, the user who called sudo."""
    if os.geteuid() == 0 and (sudo_user := os.environ.get("SUDO_USER")):
        return sudo_user
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a user without an entry, as in containers
        return str(os.geteuid())


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a claim. `rate_mbps` is the rate of the lab's links, `user` is who started the lab."""

    pid: int
    lab: str
    subnet: str
    rate_mbps: float = 0.0
    user: str = ""


class Claim:
    """An exclusive lock on a name, until `release` or the end of the process."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle = handle

    @classmethod
    def try_acquire(cls, name: str) -> Claim | None:
        """Claim `name`; return None if another process holds the claim.

        A concurrent `find_holder` locks the file for microseconds, hence several attempts.
        """
        path = find_claims_folder() / f"{name}.lock"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(_ATTEMPT_COUNT):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if _try_lock(handle) and _is_same_file(path, handle):
                return cls(path, handle)
            os.close(handle)
            time.sleep(_ATTEMPT_PAUSE_S)
        return None

    def write(self, holder: Holder) -> None:
        """Write the holder into the file, for `--status` and `--down --all`."""
        text = json.dumps(asdict(holder))
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, text.encode(), 0)

    def release(self) -> None:
        """Remove the file, then drop the lock."""
        # In this order: otherwise another process could lock the file just before its removal.
        with suppress(FileNotFoundError):
            self._path.unlink()
        os.close(self._handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(path: Path, handle: int) -> bool:
    """Return whether the locked file still has its name; the last holder may have removed it before it was locked."""
    try:
        by_name, by_handle = path.stat(), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (by_name.st_dev, by_name.st_ino) == (by_handle.st_dev, by_handle.st_ino)


def find_claim_names() -> Iterator[str]:
    """Yield the names of all files in the folder of claims. A file without a lock claims nothing."""
    with suppress(FileNotFoundError):
        yield from sorted(path.stem for path in find_claims_folder().glob("*.lock"))


def find_holder(name: str) -> Holder | None:
    """Return the holder of a claim, or None for a free claim. A holder that has not written its file yet has pid 0."""
    try:
        handle = os.open(find_claims_folder() / f"{name}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _parse_holder(os.pread(handle, 4096, 0))
    else:
        return None
    finally:
        os.close(handle)


def _parse_holder(content: bytes) -> Holder:
    try:
        entry = json.loads(content)
        rate_mbps = float(entry.get("rate_mbps", 0.0))
        user = str(entry.get("user", ""))
        return Holder(int(entry["pid"]), str(entry["lab"]), str(entry["subnet"]), rate_mbps, user)
    except (ValueError, KeyError, TypeError):
        return Holder(0, "", "")


def make_subnet_claim_name(subnet: IPv4Network) -> str:
    """Return the name of the claim of a subnet.

    >>> make_subnet_claim_name(IPv4Network("10.99.0.0/24"))
    'subnet-10.99.0.0-24'
    """
    return f"{_SUBNET_PREFIX}{subnet.network_address}-{subnet.prefixlen}"


def find_overlapping_claim(subnet: IPv4Network) -> IPv4Network | None:
    """Return another claimed subnet that overlaps this one, or None.

    Call this after claiming `subnet`: of two labs that start at the same time, at least one then sees the other.
    """
    for name in find_claim_names():
        if not name.startswith(_SUBNET_PREFIX):
            continue
        network = IPv4Network(name.removeprefix(_SUBNET_PREFIX).replace("-", "/"))
        if network != subnet and network.overlaps(subnet) and find_holder(name):
            return network
    return None
