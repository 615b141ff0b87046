"""Where a switch answers, in words, and the driver that speaks its language.

    polatis+scpi://host[:5025]      Polatis over SCPI (needs the extra `visa`)
    polatis+tl1://host[:3082]       Polatis over TL1
    TCPIP0::host::5025::SOCKET      a VISA resource string: the same as polatis+scpi
    <scheme>://...                  whatever an entry point of the group `ocs_drivers.drivers` provides

Credentials in an address are used and then forgotten: they are in no message, log or `.address`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from urllib.parse import SplitResult, unquote, urlsplit

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import AddressError
from ocs_drivers.wire import redact

ENTRY_POINTS = "ocs_drivers.drivers"
"""Entry point group: name = scheme, value = a `DriverFactory`."""

DEFAULT_TIMEOUT_S = 5.0

_BUILT_IN = {
    "polatis+scpi": "ocs_drivers.polatis:scpi_switch",
    "polatis+tl1": "ocs_drivers.polatis:tl1_switch",
}
_VISA_SOCKET = re.compile(r"TCPIP\d*::(?P<host>[^:]+)::(?P<port>\d+)::SOCKET", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password, which never appears in a repr."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address; `port` is None where the address names none. `str()` gives it without credentials."""

    scheme: str
    host: str
    port: int | None = None
    credentials: Credentials | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port is not None else "")

    def with_port(self, default: int) -> Address:
        """The same with a port: its own, or the default of its protocol."""
        return Address(self.scheme, self.host, self.port or default, self.credentials)


DriverFactory = Callable[..., OpticalSwitch]
"""`factory(address: Address, *, timeout_s: float, credentials: Credentials | None) -> OpticalSwitch`, unopened."""


def parse_address(text: str) -> Address:
    """Take an address apart. Raises `AddressError`, which shows no credentials.

    >>> str(parse_address("polatis+tl1://admin:secret@10.99.0.2:3082"))
    'polatis+tl1://10.99.0.2:3082'
    >>> str(parse_address("TCPIP0::10.99.0.2::5025::SOCKET"))
    'polatis+scpi://10.99.0.2:5025'
    """
    visa = _VISA_SOCKET.fullmatch(text.strip())
    if visa:
        return Address("polatis+scpi", visa["host"], _port(int(visa["port"]), text))
    if "::" in text and "://" not in text:
        raise _misunderstood(text, "of VISA resources, only TCPIP::host::port::SOCKET is supported")
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise _misunderstood(text, str(error)) from None
    if not parts.scheme or not parts.hostname:
        raise _misunderstood(text, "it needs a scheme and a host")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise _misunderstood(text, "nothing may follow the port")
    return Address(parts.scheme, parts.hostname, _port(port, text), _credentials(parts))


def _port(port: int | None, text: str) -> int | None:
    if port is not None and not 1 <= port <= 65535:
        raise _misunderstood(text, f"there is no TCP port {port}")
    return port


def _credentials(parts: SplitResult) -> Credentials | None:
    if parts.username is None:
        return None
    return Credentials(unquote(parts.username), unquote(parts.password or ""))


def _misunderstood(text: str, why: str) -> AddressError:
    return AddressError(
        f"cannot understand the address {redact(text)!r}: {why}",
        cure="Write it like polatis+scpi://10.0.0.2:5025 or polatis+tl1://10.0.0.2:3082.",
    )


def driver_factory(scheme: str) -> DriverFactory:
    """The factory for a scheme: built in, or provided by an installed distribution.

    Raises `AddressError` when there is none, or when it cannot be imported.
    """
    built_in = _BUILT_IN.get(scheme)
    if built_in is not None:
        module, name = built_in.split(":")
        factory: DriverFactory = getattr(import_module(module), name)
        return factory
    for entry_point in entry_points(group=ENTRY_POINTS, name=scheme):
        try:
            factory = entry_point.load()
        except Exception as error:
            raise AddressError(
                f"the driver for {scheme} cannot be loaded: {error}",
                cure=f"Look at the distribution that provides {entry_point.value}.",
            ) from error
        return factory
    raise AddressError(f"no driver for {scheme}", cure=f"Known: {', '.join(known_schemes())}.")


def known_schemes() -> tuple[str, ...]:
    """Schemes that `open_switch` understands here, sorted."""
    return tuple(sorted({*_BUILT_IN, *entry_points(group=ENTRY_POINTS).names}))


def open_switch(
    address: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    credentials: Credentials | tuple[str, str] | None = None,
) -> OpticalSwitch:
    """Connect to the switch at `address` and find out what it can do.

    `timeout_s` bounds every wait for an answer. `credentials` go before those in the address. Raises
    `AddressError`, `ConnectError`, `Timeout`, `ProtocolDesync`, `LoginFailed`.
    """
    parsed = parse_address(address)
    if isinstance(credentials, tuple):
        credentials = Credentials(*credentials)
    factory = driver_factory(parsed.scheme)
    switch = factory(parsed, timeout_s=timeout_s, credentials=credentials or parsed.credentials)
    switch.open()
    return switch
