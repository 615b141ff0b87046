"""Telnet (RFC 854) over another transport: it answers option requests and passes on the data.

We accept ECHO and SUPPRESS GO AHEAD, as every interactive client does, and refuse all other options.
Sub-negotiations are skipped.
"""

from __future__ import annotations

from enum import Enum, auto

from ocs_drivers.errors import ConnectionLost, ProtocolDesync
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import Transport, make_timeout

IAC, DONT, DO, WONT, WILL, SB, SE = 255, 254, 253, 252, 251, 250, 240
ECHO, SUPPRESS_GO_AHEAD = 1, 3

LONGEST_NEGOTIATION_BYTES = 4096
LONGEST_NEGOTIATION_S = 1.0


class _Context(Enum):
    DATA = auto()
    COMMAND = auto()  # after IAC
    OPTION = auto()  # after IAC and DO, DONT, WILL or WONT
    NEGOTIATION = auto()  # after IAC SB, up to IAC SE
    NEGOTIATION_COMMAND = auto()


class Negotiator:
    r"""Incremental parser that separates data from telnet commands, and answers the commands.

    >>> Negotiator().feed(bytes([IAC, WILL, ECHO]) + b"login: ")
    (b'login: ', b'\xff\xfd\x01')
    """

    def __init__(self) -> None:
        self._context = _Context.DATA
        self._request = 0
        self._skipped_byte_count = 0
        self._enabled_options: set[int] = set()  # options of the device that we accepted

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the data, and the answer to send. Raise `ProtocolDesync` for a negotiation that is too long."""
        if self._context is _Context.DATA and IAC not in data:
            return data, b""
        text, answer = bytearray(), bytearray()
        for byte in data:
            self._process(byte, text, answer)
        return bytes(text), bytes(answer)

    def _process(self, byte: int, text: bytearray, answer: bytearray) -> None:
        if self._context is _Context.DATA:
            if byte == IAC:
                self._context = _Context.COMMAND
            else:
                text.append(byte)
        elif self._context is _Context.COMMAND:
            self._process_command(byte, text)
        elif self._context is _Context.OPTION:
            self._context = _Context.DATA
            answer += self._answer(byte)
        else:
            self._skip_negotiation(byte)

    def _process_command(self, byte: int, text: bytearray) -> None:
        if byte in {DO, DONT, WILL, WONT}:
            self._request, self._context = byte, _Context.OPTION
        elif byte == SB:
            self._skipped_byte_count, self._context = 0, _Context.NEGOTIATION
        else:  # IAC IAC is a byte of data; every other command is ignored
            if byte == IAC:
                text.append(byte)
            self._context = _Context.DATA

    def _answer(self, option: int) -> bytes:
        if self._request == DO:
            return bytes([IAC, WONT, option])
        if self._request == WILL and option not in self._enabled_options:
            if option not in {ECHO, SUPPRESS_GO_AHEAD}:
                return bytes([IAC, DONT, option])
            self._enabled_options.add(option)
            return bytes([IAC, DO, option])
        if self._request == WONT and option in self._enabled_options:
            self._enabled_options.discard(option)
            return bytes([IAC, DONT, option])
        return b""  # a request that changes nothing must not be answered (RFC 854)

    def _skip_negotiation(self, byte: int) -> None:
        self._skipped_byte_count += 1
        if self._skipped_byte_count > LONGEST_NEGOTIATION_BYTES:
            raise ProtocolDesync(
                "the device sent a telnet negotiation without end", hint="Check that the port speaks telnet."
            )
        if self._context is _Context.NEGOTIATION_COMMAND:
            self._context = _Context.DATA if byte == SE else _Context.NEGOTIATION
        elif byte == IAC:
            self._context = _Context.NEGOTIATION_COMMAND


class TelnetTransport:
    """A telnet connection on any transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._negotiator = Negotiator()
        self._text = b""

    @property
    def is_open(self) -> bool:
        """True if there is a connection that is not known to be broken."""
        return self._transport.is_open

    def open(self, timeout_s: float) -> None:
        """Connect."""
        self._negotiator = Negotiator()
        self._text = b""
        self._transport.open(timeout_s)

    def close(self) -> None:
        """Close the connection. Do nothing if it is closed."""
        self._transport.close()

    def has_input(self) -> bool:
        """Return True if `receive` would not wait; answer pending negotiations."""
        deadline = Deadline(LONGEST_NEGOTIATION_S)
        try:
            while not self._text and self._transport.has_input() and not deadline.is_over:
                self._process(Deadline(0))
        except ConnectionLost:
            return True  # the next `receive` raises it
        return bool(self._text)

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`, with each byte 255 doubled."""
        self._transport.send(data.replace(b"\xff", b"\xff\xff"), deadline)

    def receive(self, deadline: Deadline) -> bytes:
        """Return the data that has arrived, at least one byte. Raises `ConnectionLost`, `Timeout`, `ProtocolDesync`."""
        is_late = False
        while not self._text:
            if is_late:  # negotiations without end
                raise make_timeout("", deadline)
            is_late = deadline.is_over
            self._process(deadline)
        text, self._text = self._text, b""
        return text

    def _process(self, deadline: Deadline) -> None:
        text, answer = self._negotiator.feed(self._transport.receive(deadline))
        self._text += text
        if answer:
            self._transport.send(answer, deadline)
