"""Who we say we are to a device, and where that is found without writing it into an address."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

USER_VARIABLE = "LIGHTBED_OCS_USER"
PASSWORD_VARIABLE = "LIGHTBED_OCS_PASSWORD"  # noqa: S105  (the name of a variable)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password, which never appears in a repr."""

    user: str
    password: str = field(repr=False)


def find_credentials(device: str, given: Credentials | None, *, factory: Credentials) -> Credentials:
    """Those given, else `LIGHTBED_OCS_USER` and `LIGHTBED_OCS_PASSWORD`, else the factory account.

    `device` is the address without credentials.
    """
    del device
    if given is not None:
        return given
    user, password = os.environ.get(USER_VARIABLE), os.environ.get(PASSWORD_VARIABLE)
    if user is None and password is None:
        return factory
    return Credentials(user or factory.user, password or "")
