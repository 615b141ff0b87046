"""The SSH key with which we log into hosts: made once per user, private, in OpenSSH's own format."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def ensure_key(path: Path) -> str:
    """Make the ed25519 key unless it exists, and return its public line (`ssh-ed25519 AAAA... lightbed`).

    Two processes at once end with one and the same key: a key is written aside and linked into place only
    if nobody was first. Raises `OSError` when the directory cannot be written, `asyncssh.KeyImportError`
    when the file is not a key.
    """
    import asyncssh

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _place(path, asyncssh.generate_private_key("ssh-ed25519", comment="lightbed").export_private_key())
    return asyncssh.read_private_key(path).export_public_key().decode().strip()


def _place(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 that appears complete or not at all, and never replaces another's."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(aside)
    except FileExistsError:
        pass
    finally:
        aside.unlink()
