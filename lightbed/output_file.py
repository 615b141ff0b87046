"""Files that a user names, as in `-o FILE`: regular files appear whole or not at all, devices and pipes are written to.

Every command writes through this module. A name is what it stands for: replacing `/dev/null`, as root, would take the
device away from the whole machine.
"""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

STANDARD_OUTPUT = "-"
"""Stands for standard output wherever a file is named."""

_DOORS = ("/dev/fd/", "/dev/std", "/proc/")
"""Beginnings of names that lead to what a process has open, also where a regular file is behind them."""


def write_output(path: str | Path, content: str | bytes) -> None:
    """Write a file that a user named. Raises as `open_output`."""
    with open_output(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def save_figure(figure: Any, path: str | Path, *, dpi: float = 120) -> None:
    """Write a figure of matplotlib in the format that the name ends in, or as PNG. Raises as `open_output`."""
    kind = Path(path).suffix[1:].lower() or "png"
    with open_output(path) as file:  # an SVG without its date: the same figure is the same file
        figure.savefig(file, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)


@contextmanager
def open_output(path: str | Path) -> Iterator[IO[bytes]]:
    """Provide a file that a user named, for writing.

    A regular file is replaced at the end of the block, and stays as it was when the block raises; a link stays a link,
    and what it leads to is replaced. A character device or a pipe is written to as it stands, as is standard output
    for the name `-`.

    Raises `OSError` with a reason in `strerror`, as `check_output` does, and for a disk that is full.
    """
    if str(path) == STANDARD_OUTPUT:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if _is_door(path) or not _is_regular_or_new(path):
        check_output(path)
        with open(path, "wb") as file:  # noqa: PTH123 - the name may be of a descriptor
            yield file
        return
    check_output(path)
    with _replacing(Path(os.path.realpath(path))) as file:
        yield file


def check_output(path: str | Path) -> None:
    """Raise `OSError` for a name that cannot be written, before the work for it begins.

    Refused are folders, disks, sockets, links that lead to nothing, files that nobody may write or that belong to
    another user, and names in a folder that is not there or cannot be written.
    """
    if str(path) == STANDARD_OUTPUT:
        return
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
    except FileNotFoundError:
        _check_new(Path(path))
        return
    for is_kind, number, what in _REFUSED:
        if is_kind(found.st_mode):
            raise OSError(number, f"it is {what}", str(path))
    if not stat.S_ISREG(found.st_mode) or _is_door(path):
        return
    if found.st_uid != os.geteuid():
        raise OSError(errno.EACCES, f"it belongs to {_user_name(found.st_uid)}", str(path))
    if not found.st_mode & 0o222:
        raise OSError(errno.EACCES, "it is read-only", str(path))
    _check_folder(Path(os.path.realpath(path)).parent, path)


_REFUSED = (
    (stat.S_ISDIR, errno.EISDIR, "a folder"),
    (stat.S_ISBLK, errno.EINVAL, "a disk"),
    (stat.S_ISSOCK, errno.EINVAL, "a socket"),
)


def _check_new(path: Path) -> None:
    if path.is_symlink():
        raise OSError(errno.EINVAL, f"it is a link to {path.readlink()}, which is not there", str(path))
    _check_folder(path.parent, path)


def _check_folder(folder: Path, path: str | Path) -> None:
    if not folder.is_dir():
        raise OSError(errno.ENOENT, f"there is no folder {folder}", str(path))
    if not os.access(folder, os.W_OK):
        raise OSError(errno.EACCES, f"nothing can be written in {folder}", str(path))


def _is_door(path: str | Path) -> bool:
    return os.path.abspath(path).startswith(_DOORS)  # noqa: PTH100 - links are not followed


def _is_regular_or_new(path: str | Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except FileNotFoundError:
        return True


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Provide a new file beside `path`, which takes its place, and its permissions, at the end."""
    beside = path.with_name(f".lightbed-{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            beside.chmod(stat.S_IMODE(path.stat().st_mode))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
