"""File systems on which SQLite may not be written: locks and shared memory do not reach from host to host there."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.errors import StorageError

NETWORK = frozenset(
    (
        *(
            "9p",
            "acfs",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "coda",
            "davfs",
            "glusterfs",
            "gpfs",
            "lustre",
            "ncpfs",
        ),
        *("nfs", "nfs4", "orangefs", "smb2", "smb3", "smbfs"),
        *("fuse.ceph", "fuse.davfs2", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)
_MOUNTS = Path("/proc/self/mountinfo")


def type_of(path: Path, mounts: str) -> str:
    r"""Return the type of the file system that holds a path, from the text of `/proc/self/mountinfo` (proc(5)).

    >>> type_of(
    ...     Path("/home/a/runs"),
    ...     "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /home rw shared:1 - nfs4 h:/x rw\n",
    ... )
    'nfs4'
    """
    found, longest = "", -1
    for line in mounts.splitlines():
        place, _, source = line.partition(" - ")
        mounted_at = Path(_unescaped(place.split()[4]))
        if (
            path.is_relative_to(mounted_at) and len(mounted_at.parts) >= longest
        ):  # a later mount hides an earlier one
            found, longest = source.split()[0], len(mounted_at.parts)
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def check_is_local(file: Path) -> None:
    """Raise `StorageError` for a file on a network file system."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux, or no /proc: nobody can tell
        return
    kind = type_of(file.parent.resolve(), mounts)
    if kind in NETWORK:
        what = f"{file} lies on a network file system ({kind}), where SQLite's locks and its shared memory do not hold"
        hint = "choose a directory on a local disk (--runs-dir), or a server for several hosts (--database)"
        raise StorageError(f"{what}; {hint}")
