"""Bytes to a device and back over a TCP connection, with a deadline on every wait.

`Transport` is the interface between sessions (`ocs_drivers.protocols`) and the network. `SocketTransport` is a plain
socket, `visa.VisaTransport` a PyVISA resource. Both wait on the socket itself, so that they notice an answer at once
and can distinguish a closed connection from silence.
"""

from __future__ import annotations

import array
import fcntl
import math
import select
import socket
import termios
from typing import Protocol

from ocs_drivers.errors import ConnectError, ConnectionLost, Timeout
from ocs_drivers.timing import Deadline


class Transport(Protocol):
    """One connection to one device; not thread-safe: sessions hold a lock."""

    @property
    def is_open(self) -> bool:
        """True if there is a connection, as far as we know."""

    def open(self, timeout_s: float) -> None:
        """Connect. Raise `ConnectError` if this fails or takes longer than `timeout_s`."""

    def close(self) -> None:
        """Close the connection; does nothing when closed."""

    def has_input(self) -> bool:
        """Return True if input can be read at once: bytes, or the end of the connection."""

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`. Raises `ConnectionLost`, `Timeout`."""

    def receive(self, deadline: Deadline) -> bytes:
        """Return the bytes that have arrived, at least one. Raises `ConnectionLost`, `Timeout`."""


def wait_for(connection: socket.socket | int, event: int, timeout_s: float) -> bool:
    """Wait for `event` (`select.POLLIN` or `POLLOUT`), an error or a disconnect; return False after `timeout_s`."""
    poller = select.poll()
    poller.register(connection, event)
    return bool(poller.poll(math.ceil(timeout_s * 1000)))


def count_readable_bytes(connection: socket.socket) -> int:
    """Return the number of bytes that can be read; 0 on a readable socket means that the peer closed it."""
    count = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, count)
    return count[0]


def acknowledge_at_once(connection: socket.socket) -> None:
    """Make the kernel acknowledge received data at once, if it supports this. Linux resets the option after a while.

    Without TCP_NODELAY, a device delays the second piece of an answer until the first piece is acknowledged, and our
    kernel may delay that acknowledgement by 40 ms.
    """
    if hasattr(socket, "TCP_QUICKACK"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def make_connect_error(device: str, reason: object) -> ConnectError:
    """Return the error for an address that cannot be reached."""
    return ConnectError(
        f"cannot connect: {reason}",
        device=device,
        hint="Check power, network and the port of the address, and that the device has that port enabled.",
    )


def make_connection_lost(device: str, reason: object) -> ConnectionLost:
    """Return the error for a connection that was closed or broke."""
    return ConnectionLost(
        f"the connection was lost: {reason}",
        device=device,
        hint="The last command may or may not have taken effect: read the device, which also reconnects.",
    )


def make_not_open(device: str) -> ConnectionLost:
    """Return the error for the use of a session before the first `open`."""
    return ConnectionLost("not connected: `open` was never called", device=device, hint="Call `open` first.")


def make_timeout(device: str, deadline: Deadline) -> Timeout:
    """Return the error for a device that has not answered by the deadline."""
    if deadline.has_refused_read:
        return Timeout(
            f"the device sent bytes for {deadline.timeout_s:.3g} s, but no answer was among them; "
            "the connection was closed",
            device=device,
            hint="Check the port of the address: something else may send there.",
        )
    if deadline.silence_s is not None:
        return Timeout(
            f"no answer for {round(deadline.silence_s, 1):g} s; the connection was closed",
            device=device,
            hint="Look at the device, its power and its network; the next read reconnects.",
        )
    return Timeout(
        (
            f"no answer within {deadline.timeout_s:.3g} s; the connection was closed so that a late answer is not "
            "taken for the answer to a later command"
        ),
        device=device,
        hint="Raise the timeout if the device is slow; the next read reconnects.",
    )


class SocketTransport:
    """A plain TCP connection."""

    def __init__(self, host: str, port: int, *, device: str) -> None:
        self._target = (host, port)
        self._device = device
        self._socket: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        """True if there is a connection, as far as we know."""
        return self._socket is not None

    def open(self, timeout_s: float) -> None:
        """Connect, without Nagle's delay: a command and its answer are one small packet each."""
        try:
            self._socket = socket.create_connection(self._target, timeout_s)
        except OSError as error:
            raise make_connect_error(self._device, error) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the connection; does nothing when closed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def has_input(self) -> bool:
        """Return True if input can be read at once. Raise `ConnectionLost` if the transport is closed."""
        return wait_for(self._require_connection(), select.POLLIN, 0)

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
        """Return the bytes that have arrived, at least one. Raises `ConnectionLost`, `Timeout`."""
        connection = self._require_connection()
        if not wait_for(connection, select.POLLIN, deadline.remaining_s()):
            raise make_timeout(self._device, deadline)
        try:
            data = connection.recv(65536)
            acknowledge_at_once(connection)
        except OSError as error:
            raise make_connection_lost(self._device, error) from error
        if not data:
            raise make_connection_lost(self._device, "the device closed the connection")
        return data

    def _require_connection(self) -> socket.socket:
        if self._socket is None:
            raise make_connection_lost(self._device, "it is closed")
        return self._socket
