"""Factories of transports for addresses; every driver gets its transport here.

Only this module selects a connection (plain TCP, PyVISA, serial, TLS, SSH). Inside
`ocs_drivers.transports.recording.record_sessions` the transports record their traffic.
"""

from __future__ import annotations

from ocs_drivers.address import Address
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.transports.recording import record
from ocs_drivers.transports.transport import SocketTransport, Transport

HTTP_OPTIONS = ("tls", "ca", "insecure")
"""Options of an address that `make_http_line` reads."""


def make_tcp_line(address: Address, default_port: int) -> Transport:
    """Return a plain TCP connection to the host of the address."""
    device = str(address)
    return record(SocketTransport(address.host, address.port or default_port, device=device), device)


def make_telnet_line(address: Address, default_port: int) -> Transport:
    """Return a telnet connection to the host of the address."""
    from ocs_drivers.transports.telnet import TelnetTransport

    return TelnetTransport(make_tcp_line(address, default_port))


def make_visa_line(address: Address, default_port: int) -> Transport:
    """Return a TCP connection through PyVISA (extra `visa`)."""
    from ocs_drivers.transports.visa import VisaTransport

    device = str(address)
    return record(VisaTransport(address.host, address.port or default_port, device=device), device)


def make_serial_line(address: Address, default_baud: int) -> Transport:
    """Return a serial line, 8N1 without flow control; the option `baud` of the address overrides the default.

    Raises `AddressError` for an invalid rate.
    """
    from ocs_drivers.transports.serial_port import SerialTransport

    text = address.options.get("baud", str(default_baud))
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise AddressError(
            f"baud={text} is not a valid rate", device=str(address), hint="Write it like ?baud=9600."
        )
    return record(SerialTransport(address.path, baud=int(text), device=str(address)), str(address))


def with_http_port(address: Address, *, port: int, tls_port: int) -> Address:
    """Return the address with its own port, or the default: `tls_port` with `?tls=1`, else `port`.

    The port is always set, so that a device has one address and one lock. Raises `AddressError` unless `tls` is 0 or 1.
    """
    return address.with_port(tls_port if _is_option_set(address, "tls") else port)


def make_http_line(address: Address, *, port: int, tls_port: int) -> Transport:
    """Return a TCP connection, with `?tls=1` inside TLS; `port` and `tls_port` are the default ports.

    With TLS, `ca=FILE` names the trusted certificate authority, and `insecure=1` accepts any certificate. Raises
    `AddressError` unless `tls` and `insecure` are 0 or 1.
    """
    if not _is_option_set(address, "tls"):
        return make_tcp_line(address, port)
    from ocs_drivers.transports.tls import TlsTransport

    transport = TlsTransport(
        address.host,
        address.port or tls_port,
        device=str(address),
        ca=address.options.get("ca"),
        insecure=_is_option_set(address, "insecure"),
    )
    return record(transport, str(address))


def _is_option_set(address: Address, option: str) -> bool:
    text = address.options.get(option, "0")
    if text not in {"0", "1"}:
        raise AddressError(f"option {option} must be 0 or 1, not {text!r}", device=str(address))
    return text == "1"


def make_ssh_line(address: Address, default_port: int, credentials: Credentials) -> Transport:
    """Return an interactive shell over SSH (extra `ssh`); the option `key` of the address names a private key file."""
    from ocs_drivers.transports.ssh import SshTransport

    transport = SshTransport(
        address.host,
        address.port or default_port,
        device=str(address),
        credentials=credentials,
        key_file=address.options.get("key"),
        known_hosts=address.options.get("known_hosts"),
    )
    return record(transport, str(address))
