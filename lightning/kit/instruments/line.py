"""Lines of text to and from an instrument over PyVISA, with a deadline for every wait; the errors of instruments.

On raw sockets (`TCPIP::host::port::SOCKET`) the pure-Python backend has defaults that would corrupt a session. A
refused connection opens without an error, a read spins until its timeout after the other end has closed, and a late
reply is returned for the next query. `SocketLine` therefore waits on the socket itself, reads only bytes that have
arrived, and splits the lines. On other buses (USB, GPIB, VXI-11) the bus frames the messages, so any installed VISA
will do.

    DeviceError
    └── InstrumentError
        ├── InstrumentGone     no instrument at the address, or the connection broke
        ├── InstrumentSilent   no reply to a query in time
        ├── UnreadableReply    the reply does not fit the query
        ├── InstrumentRefused  the instrument reports an error in its queue
        ├── WrongInstrument    another instrument is at the address
        └── SettingMismatch    a setting reads back another value, or did not settle

The first three errors close the connection, which drops a late reply. The next use connects again.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import time
from typing import Any, Protocol

from lightbed.wording import describe_extra
from lightning.errors import AddressError, DeviceError, MissingLibrary

_CHUNK_BYTES = 4096
_LONGEST_REPLY_BYTES = 1 << 16
_MISSING_MODULE = re.compile(r"Please install .*\n*No module named '(\w+)'")
"""Message of pyvisa-py's ValueError for a bus whose library is missing."""
_LIBRARIES = {"usb": "pyusb", "gpib": "gpib-ctypes", "serial": "pyserial"}
"""Module to the package that provides it."""
_LINE_ENDS = re.compile(rb"[\r\n]+")


class InstrumentError(DeviceError, code="instrument"):
    """An error of a laboratory instrument."""


class InstrumentGone(InstrumentError, ConnectionError, code="instrument.gone"):
    """No instrument answers at the address, or the connection broke."""


class InstrumentSilent(InstrumentError, TimeoutError, code="instrument.silent"):
    """The instrument did not reply in time."""


class UnreadableReply(InstrumentError, code="instrument.unreadable-reply"):
    """The reply does not fit the query."""


class InstrumentRefused(InstrumentError, code="instrument.refused"):
    """The instrument reports an error in its queue."""


class WrongInstrument(InstrumentError, code="instrument.wrong"):
    """Another instrument answers at the address."""


class SettingMismatch(InstrumentError, code="instrument.not-as-set"):
    """A setting reads back another value, or did not settle."""


class Line(Protocol):
    """An open connection to one instrument."""

    def write(self, text: str) -> None:
        """Send one line. Raise `InstrumentGone` or `InstrumentSilent`."""
        ...

    def query(self, text: str) -> str:
        """Send one line and return the reply. Raise the errors of `write`, and `UnreadableReply`."""
        ...

    def close(self) -> None:
        """Disconnect. Does nothing if already closed."""
        ...


def open_line(resource: str, timeout_s: float, *, terminator: str = "\n") -> Line:
    """Connect to a VISA resource. Sent lines end with `terminator`, replies with CR, LF or both.

    Raise `InstrumentGone` if there is no connection, `AddressError` for an invalid resource, and `MissingLibrary`
    without PyVISA or its library for the bus.
    """
    is_socket = resource.upper().endswith("::SOCKET")
    visa = _open_resource(resource, timeout_s, backend="@py" if is_socket else "")
    if is_socket:
        return SocketLine(visa, resource, timeout_s, terminator)
    return MessageLine(visa, resource, timeout_s, terminator)


def _open_resource(resource: str, timeout_s: float, *, backend: str) -> Any:
    timeout_ms = max(1, round(timeout_s * 1000))
    try:
        return _open_manager(backend).open_resource(resource, open_timeout=timeout_ms, timeout=timeout_ms)
    except MissingLibrary:
        raise
    except Exception as error:  # pyvisa-py raises a bare Exception here
        raise _make_open_error(resource, error) from error


def _make_open_error(resource: str, error: Exception) -> Exception:
    """Return `AddressError`, `MissingLibrary` or `InstrumentGone` for a resource that PyVISA could not open."""
    import pyvisa

    if getattr(error, "error_code", None) == pyvisa.constants.StatusCode.error_invalid_resource_name:
        return AddressError(
            f"{resource!r} is not a VISA resource",
            hint="Write one as TCPIP::192.0.2.7::5025::SOCKET or USB0::0x1313::0x8078::P0001::INSTR",
        )
    if missing_module := _MISSING_MODULE.search(str(error)):
        library = _LIBRARIES.get(missing_module[1], missing_module[1])
        return MissingLibrary(
            f"{library} is needed to reach {resource}, and is not installed",
            hint=f"Run: pip install {library}",
        )
    return _make_gone_error(resource, error)


def _open_manager(backend: str) -> Any:
    try:
        import pyvisa
    except ImportError as error:
        raise MissingLibrary(
            "laboratory instruments are reached through PyVISA, which is not installed",
            hint=f"To use it, {describe_extra('kit')}.",
        ) from error
    try:
        return pyvisa.ResourceManager(backend)
    except (OSError, ValueError):  # without a vendor's library, use the pure-Python backend
        return pyvisa.ResourceManager("@py")


class SocketLine:
    """Lines over a raw TCP connection that PyVISA holds."""

    def __init__(self, visa: Any, resource: str, timeout_s: float, terminator: str) -> None:
        self._visa = visa
        self._resource = resource
        self._timeout_s = timeout_s
        self._terminator = terminator.encode()
        self._receive_buffer = b""
        self._socket: socket.socket = visa.visalib.sessions[visa.session].interface
        error_number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error_number:
            self.close()
            raise _make_gone_error(resource, os.strerror(error_number))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, text: str) -> None:
        """Send one line."""
        data = text.encode("ascii") + self._terminator
        if not self._wait(select.POLLOUT, self._timeout_s):
            raise _make_silent_error(self._resource, text, self._timeout_s)
        try:
            self._visa.write_raw(data)
        except (_load_visa_error(), OSError) as error:
            raise _make_gone_error(self._resource, error) from error

    def query(self, text: str) -> str:
        """Send one line and return the reply."""
        deadline_s = time.monotonic() + self._timeout_s
        # Bytes that arrived before the query would look like its reply.
        while self._wait(select.POLLIN, 0.0):
            self._receive_buffer += self._receive()
        if self._receive_buffer.strip():
            raise _make_unreadable_error(self._resource, self._receive_buffer)
        self._receive_buffer = b""
        self.write(text)
        while True:
            line, is_complete = self._split_line()
            if is_complete:
                return line
            if not self._wait(select.POLLIN, deadline_s - time.monotonic()):
                raise _make_silent_error(self._resource, text, self._timeout_s)
            self._receive_buffer += self._receive()
            if len(self._receive_buffer) > _LONGEST_REPLY_BYTES:
                raise _make_unreadable_error(self._resource, self._receive_buffer[:40])

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(_load_visa_error(), OSError):
            self._visa.close()

    def _split_line(self) -> tuple[str, bool]:
        """Remove the first complete line from the received bytes; return (line, True), or ("", False) without one."""
        self._receive_buffer = self._receive_buffer.lstrip(b"\r\n")
        match = _LINE_ENDS.search(self._receive_buffer)
        if match is None:
            return "", False
        line, self._receive_buffer = (
            self._receive_buffer[: match.start()],
            self._receive_buffer[match.end() :],
        )
        try:
            return line.decode("ascii").strip(), True
        except UnicodeDecodeError:
            raise _make_unreadable_error(self._resource, line) from None

    def _receive(self) -> bytes:
        """Return only bytes that have arrived, so that PyVISA never waits. Raise `InstrumentGone` if it was closed."""
        try:
            count = len(self._socket.recv(_CHUNK_BYTES, socket.MSG_PEEK))
            data: bytes = self._visa.read_bytes(count) if count else b""
        except (_load_visa_error(), OSError) as error:
            raise _make_gone_error(self._resource, error) from error
        if not data:
            raise _make_gone_error(self._resource, "the instrument closed the connection")
        return data

    def _wait(self, event: int, timeout_s: float) -> bool:
        poller = select.poll()
        poller.register(self._socket, event)
        return bool(poller.poll(max(0.0, timeout_s) * 1000))


class MessageLine:
    """Lines over a bus that frames messages."""

    def __init__(self, visa: Any, resource: str, timeout_s: float, terminator: str) -> None:
        self._visa = visa
        self._resource = resource
        self._timeout_s = timeout_s
        visa.write_termination = terminator

    def write(self, text: str) -> None:
        """Send one line."""
        self._exchange(self._visa.write, text)

    def query(self, text: str) -> str:
        """Send one line and return the reply."""
        return str(self._exchange(self._visa.query, text)).strip()

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(_load_visa_error(), OSError):
            self._visa.close()

    def _exchange(self, method: Any, text: str) -> Any:
        import pyvisa

        try:
            return method(text)
        except pyvisa.errors.VisaIOError as error:
            if error.error_code == pyvisa.constants.StatusCode.error_timeout:
                raise _make_silent_error(self._resource, text, self._timeout_s) from error
            raise _make_gone_error(self._resource, error) from error
        except UnicodeDecodeError as error:
            raise _make_unreadable_error(self._resource, error.object) from error
        except OSError as error:
            raise _make_gone_error(self._resource, error) from error


def _load_visa_error() -> type[Exception]:
    import pyvisa

    error: type[Exception] = pyvisa.Error
    return error


def _make_gone_error(resource: str, reason: object) -> InstrumentGone:
    return InstrumentGone(
        f"no connection: {reason}",
        device=resource,
        hint="Check power, network and address, and that no other program holds the instrument; then try again",
    )


def _make_silent_error(resource: str, text: str, timeout_s: float) -> InstrumentSilent:
    return InstrumentSilent(
        f"no answer to {text!r} within {timeout_s:g} s; the connection was closed",
        device=resource,
        hint="Raise the timeout if the instrument is slow; the next use connects again",
    )


def _make_unreadable_error(resource: str, data: bytes) -> UnreadableReply:
    return UnreadableReply(
        f"unreadable or unsolicited bytes {data[:40]!r}; the connection was closed",
        device=resource,
        hint="Check whether another program uses the instrument; the next use connects again",
    )
