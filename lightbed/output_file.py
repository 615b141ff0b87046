"""Files that a user names, as in `-o FILE`: regular files appear whole or not at all, devices and pipes are written to.

Every command writes through this module, so that a device stays a device: replacing `/dev/null`, as root, would take
it away from the whole machine.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

STANDARD_OUTPUT = "-"
"""Stands for standard output."""

_DESCRIPTOR = re.compile(r"/dev/(?:fd/|std)(\d+|in|out|err)|/proc/(?:self|thread-self)/fd/(\d+)")
_STANDARD = {"in": 0, "out": 1, "err": 2}
_MOST_LINKS = 40


def write_output(path: str | Path, content: str | bytes) -> None:
    """Write a file that a user named. Raises as `open_output`."""
    with open_output(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def save_figure(figure: Any, path: str | Path, *, dpi: float = 120) -> None:
    """Write a figure of matplotlib in the format that the name ends in, or as PNG. Raises as `open_output`."""
    kind = Path(path).suffix[1:].lower() or "png"
    with open_output(path) as file:
        figure.savefig(file, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)


@contextmanager
def open_output(path: str | Path) -> Iterator[IO[bytes]]:
    """Provide a file that a user named, for writing.

    A regular file is replaced at the end of the block, and stays as it was when the block raises; a link stays a link,
    and what it leads to is replaced. Character devices, pipes, open descriptors (`/dev/stdout`, `/dev/fd/3`) and
    standard output (`-`) are written to as they stand.

    Raises `OSError` with a reason in `strerror`, as `check_output` does, and for a disk that is full.
    """
    check_output(path)
    descriptor = _descriptor_of(path)
    if str(path) == STANDARD_OUTPUT:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif descriptor is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        # The place in the file is kept: opening the name would begin at its head, and cut off what is there.
        with os.fdopen(os.dup(descriptor), "wb") as file:
            yield file
    elif Path(path).exists() and not Path(path).is_file():
        with Path(path).open("wb") as file:
            yield file
    else:
        with replace_file(Path(os.path.realpath(path))) as file:
            yield file


@contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Provide a new file that takes the place of `path`, with its mode and group, at the end of the block.

    This is for files of the program itself: whoever may write in the folder may replace them. Raises `OSError`.
    """
    before = path.stat() if path.exists() else None
    beside = path.with_name(f".lightbed-{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if before else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if before:
                with suppress(PermissionError):  # of a group that is not ours
                    os.fchown(descriptor, -1, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            yield file
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def check_output(path: str | Path) -> None:
    """Raise `OSError` for a name that cannot be written, before the work for it begins.

    Refused are folders, disks, sockets, links that lead to nothing, files that nobody may write or that belong to
    another user, and names in a folder that is not there or cannot be written.
    """
    if str(path) == STANDARD_OUTPUT or _descriptor_of(path) is not None:
        return
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        _check_new(Path(path))
        return
    for is_kind, number, what in _REFUSED:
        if is_kind(found.st_mode):
            raise OSError(number, f"it is {what}", str(path))
    if not stat.S_ISREG(found.st_mode):
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
        raise OSError(errno.EINVAL, f"it is a link to {path.readlink()}, which does not exist", str(path))
    _check_folder(path.parent, path)


def _check_folder(folder: Path, path: str | Path) -> None:
    if not folder.is_dir():
        raise OSError(errno.ENOENT, f"folder {folder} does not exist", str(path))
    if not os.access(folder, os.W_OK):
        raise OSError(errno.EACCES, f"folder {folder} is not writable", str(path))


def _descriptor_of(path: str | Path) -> int | None:
    """Return the descriptor that a name stands for, also through links; None for the name of a file."""
    name = os.path.abspath(path)  # noqa: PTH100 - links are followed one by one
    for _ in range(_MOST_LINKS):
        found = _DESCRIPTOR.fullmatch(name)
        if found:
            word = found[1] or found[2]
            return _STANDARD.get(word) if word in _STANDARD else int(word)
        try:
            name = os.path.normpath(Path(name).parent / Path(name).readlink())
        except OSError:
            return None
    return None


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
