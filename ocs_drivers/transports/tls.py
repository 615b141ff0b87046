"""TCP with TLS around it, for switches that serve HTTPS.

Certificates are verified against the machine's authorities, or against a file (`?ca=FILE`) for devices
with a self-signed certificate. `?insecure=1` accepts any certificate and logs a warning.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl

from ocs_drivers.errors import ConnectError
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import make_connect_error, make_connection_lost, make_timeout, wait_for

logger = logging.getLogger("ocs_drivers.tls")

_CHUNK_BYTES = 1 << 16


def make_client_context(*, ca: str | None = None, insecure: bool = False) -> ssl.SSLContext:
    """Return the context with the trusted certificates. Raise `OSError` if `ca` cannot be read."""
    context = ssl.create_default_context(cafile=ca)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class TlsTransport:
    """A TLS connection over TCP; the certificate must name `host` unless `insecure`."""

    def __init__(
        self, host: str, port: int, *, device: str, ca: str | None = None, insecure: bool = False
    ) -> None:
        self._target = (host, port)
        self._device = device
        self._ca = ca
        self._insecure = insecure
        self._socket: ssl.SSLSocket | None = None
        self._buffered_data = b""

    @property
    def is_open(self) -> bool:
        """True if there is a connection that is not known to be broken."""
        return self._socket is not None

    def open(self, timeout_s: float) -> None:
        """Connect and negotiate TLS. Raise `ConnectError`, also for a certificate that is not trusted."""
        try:
            context = make_client_context(ca=self._ca, insecure=self._insecure)
            tcp_socket = socket.create_connection(self._target, timeout_s)
        except OSError as error:
            raise make_connect_error(self._device, error) from error
        tcp_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket = context.wrap_socket(tcp_socket, server_hostname=self._target[0])
        except OSError as error:
            tcp_socket.close()
            raise self._make_handshake_error(error) from error
        self._buffered_data = b""
        if self._insecure:
            logger.warning("%s: the certificate is not verified (insecure=1)", self._device)

    def _make_handshake_error(self, error: OSError) -> ConnectError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return ConnectError(
                f"the certificate is not trusted: {error.verify_message}",
                device=self._device,
                hint="Name the CA file with ?ca=FILE, or accept any certificate with ?insecure=1.",
            )
        return make_connect_error(self._device, f"no TLS: {error}")

    def close(self) -> None:
        """Close the connection. Do nothing if it is closed."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def has_input(self) -> bool:
        """Return True if data can be read at once, or the peer closed the connection.

        TLS messages without data, such as session tickets, do not count. Early data is kept for `receive`.
        """
        connection = self._require_connection()
        if self._buffered_data:
            return True
        connection.settimeout(0)
        try:
            self._buffered_data = connection.recv(_CHUNK_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            return True
        return True

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`. Raises `ConnectionLost`, `Timeout`."""
        connection = self._require_connection()
        connection.settimeout(max(deadline.remaining_s(), 0.001))
        try:
            connection.sendall(data)
        except TimeoutError:
            raise make_timeout(self._device, deadline) from None
        except OSError as error:
            raise make_connection_lost(self._device, error) from error

    def receive(self, deadline: Deadline) -> bytes:
        """Return the data that has arrived, at least one byte. Raises `ConnectionLost`, `Timeout`."""
        connection = self._require_connection()
        data, self._buffered_data = self._buffered_data, b""
        try:
            data = data or self._receive_data(connection, deadline)
        except OSError as error:
            raise make_connection_lost(self._device, error) from error
        if not data:
            raise make_connection_lost(self._device, "the device closed the connection")
        return data

    def _receive_data(self, connection: ssl.SSLSocket, deadline: Deadline) -> bytes:
        connection.settimeout(0)
        while True:
            try:
                return connection.recv(_CHUNK_BYTES)
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            if not wait_for(connection, event, deadline.remaining_s()):
                raise make_timeout(self._device, deadline)

    def _require_connection(self) -> ssl.SSLSocket:
        if self._socket is None:
            raise make_connection_lost(self._device, "it is closed")
        return self._socket
