"""Targets of a load, `http://HOST:PORT` or `udp://HOST:PORT`, and the error of loads."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from lightning.errors import LightningError

CONNECTION_COUNT = 16
"""Default number of connections to an HTTP server."""


@dataclass(frozen=True)
class Target:
    """A server under load."""

    scheme: Literal["http", "udp"]
    host: str
    port: int

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def resolve_address(self) -> tuple[str, int]:
        """Return the IPv4 address and the port. Raise `LoadError` if the name of the host is unknown."""
        try:
            addresses = socket.getaddrinfo(self.host, self.port, socket.AF_INET)
        except OSError as error:
            raise LoadError(
                f"{self.host!r} is not a known host ({error.strerror})",
                hint="Give the name or the IPv4 address of the server",
            ) from error
        host, port = addresses[0][4][:2]
        return str(host), int(port)


def parse_target(url: str) -> Target:
    """Parse a URL. Raise `LoadError` if it is not a valid target.

    >>> parse_target("udp://127.0.0.1:9000")
    Target(scheme='udp', host='127.0.0.1', port=9000)
    """
    split_url = urlsplit(url)
    try:
        port = split_url.port
    except ValueError:
        port = None
    if (
        split_url.scheme not in ("http", "udp")
        or not split_url.hostname
        or not port
        or split_url.path.strip("/")
    ):
        raise LoadError(
            f"{url!r} is not a valid address of a server", hint="Give http://HOST:PORT or udp://HOST:PORT"
        )
    return Target("http" if split_url.scheme == "http" else "udp", split_url.hostname, port)


class LoadError(LightningError, code="load"):
    """A load cannot run: the address is wrong, the server does not answer, or the data does not fit the model."""
