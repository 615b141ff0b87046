"""Addresses of switches, as text and parsed.

    polatis+scpi://host[:5025]                       a scheme and a host; `testbed switch --help` lists the schemes
    calient+rest://host?tls=1                        options follow a question mark
    polatis+serial:/dev/ttyUSB0?baud=38400           a serial line; serial:/dev/ttyUSB0 is the same
    TCPIP0::host::5025::SOCKET                       a VISA resource string: the same as polatis+scpi
    ASRL/dev/ttyUSB0::INSTR                          the same as polatis+serial
    manual://panel.json                              a panel that a person patches, and its file
    sim+calient+tl1://name?size=8x8                  a simulated switch, started for this address
    <scheme>://...                                   a scheme of an entry point in `ocs_drivers.drivers`

Credentials in an address are used for the login only; no message, log or `.address` shows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import AddressError

DEFAULT_TIMEOUT_S = 5.0

MAX_ADDRESS_LENGTH = 2048
"""Maximum length of an address, in characters; it also bounds the length of every number in it."""

MAX_SHOWN_LENGTH = 100
"""Number of characters of an address that an error shows."""

_ALIASES = {"serial": "polatis+serial"}
_PATH_SCHEMES = re.compile(
    r"(?P<scheme>manual|serial|[\w.-]+\+serial):(?://)?(?P<path>[^?]+)(?:\?(?P<query>.*))?"
)
_VISA_SOCKET = re.compile(r"TCPIP[0-9]*::(?P<host>[^:]+)::(?P<port>[0-9]{1,9})::SOCKET", re.IGNORECASE)
_VISA_SERIAL = re.compile(r"ASRL(?P<path>/[^:]+)::INSTR", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address; `port` is None if the address has none. `str()` omits the credentials.

    Either `host` or `path` (a serial line or a file) is set. `options` are the parameters after `?`.
    """

    scheme: str
    host: str
    port: int | None = None
    credentials: Credentials | None = field(default=None, repr=False, compare=False)
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        location = self.path or host + (f":{self.port}" if self.port is not None else "")
        return f"{self.scheme}://{location}" + (f"?{urlencode(self.options)}" if self.options else "")

    def with_port(self, default: int) -> Address:
        """Return the address with its own port, or with `default` if it has none."""
        return replace(self, port=self.port or default)

    def check_options(self, *known_options: str) -> Address:
        """Return the address itself. Raise `AddressError` if it has an option that is not in `known_options`."""
        for name in self.options:
            if name not in known_options:
                hint = (
                    f"Known here: {', '.join(known_options)}." if known_options else "This scheme takes none."
                )
                raise AddressError(f"unknown option {name!r}", device=str(self), hint=hint)
        return self

    def read_seconds(self, option: str, default: float) -> float:
        """Return an option that is a time in seconds. Raises `AddressError` unless it is finite and above 0."""
        text = self.options.get(option, str(default))
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise AddressError(
                f"option {option} must be a number of seconds above 0, not {text!r}", device=str(self)
            )
        return value


def parse_address(text: str) -> Address:
    """Parse an address. Raise `AddressError`, which shows no credentials.

    >>> str(parse_address("polatis+tl1://admin:secret@10.99.0.2:3082"))
    'polatis+tl1://10.99.0.2:3082'
    >>> str(parse_address("TCPIP0::10.99.0.2::5025::SOCKET"))
    'polatis+scpi://10.99.0.2:5025'
    """
    text = text.strip()
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise _make_address_error(text, "it contains a control character")
    if len(text) > MAX_ADDRESS_LENGTH:
        raise _make_address_error(text, f"it is too long ({len(text)} characters)")
    special_address = _parse_visa_resource(text) or _parse_path_address(text)
    if special_address is not None:
        return special_address
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # `from None`: the original message could show a part of a password
        raise _make_address_error(text, "its host and port cannot be separated") from None
    if not parts.scheme or not parts.hostname:
        raise _make_address_error(text, "it needs a scheme and a host")
    _check_host(parts.hostname, text)
    if parts.path.strip("/") or parts.fragment:
        raise _make_address_error(text, "nothing but ?options may follow the port")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Address(
        parts.scheme, parts.hostname, _check_port(port, text), _read_credentials(parts), options=options
    )


def _parse_visa_resource(text: str) -> Address | None:
    socket_match, serial_match = _VISA_SOCKET.fullmatch(text), _VISA_SERIAL.fullmatch(text)
    if socket_match:
        _check_host(socket_match["host"], text)
        return Address("polatis+scpi", socket_match["host"], _check_port(int(socket_match["port"]), text))
    if serial_match:
        return Address("polatis+serial", "", path=serial_match["path"])
    if "::" in text and "://" not in text:
        raise _make_address_error(
            text, "supported VISA resources are TCPIP::host::port::SOCKET and ASRL/dev/...::INSTR"
        )
    return None


def _parse_path_address(text: str) -> Address | None:
    match = _PATH_SCHEMES.fullmatch(text)
    if match is None:
        return None
    if re.search(r":.*@", match["path"]):
        raise _make_address_error(text, "a serial line or a file takes no user and password here")
    scheme, options = match["scheme"], dict(parse_qsl(match["query"] or "", keep_blank_values=True))
    return Address(_ALIASES.get(scheme, scheme), "", path=match["path"], options=options)


def _check_port(port: int | None, text: str) -> int | None:
    if port is not None and not 1 <= port <= 65535:
        raise _make_address_error(text, f"{port} is not a TCP port")
    return port


def _check_host(host: str, text: str) -> None:
    """Raise `AddressError` for an invalid host name, on which a resolver would raise `UnicodeError`."""
    try:
        if not host.isascii():
            host.encode("idna")
        is_valid = ":" in host or all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    except UnicodeError:
        is_valid = False
    if not is_valid:
        raise _make_address_error(text, "its host is not a valid name")


def _read_credentials(parts: SplitResult) -> Credentials | None:
    if parts.username is None:
        return None
    return Credentials(unquote(parts.username), unquote(parts.password or ""))


def _make_address_error(text: str, reason: str) -> AddressError:
    return AddressError(
        f"cannot understand the address {_shorten(_hide_credentials(text))!r}: {reason}",
        hint="Write it like polatis+scpi://10.0.0.2:5025 or polatis+tl1://10.0.0.2:3082.",
    )


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[:MAX_SHOWN_LENGTH]}..."


def _hide_credentials(text: str) -> str:
    """Hide the text between the scheme and the last `@`, any part of which may be a password."""
    secret_text, at_sign, visible = text.rpartition("@")
    scheme, separator, _ = secret_text.partition("://")
    return (
        f"{scheme}{separator}***@{visible}"
        if at_sign and separator
        else f"***@{visible}"
        if at_sign
        else visible
    )
