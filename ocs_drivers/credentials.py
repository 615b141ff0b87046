"""Accounts on devices, and their sources.

The first source that has an account wins: the caller's argument (or the address), the environment
(`LIGHTBED_OCS_USER`, `LIGHTBED_OCS_PASSWORD`), a file (`LIGHTBED_OCS_CREDENTIALS`, else
`~/.config/lightbed/credentials.toml`), the factory account. Each table of the file is named by an address or a
pattern of addresses. The first table that matches is used:

    ["calient+*://10.0.0.7*"]
    user = "operator"
    password = "..."
"""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ocs_drivers.errors import CredentialsError

USER_VARIABLE = "LIGHTBED_OCS_USER"
PASSWORD_VARIABLE = "LIGHTBED_OCS_PASSWORD"  # noqa: S105  (the name of a variable)
FILE_VARIABLE = "LIGHTBED_OCS_CREDENTIALS"
DEFAULT_FILE = Path("~/.config/lightbed/credentials.toml")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password, which never appears in a repr."""

    user: str
    password: str = field(repr=False)


_used_accounts: set[Credentials] = set()


def list_used_credentials() -> frozenset[Credentials]:
    """Return every account that this process has used, for recordings to redact."""
    return frozenset(_used_accounts)


def find_credentials(device: str, given_account: Credentials | None, *, factory: Credentials) -> Credentials:
    """Return the account for `device` (an address without credentials); `factory` is the fallback.

    Raises `CredentialsError` for a credentials file that is missing, malformed or readable by other users.
    """
    account = given_account or _read_environment(factory) or _read_file(device) or factory
    _used_accounts.add(account)
    return account


def _read_environment(factory_account: Credentials) -> Credentials | None:
    user, password = os.environ.get(USER_VARIABLE), os.environ.get(PASSWORD_VARIABLE)
    if user is None and password is None:
        return None
    return Credentials(user or factory_account.user, password or "")


def _read_file(device: str) -> Credentials | None:
    configured_path = os.environ.get(FILE_VARIABLE)
    path = Path(configured_path) if configured_path else DEFAULT_FILE.expanduser()
    if not path.exists():
        if configured_path:
            raise CredentialsError(f"file {path} does not exist", hint=f"{FILE_VARIABLE} points to it.")
        return None
    for pattern, table in _read_tables(path).items():
        if fnmatchcase(device, pattern):
            return _make_account(path, pattern, table)
    return None


def _read_tables(path: Path) -> dict[str, object]:
    """Return the tables of the file by name. Raise `CredentialsError` if other users can read it."""
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CredentialsError(f"{path} is readable by other users", hint=f"Run: chmod 600 {path}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (
        tomllib.TOMLDecodeError,
        UnicodeDecodeError,
    ):  # the message would show the line, password included
        raise CredentialsError(
            f"{path} is not TOML", hint="See `ocs_drivers.credentials` for the format."
        ) from None


def _make_account(path: Path, pattern: str, table: object) -> Credentials:
    fields = table if isinstance(table, dict) else {}
    user, password = fields.get("user"), fields.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise CredentialsError(
            f"{path}: the table {pattern!r} needs a user and a password", hint="Write both as text in quotes."
        )
    return Credentials(user, password)
