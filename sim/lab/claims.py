"""Claims: who owns a lab id and a subnet on this machine.

A claim is a locked file. The kernel drops the lock when its holder ends, however it ends, so a claim is never
stale: a file without a lock is debris. What the file says (process, lab) is for people.
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

_SUBNET = "subnet-"
_ATTEMPTS = 4
_ATTEMPT_PAUSE_S = 0.005


def claims_folder() -> Path:
    """Return the folder of claims: /run/lightbed for root, the user's own folder otherwise."""
    if os.geteuid() == 0:
        return Path("/run/lightbed")
    private = os.environ.get("XDG_RUNTIME_DIR")
    return Path(private) / "lightbed" if private else Path.home() / ".local/state/lightbed/claims"


def this_user() -> str:
    """Return the name of who runs this process: of root by sudo, the one who asked for it."""
    if os.geteuid() == 0 and (asked_by := os.environ.get("SUDO_USER")):
        return asked_by
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a user without an entry, as in containers
        return str(os.geteuid())


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a claim, in its own words; `rate_mbps` is that of the lab's links, `user` who started it."""

    pid: int
    lab: str
    subnet: str
    rate_mbps: float = 0.0
    user: str = ""


class Claim:
    """An exclusive, held lock on a name. Released by `release`, and by the end of the process."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle = handle

    @classmethod
    def take(cls, name: str) -> Claim | None:
        """Claim `name`; None when somebody else holds it.

        A `holder_of` that looks at this moment holds the file for microseconds: hence more than one attempt.
        """
        path = claims_folder() / f"{name}.lock"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(_ATTEMPTS):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if _lock(handle) and _still_there(path, handle):
                return cls(path, handle)
            os.close(handle)
            time.sleep(_ATTEMPT_PAUSE_S)
        return None

    def write(self, holder: Holder) -> None:
        """Note who we are, for `--status` and `--down --all`."""
        text = json.dumps(asdict(holder))
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, text.encode(), 0)

    def release(self) -> None:
        """Remove the file, then drop the lock, so that nobody can lock a file that is about to go."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        os.close(self._handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _still_there(path: Path, handle: int) -> bool:
    """Return True if the file we locked is the one that bears the name: its last holder may just have removed it."""
    try:
        named, ours = path.stat(), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def claim_names() -> Iterator[str]:
    """Return names of all claims on the machine, held or not."""
    with suppress(FileNotFoundError):
        yield from sorted(path.stem for path in claims_folder().glob("*.lock"))


def holder_of(name: str) -> Holder | None:
    """Return the holder of the claim; None when it is free. A holder that has not written yet has pid 0."""
    try:
        handle = os.open(claims_folder() / f"{name}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _parse(os.pread(handle, 4096, 0))
    else:
        return None
    finally:
        os.close(handle)


def _parse(content: bytes) -> Holder:
    try:
        entry = json.loads(content)
        rate_mbps = float(entry.get("rate_mbps", 0.0))
        user = str(entry.get("user", ""))
        return Holder(int(entry["pid"]), str(entry["lab"]), str(entry["subnet"]), rate_mbps, user)
    except (ValueError, KeyError, TypeError):
        return Holder(0, "", "")


def subnet_claim(subnet: IPv4Network) -> str:
    """Return the claim's name for a subnet.

    >>> subnet_claim(IPv4Network("10.99.0.0/24"))
    'subnet-10.99.0.0-24'
    """
    return f"{_SUBNET}{subnet.network_address}-{subnet.prefixlen}"


def overlapping_claim(subnet: IPv4Network) -> IPv4Network | None:
    """Return a subnet other than this one, but with addresses in common, that somebody holds; None when nobody does.

    Asked after one's own claim is taken: of two labs that start at once, at least one then sees the other.
    """
    for name in claim_names():
        if not name.startswith(_SUBNET):
            continue
        other = IPv4Network(name.removeprefix(_SUBNET).replace("-", "/"))
        if other != subnet and other.overlaps(subnet) and holder_of(name):
            return other
    return None
