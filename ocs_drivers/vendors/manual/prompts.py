"""Questions to the person at the panel: on the terminal, or by lines of text over TCP.

Over TCP we connect to the person, and each question and answer is one line; `nc -l PORT` is enough at the other end:

    > panel leaf1: 2 moves. Answer each question with done, or with no and the reason.
    > 1. Remove the cord from input 1 to output 26.
    < done
    > 2. Connect input 1 to output 30.
    < no output 30 is taken
    > Where does the cord in input 1 go? Answer with the output, or none.
    < none
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from ocs_drivers.errors import ConnectionLost, ProtocolDesync
from ocs_drivers.timing import Deadline
from ocs_drivers.transports import wire
from ocs_drivers.transports.transport import Transport, make_connection_lost

LONGEST_LINE_BYTES = 4096


class Operator(Protocol):
    """A person who answers one question at a time."""

    @property
    def is_connected(self) -> bool:
        """True if there is a connection."""

    def open(self, timeout_s: float) -> None:
        """Connect. Raises `ConnectError`."""

    def close(self) -> None:
        """Disconnect."""

    def show_lines(self, lines: Sequence[str], deadline: Deadline) -> None:
        """Show lines that need no answer."""

    def ask(self, question: str, deadline: Deadline) -> str:
        """Return the answer. Raises `ConnectionLost`, `Timeout`."""


class TerminalOperator:
    """The person at the terminal. Deadlines are ignored: Ctrl-C ends a wait."""

    @property
    def is_connected(self) -> bool:
        """Always True."""
        return True

    def open(self, timeout_s: float) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def show_lines(self, lines: Sequence[str], deadline: Deadline) -> None:
        """Print lines on standard error, to keep them out of a command's output."""
        del deadline
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()

    def ask(self, question: str, deadline: Deadline) -> str:
        """Print the question and read a line. Raise `ConnectionLost` at the end of standard input."""
        self.show_lines([question], deadline)
        answer = sys.stdin.readline()
        if not answer:
            raise ConnectionLost("standard input has ended, so nobody can answer at the terminal")
        return answer.strip()


class LineOperator:
    """A person at the other end of a TCP connection."""

    def __init__(self, transport: Transport, *, device: str) -> None:
        self._transport = transport
        self._device = device
        self._lines: deque[str] = deque()
        self._incomplete_line = b""

    @property
    def is_connected(self) -> bool:
        """True if there is a connection."""
        return self._transport.is_open

    def open(self, timeout_s: float) -> None:
        """Connect again, and discard earlier input."""
        self._transport.close()
        self._lines.clear()
        self._incomplete_line = b""
        self._transport.open(timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def show_lines(self, lines: Sequence[str], deadline: Deadline) -> None:
        """Send lines."""
        for line in lines:
            wire.log_sent(self._device, line)
            self._transport.send(line.encode() + b"\n", deadline)

    def ask(self, question: str, deadline: Deadline) -> str:
        """Send a question and return the answer, one line. Close the connection after any failure."""
        try:
            if self._lines or self._incomplete_line:
                raise ProtocolDesync(
                    "an answer arrived before the question", received=" | ".join(self._lines)[:200]
                )
            self.show_lines([question], deadline)
            while not self._lines:
                self._add_bytes(self._transport.receive(deadline))
            return self._lines.popleft().strip()
        except BaseException:
            self._transport.close()
            raise

    def _add_bytes(self, data: bytes) -> None:
        wire.log_received(self._device, data)
        *lines, self._incomplete_line = (self._incomplete_line + data).split(b"\n")
        if len(self._incomplete_line) > LONGEST_LINE_BYTES:
            raise make_connection_lost(self._device, f"a line has more than {LONGEST_LINE_BYTES} bytes")
        self._lines += [line.decode("utf-8", "replace") for line in lines]
