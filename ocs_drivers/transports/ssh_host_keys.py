"""Host keys: the check that an SSH server is the device it was (extra `ssh`).

1. With the option `known_hosts` of the address, against that file; a key it does not have is refused.
2. Else against `~/.ssh/known_hosts`, when that has the host.
3. Else the first key that is seen is trusted, with a warning in the log (`ocs_drivers.ssh`), and remembered for as
   long as the transport lives: most switches have a key of their own making that nobody has signed. Another key
   at a later connection is `AnotherDevice`, before the password is sent.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lightbed.wording import install_extra
from ocs_drivers.errors import AnotherDevice, OcsError, Unsupported

if TYPE_CHECKING:
    import asyncssh

logger = logging.getLogger("ocs_drivers.ssh")

DEFAULT_PORT = 22


def asyncssh_module() -> ModuleType:
    """Return the library. Raises `Unsupported`, with the hint, where it is not installed."""
    try:
        import asyncssh
    except ImportError as error:
        raise Unsupported("asyncssh is not installed", hint=f"To use it, {install_extra('ssh')}.") from error
    return asyncssh


class HostKeys:
    """The host key that is the right one; see the module."""

    def __init__(self, device: str, known_hosts: str | None) -> None:
        self._device = device
        self._file = known_hosts
        self._filed = False  # whether a file says what the key is
        self._seen: bytes | None = None
        self.refusal: OcsError | None = None

    def trusted(self, port: int) -> Any:
        """Return what asyncssh checks keys against: the file of the address, or what the user's file has for the host.

        Where that is nothing, asyncssh asks `accept`.
        """
        self.refusal, self._filed = None, self._file is not None
        if self._file is not None:
            return self._file
        users = Path("~/.ssh/known_hosts").expanduser()
        named_port = None if port == DEFAULT_PORT else port

        def look_up(host: str, address: str, asked_port: int | None) -> Any:
            if (
                asked_port != named_port
            ):  # the host's own key is not that of a switch behind another of its ports
                return [], [], []
            try:
                found = asyncssh_module().match_known_hosts(str(users), host, address, asked_port)
            except OSError:
                return [], [], []
            self._filed = any(found)
            return found

        return look_up

    def accept(self, key: asyncssh.SSHKey) -> bool:
        """Return True if a key that no file knows is the one seen first."""
        if self._filed:
            return False
        if self._seen is None:
            self._seen = key.public_data
            logger.warning(
                "%s: trusting host key %s, which no known_hosts file has", self._device, key.get_fingerprint()
            )
        elif self._seen != key.public_data:
            self.refusal = AnotherDevice(
                f"the host key is now {key.get_fingerprint()}, not the one seen first",
                device=self._device,
                hint="Make sure that it is the right device, then open the switch again.",
            )
        return self.refusal is None
