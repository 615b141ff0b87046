"""Output files that a user names, as in `-o FILE`.

Regular files are replaced atomically; devices and pipes are written to directly.

Every command writes through this module, because replacing a device such as `/dev/null` with a file, as root, would
damage the whole machine.
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
"""Name for standard output."""

_DESCRIPTOR = re.compile(r"/dev/(?:fd/|std)(\d+|in|out|err)|/proc/(?:self|thread-self)/fd/(\d+)")
_STANDARD_DESCRIPTORS = {"in": 0, "out": 1, "err": 2}
_MAX_LINKS = 40


def write_output(path: str | Path, content: str | bytes) -> None:
    """Write a file that a user names. Raises the same errors as `open_output`."""
    with open_output(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def save_figure(figure: Any, path: str | Path, *, dpi: float = 120) -> None:
    """Write a matplotlib figure in the format of the file's suffix, PNG by default.

    Raises the same errors as `open_output`.
    """
    kind = Path(path).suffix[1:].lower() or "png"
    with open_output(path) as file:
        figure.savefig(file, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)


@contextmanager
def open_output(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file that a user names, for writing.

    A regular file is replaced at the end of the block, or left unchanged if the block raises. A symbolic link remains,
    and its target is replaced. Character devices, pipes, open descriptors (`/dev/stdout`, `/dev/fd/3`) and standard
    output (`-`) are written to directly.

    Raises `OSError` with a reason in `strerror` if `check_output` raises it, or if the disk is full.
    """
    check_output(path)
    descriptor = _find_descriptor(path)
    if str(path) == STANDARD_OUTPUT:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif descriptor is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        # A duplicate keeps the position in the file; opening the name would truncate it.
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
    """Open a new file that replaces `path` at the end of the block, with the old mode and group.

    Use this for files of the program itself: it replaces even files of other users. Raises `OSError`.
    """
    replaced_status = path.stat() if path.exists() else None
    temporary_path = path.with_name(f".lightbed-{secrets.token_hex(8)}")
    descriptor = os.open(
        temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if replaced_status else 0o666
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            if replaced_status:
                with suppress(PermissionError):  # the file's group is not one of this user's groups
                    os.fchown(descriptor, -1, replaced_status.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(replaced_status.st_mode))
            yield file
            file.flush()
            os.fsync(descriptor)
        temporary_path.replace(path)
    finally:
        temporary_path.unlink(missing_ok=True)


def check_output(path: str | Path) -> None:
    """Raise `OSError` if this file cannot be written. Call it before the work whose result goes there.

    It rejects folders, disks, sockets, dangling links, read-only files, files of another user, and files in a folder
    that does not exist or is not writable.
    """
    if str(path) == STANDARD_OUTPUT or _find_descriptor(path) is not None:
        return
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        _check_missing_file(Path(path))
        return
    for is_kind, error_number, description in _REFUSED:
        if is_kind(status.st_mode):
            raise OSError(error_number, f"it is {description}", str(path))
    if not stat.S_ISREG(status.st_mode):
        return
    if status.st_uid != os.geteuid():
        raise OSError(errno.EACCES, f"it belongs to {_get_user_name(status.st_uid)}", str(path))
    if not status.st_mode & 0o222:
        raise OSError(errno.EACCES, "it is read-only", str(path))
    _check_folder(Path(os.path.realpath(path)).parent, path)


_REFUSED = (
    (stat.S_ISDIR, errno.EISDIR, "a folder"),
    (stat.S_ISBLK, errno.EINVAL, "a disk"),
    (stat.S_ISSOCK, errno.EINVAL, "a socket"),
)


def _check_missing_file(path: Path) -> None:
    if path.is_symlink():
        raise OSError(errno.EINVAL, f"it is a link to {path.readlink()}, which does not exist", str(path))
    _check_folder(path.parent, path)


def _check_folder(folder: Path, path: str | Path) -> None:
    if not folder.is_dir():
        raise OSError(errno.ENOENT, f"folder {folder} does not exist", str(path))
    if not os.access(folder, os.W_OK):
        raise OSError(errno.EACCES, f"folder {folder} is not writable", str(path))


def _find_descriptor(path: str | Path) -> int | None:
    """Return the descriptor that a name denotes, directly or through links, or None for other names."""
    name = os.path.abspath(path)  # noqa: PTH100 - links are followed one by one
    for _ in range(_MAX_LINKS):
        match = _DESCRIPTOR.fullmatch(name)
        if match:
            descriptor_text = match[1] or match[2]
            return (
                _STANDARD_DESCRIPTORS.get(descriptor_text)
                if descriptor_text in _STANDARD_DESCRIPTORS
                else int(descriptor_text)
            )
        try:
            name = os.path.normpath(Path(name).parent / Path(name).readlink())
        except OSError:
            return None
    return None


def _get_user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
