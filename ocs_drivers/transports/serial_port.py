"""Bytes over a serial line, 8N1 without flow control, with a deadline on every wait (pyserial, extra `visa`).

pyserial opens the line, makes it raw and takes an exclusive lock; we wait on the file descriptor ourselves, so
that an answer is seen the moment it arrives and an unplugged adapter is distinguished from silence.
"""

from __future__ import annotations

import contextlib
import os
import select
from typing import Any

from lightbed.wording import describe_extra
from ocs_drivers.errors import Unsupported
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import make_connect_error, make_connection_lost, make_timeout, wait_for


class SerialTransport:
    """One serial line at `path`, such as `/dev/ttyUSB0`, locked against other programs that lock it.

    A serial line has no connection: `open` succeeds if the adapter is present, even without a device, and discards
    earlier input.
    """

    def __init__(self, path: str, *, baud: int, device: str) -> None:
        self._path = path
        self._baud = baud
        self._device = device
        self._port: Any = None

    @property
    def is_open(self) -> bool:
        """True if the line is open and not known to be broken."""
        return self._port is not None

    def open(self, timeout_s: float) -> None:
        """Open and lock the line. Raise `ConnectError` if it does not exist or another program has locked it."""
        del timeout_s  # opening never waits
        serial = _import_pyserial()
        self.close()
        try:
            self._port = serial.Serial(self._path, self._baud, timeout=0, exclusive=True)
            self._port.reset_input_buffer()
        except (OSError, ValueError) as error:
            self.close()
            raise make_connect_error(self._device, error) from error

    def close(self) -> None:
        """Release the line. Do nothing if it is closed."""
        port, self._port = self._port, None
        if port is not None:
            with contextlib.suppress(OSError):
                port.close()

    def has_input(self) -> bool:
        """Return True if a byte can be read at once, or the line has disappeared."""
        return wait_for(self._require_port().fileno(), select.POLLIN, 0)

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`. Raises `ConnectionLost`, `Timeout`."""
        descriptor = self._require_port().fileno()
        unsent = memoryview(data)
        while unsent:
            if not wait_for(descriptor, select.POLLOUT, deadline.remaining_s()):
                raise make_timeout(self._device, deadline)
            try:
                unsent = unsent[os.write(descriptor, unsent) :]
            except BlockingIOError:
                continue  # the buffer had less room than reported
            except OSError as error:
                raise make_connection_lost(self._device, error) from error

    def receive(self, deadline: Deadline) -> bytes:
        """Return the bytes that have arrived, at least one. Raises `ConnectionLost`, `Timeout`."""
        port = self._require_port()
        if not wait_for(port.fileno(), select.POLLIN, deadline.remaining_s()):
            raise make_timeout(self._device, deadline)
        try:
            data: bytes = port.read(max(1, port.in_waiting))
        except OSError as error:  # includes pyserial's SerialException
            raise make_connection_lost(self._device, error) from error
        if not data:
            raise make_connection_lost(self._device, "the serial line has disappeared")
        return data

    def _require_port(self) -> Any:
        if self._port is None:
            raise make_connection_lost(self._device, "it is closed")
        return self._port


def _import_pyserial() -> Any:
    try:
        import serial
    except ImportError as error:
        raise Unsupported(
            "pyserial is not installed", hint=f"To use it, {describe_extra('visa')}."
        ) from error
    return serial
