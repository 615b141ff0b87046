"""The PyVISA transport: `TCPIP::host::port::SOCKET` on the pure-Python backend (`pyvisa-py`).

pyvisa-py 0.8 has six quirks on raw sockets that would each corrupt a session. Our workarounds:

1. `read_termination` is None by default, and a query then times out although the answer arrived. We set both
   terminations, and frame replies with our own codec.
2. Opening a refused port succeeds. We read the pending error of the socket, and sessions send a query at open.
3. After the peer has closed, a read spins until the timeout and then reports a timeout. We wait on the socket
   ourselves: a readable socket without bytes is closed. We catch both VISA errors and bare `OSError`.
4. After a timeout, the next query reads the late answer. Sessions close the connection on any failure.
5. VISA locks do not exclude other clients. We use `device_lock`.
6. A thread may read the answer of another thread. Sessions hold a lock over each exchange.

A read asks for exactly the bytes that have arrived, so it never waits inside pyvisa-py. This also avoids the
back-off of its `select`, which delays an answer in two pieces by up to 0.12 s, and its timeouts, which use the wall
clock.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from functools import cache
from typing import TYPE_CHECKING, Any

from lightbed.wording import describe_extra
from ocs_drivers.errors import Unsupported
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import (
    acknowledge_at_once,
    count_readable_bytes,
    make_connect_error,
    make_connection_lost,
    make_timeout,
    wait_for,
)

if TYPE_CHECKING:
    from pyvisa.resources import MessageBasedResource

_CHUNK_BYTES = 4096
"""Chunk size of pyvisa-py, which checks for room in the send buffer only before each chunk. A longer read may buffer
extra bytes, and a wait on the socket does not notice those."""


def _make_resource_manager() -> Any:
    """Return a manager of the pure-Python backend. It is not cached, because other code may close it."""
    try:
        import pyvisa
    except ImportError as error:
        raise Unsupported("PyVISA is not installed", hint=f"To use it, {describe_extra('visa')}.") from error
    return pyvisa.ResourceManager("@py")


class VisaTransport:
    """A raw TCP connection of a PyVISA resource; IPv4 only, as in pyvisa-py."""

    def __init__(self, host: str, port: int, *, device: str) -> None:
        self._resource_name = f"TCPIP::{host}::{port}::SOCKET"
        self._device = device
        self._resource: MessageBasedResource | None = None
        self._socket: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        """True if there is a connection that is not known to be broken."""
        return self._socket is not None

    def open(self, timeout_s: float) -> None:
        """Open the VISA resource and check its TCP connection. Raise `ConnectError` if there is none."""
        manager = _make_resource_manager()
        timeout_ms = max(1, round(timeout_s * 1000))
        try:
            resource = manager.open_resource(
                self._resource_name,
                open_timeout=timeout_ms,
                timeout=timeout_ms,
                read_termination="\n",
                write_termination="\n",
            )
        except Exception as error:  # pyvisa-py raises a bare Exception here
            raise make_connect_error(self._device, error) from error
        self._use_resource(resource, timeout_s)

    def _use_resource(self, resource: MessageBasedResource, timeout_s: float) -> None:
        connection: socket.socket = resource.visalib.sessions[resource.session].interface
        error_number = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error_number:
            resource.close()
            raise make_connect_error(self._device, os.strerror(error_number))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(timeout_s)
        self._resource, self._socket = resource, connection

    def close(self) -> None:
        """Close the connection. Do nothing if it is closed."""
        resource, self._resource, self._socket = self._resource, None, None
        if resource is not None:
            with contextlib.suppress(_get_visa_error(), OSError):
                resource.close()

    def has_input(self) -> bool:
        """Return True if input can be read at once. Raise `ConnectionLost` if the transport is closed."""
        _, connection = self._require_resource()
        return wait_for(connection, select.POLLIN, 0)

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`. Raises `ConnectionLost`, `Timeout`. Each chunk waits for room in the send buffer."""
        resource, connection = self._require_resource()
        for start in range(0, len(data), _CHUNK_BYTES):
            if not wait_for(connection, select.POLLOUT, deadline.remaining_s()):
                raise make_timeout(self._device, deadline)
            try:
                resource.write_raw(data[start : start + _CHUNK_BYTES])
            except (_get_visa_error(), OSError) as error:
                raise make_connection_lost(self._device, error) from error

    def receive(self, deadline: Deadline) -> bytes:
        """Return the bytes that have arrived, at least one. Raises `ConnectionLost`, `Timeout`."""
        resource, connection = self._require_resource()
        if not wait_for(connection, select.POLLIN, deadline.remaining_s()):
            raise make_timeout(self._device, deadline)
        try:
            count = min(count_readable_bytes(connection), _CHUNK_BYTES)
            data = resource.read_bytes(count) if count else b""
            acknowledge_at_once(connection)
        except (_get_visa_error(), OSError) as error:
            raise make_connection_lost(self._device, error) from error
        if not data:
            raise make_connection_lost(self._device, "the device closed the connection")
        return data

    def _require_resource(self) -> tuple[MessageBasedResource, socket.socket]:
        if self._resource is None or self._socket is None:
            raise make_connection_lost(self._device, "it is closed")
        return self._resource, self._socket


@cache
def _get_visa_error() -> type[Exception]:
    import pyvisa

    error: type[Exception] = pyvisa.Error
    return error
