"""Codec of those parts of SCPI that all instruments share, without any I/O.

`ReplyReader` decodes chunks of bytes of any size to replies; the `decode_*` functions decode replies to values.
Invalid replies raise `ProtocolDesync`. Set commands have no reply: a refusal appears only in the device's error queue
(`ERROR_QUERY`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import Identity

IDENTITY_QUERY = "*IDN?"
CLEAR_COMMAND = "*CLS"
COMPLETION_QUERY = "*OPC?"
ERROR_QUERY = ":syst:err?"

LONGEST_LINE_BYTES = 1 << 20
"""Maximum length of a reply, in bytes; far above the replies of the largest switch."""


@dataclass(frozen=True, slots=True)
class QueuedError:
    """One entry of the device's error queue; number 0 means that the queue is empty."""

    number: int
    text: str


class ReplyReader:
    """Incremental decoder of bytes to replies.

    A line ends with LF, CR or CRLF, and holds one reply or several joined by `;` (outside quotes and
    parentheses). Raises `ProtocolDesync` on bytes that are not printable ASCII and on lines that are too long. Every
    later call raises it again, because nothing on this connection can be trusted any more.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._first_error: ProtocolDesync | None = None

    def feed(self, data: bytes) -> list[str]:
        """Return the replies completed by these bytes, in order."""
        if self._first_error is not None:
            raise self._first_error
        try:
            return self._feed(data)
        except ProtocolDesync as error:
            self._first_error = error
            raise

    def _feed(self, data: bytes) -> list[str]:
        self._line += data
        *complete, incomplete = re.split(rb"[\r\n]", self._line)
        self._line = bytearray(incomplete)
        if len(incomplete) > LONGEST_LINE_BYTES:
            raise _make_desync("a reply without end", bytes(incomplete[:40]).decode("ascii", "replace"))
        return [
            reply for line in complete if line.strip() for reply in split_replies(_decode_printable(line))
        ]


def _decode_printable(line: bytes) -> str:
    text = bytes(line).decode("ascii", "backslashreplace")
    if not (line.isascii() and text.replace("\t", " ").isprintable()):
        raise _make_desync("bytes that are not text", text)
    return text.strip()


_REPLY = re.compile(r'(?:"(?:[^"]|"")*"|\([^()]*\)|[^;"()])*')


def split_replies(line: str) -> tuple[str, ...]:
    """Return the replies on one line, which the device joins for chained queries.

    >>> split_replies('(@1),(@17);0, "No error; really"')
    ('(@1),(@17)', '0, "No error; really"')
    """
    replies: list[str] = []
    position = 0
    while position <= len(line):
        match = _REPLY.match(line, position)
        assert match is not None  # the pattern matches the empty string
        replies.append(match.group().strip())
        if match.end() < len(line) and line[match.end()] != ";":
            raise _make_desync("unbalanced quotes or parentheses", line)
        position = match.end() + 1
    return tuple(replies)


_ERROR = re.compile(r'([+-]?\d{1,9})\s*,\s*"(.*)"')


def decode_identity(reply: str) -> Identity:
    """Decode vendor, product code, serial number and firmware.

    >>> decode_identity("Polatis,I-OST-24x24-LU1-DMHNS,002414,6.5.2.18").serial
    '002414'
    """
    fields = [field.strip() for field in reply.split(",")]
    if len(fields) != 4 or not fields[0] or not fields[1]:
        raise _make_desync("not an identity of four fields (vendor,model,serial number,firmware)", reply)
    return Identity(*fields)


def is_queued_error(reply: str) -> bool:
    """Return True if a reply has the form of an entry of the error queue."""
    return _ERROR.fullmatch(reply) is not None


def decode_error(reply: str) -> QueuedError:
    """Decode an entry of the error queue.

    >>> decode_error('-113,"Undefined header"'), decode_error('0, "No error"').number
    (QueuedError(number=-113, text='Undefined header'), 0)
    """
    match = _ERROR.fullmatch(reply)
    if match is None:
        raise _make_desync('not an entry of the error queue like 0,"No error"', reply)
    return QueuedError(int(match[1]), match[2])


def check_completion(reply: str) -> None:
    """Check the answer to `COMPLETION_QUERY`: exactly `1`."""
    if reply != "1":
        raise _make_desync("not 1, which means complete", reply)


def _make_desync(problem: str, received: str) -> ProtocolDesync:
    return ProtocolDesync(
        f"the reply is not SCPI: {problem}",
        received=received[:200],
        hint="Check that the address is the device's SCPI port and that nobody shares this connection.",
    )
