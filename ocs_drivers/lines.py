"""The line that an address names: every driver's transport is made here.

The one place where a connection is chosen (plain TCP, PyVISA, serial, SSH) and wrapped.
"""

from __future__ import annotations

from ocs_drivers.address import Address
from ocs_drivers.credentials import Credentials
from ocs_drivers.transport import SocketTransport, Transport


def tcp_line(address: Address, default_port: int) -> Transport:
    """A plain TCP connection to the host of the address."""
    return SocketTransport(address.host, address.port or default_port, device=str(address))


def visa_line(address: Address, default_port: int) -> Transport:
    """A TCP connection held by PyVISA (extra `visa`)."""
    from ocs_drivers.visa import VisaTransport

    return VisaTransport(address.host, address.port or default_port, device=str(address))


def serial_line(address: Address, default_baud: int) -> Transport:
    """A serial line, 8N1 without flow control; the option `baud` of the address goes before the default."""
    from ocs_drivers.serial_port import SerialTransport

    baud = int(address.options.get("baud", default_baud))
    return SerialTransport(address.path, baud=baud, device=str(address))


def ssh_line(address: Address, default_port: int, credentials: Credentials) -> Transport:
    """An interactive shell over SSH (extra `ssh`); the option `key` of the address names a private key file."""
    from ocs_drivers.ssh import SshTransport

    return SshTransport(
        address.host,
        address.port or default_port,
        device=str(address),
        credentials=credentials,
        key=address.options.get("key"),
        known_hosts=address.options.get("known_hosts"),
    )
