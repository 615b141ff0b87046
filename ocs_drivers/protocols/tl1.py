"""Codec of TL1, the telecommunications language of optical switches, without any I/O.

`Command` is an input message. `Decoder` decodes chunks of bytes of any size to events: `Reply` answers the command
with the same correlation tag, `AutonomousMessage` is an unsolicited message, `Acknowledgement` confirms that the device
received a command. Prompts (`<`, `agent>`) are skipped. A `;` inside quotes or a comment does not end a block. Bytes
that are not TL1 raise `ProtocolDesync`.

A reply on the wire. Each line ends with CRLF; the decoder accepts CR and LF too:

       NAME 26-01-31 12:00:00
    M  123 COMPLD
       "1,17"
       /* a comment */
    ;
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, cast

from ocs_drivers.errors import ProtocolDesync

Completion = Literal["COMPLD", "DENY", "PRTL", "DELAY", "RTRV"]

LONGEST_BLOCK_BYTES = 1 << 20
"""Maximum length of a block, in bytes; far above the blocks of the largest switch."""

LONGEST_LINE_BYTES = 1 << 14
"""Maximum length of a line of a block."""

_RESERVED = re.compile(r'[;:"\r\n\\]|/\*|[^\x20-\x7e]')


@dataclass(frozen=True, slots=True)
class Command:
    """One input message: `VERB:tid:aid:ctag:general:positional:keywords;`.

    A non-empty `tid` is quoted; `is_short` omits the colon after a final tag. Raises `ValueError` if a field contains
    a character that would end it, so that no value can inject a command.

    >>> Command("RTRV-PATCH", tag=5).text
    'RTRV-PATCH:::5:;'
    >>> Command("ENT-PATCH", tag=1, aid="1&2,17&18", tid="OCS1").text
    'ENT-PATCH:"OCS1":1&2,17&18:1:;'
    >>> Command("dlt-crs-fiber", tag=5, aid="10001", is_short=True).text
    'dlt-crs-fiber::10001:5;'
    >>> Command("RTRV-EQPT", tag=1, aid="SYSTEM", keyword_block="PARAMETER=SIZE").text
    'RTRV-EQPT::SYSTEM:1:::PARAMETER=SIZE;'
    """

    verb: str
    tag: int
    aid: str = ""
    tid: str = ""
    positional_block: str = ""
    keyword_block: str = ""
    is_short: bool = False

    def __post_init__(self) -> None:
        for value in (self.verb, self.aid, self.tid, self.positional_block, self.keyword_block):
            reserved = _RESERVED.search(value)
            if reserved:
                raise ValueError(f"{reserved.group()!r} cannot be sent inside a TL1 field")

    @property
    def text(self) -> str:
        """The message without its line end."""
        tid = f'"{self.tid}"' if self.tid else ""
        tail = f"::{self.positional_block}" if self.positional_block else "" if self.is_short else ":"
        if self.keyword_block:
            tail = f"::{self.positional_block}:{self.keyword_block}"
        return f"{self.verb}:{tid}:{self.aid}:{self.tag}{tail};"


def format_port_list(ports: Iterable[int]) -> str:
    """Format ports as a TL1 list.

    >>> format_port_list([1, 4, 10])
    '1&4&10'
    """
    return "&".join(map(str, ports))


def ignore(lines: tuple[str, ...]) -> None:
    """Decode the reply of a command without a result: ignore its lines."""
    del lines


def format_port_range(first: int, last: int) -> str:
    """Format ports as a TL1 range.

    >>> format_port_range(1, 32)
    '1&&32'
    """
    return f"{first}&&{last}"


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the command with tag `tag`, or a part of the answer if `has_more` is True.

    `lines` are the text lines; a line that is one quoted string is stored without its quotes. `code` is the
    four-letter error code of a denial.
    """

    tag: str
    completion: Completion
    code: str = ""
    lines: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class AutonomousMessage:
    """An unsolicited message with an alarm code (`A`, `*`, `**`, `*C`), its own tag and a verb (`REPT DBCHG`)."""

    alarm_code: str
    tag: str
    verb: str
    lines: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Confirmation of a command: in progress (IP), printout follows (PF), accepted (OK) or refused (NA, NG, RL)."""

    code: Literal["IP", "PF", "OK", "NA", "NG", "RL"]
    tag: str


Tl1Event = Reply | AutonomousMessage | Acknowledgement

_DATE_AND_TIME = re.compile(r"\d{2,4}-\d\d-\d\d \d\d:\d\d:\d\d")
_RESPONSE = re.compile(r"M\s+(?P<tag>\S+)\s+(?P<completion>COMPLD|DENY|PRTL|DELAY|RTRV)\s*")
_REPORT = re.compile(r"(?P<alarm>\*C|\*\*|\*|A)\s+(?P<tag>\d+(?:\.\d+)?)\s+(?P<verb>[A-Z]\S*(?:\s+\S+)*)\s*")
_ACKNOWLEDGEMENT = re.compile(r"\s*(?P<code>IP|PF|OK|NA|NG|RL)\s+(?P<tag>\S+)\s*")
_PROMPT = re.compile(r"\s*[\w@.-]*")
_CODE = re.compile(r"[A-Z]{4}")
# An unclosed quotation extends to the end of the line.
_QUOTED_OR_COMMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|/\*(.*?)\*/|".*', re.DOTALL)


class _BlockPart(Enum):
    """Next part of a block."""

    HEADER = auto()
    IDENTIFICATION = auto()
    TEXT = auto()


class _Context(Enum):
    """Position in a line: a `;` ends a block only outside of quotes and comments."""

    PLAIN_TEXT = auto()
    QUOTES = auto()
    ESCAPE = auto()
    COMMENT = auto()


_PLAIN_RUN_BY_CONTEXT = {
    _Context.PLAIN_TEXT: re.compile(r'[^\r\n;<>"/*]+'),
    _Context.QUOTES: re.compile(r'[^\r\n"\\]+'),
    _Context.ESCAPE: re.compile(r"(?!)"),
    _Context.COMMENT: re.compile(r"[^*/]+"),
}


class Decoder:
    """Incremental decoder of bytes to events.

    After a `ProtocolDesync` every later call raises it again: nothing on this connection can be trusted any more.
    """

    def __init__(self) -> None:
        self._events: list[Tl1Event] = []
        self._first_error: ProtocolDesync | None = None
        self._start_block()

    def feed(self, data: bytes) -> list[Tl1Event]:
        """Return the events completed by these bytes, in order."""
        if self._first_error is not None:
            raise self._first_error
        try:
            self._decode_text(data.decode("latin-1"))
        except ProtocolDesync as error:
            self._first_error = error
            raise
        messages, self._events = self._events, []
        return messages

    def _start_block(self) -> None:
        self._part = _BlockPart.HEADER
        self._context = _Context.PLAIN_TEXT
        self._line = ""
        self._comment_start = 0
        self._identification: re.Match[str] | None = None
        self._text: list[str] = []
        self._size_bytes = 0

    def _decode_text(self, text: str) -> None:
        """Decode runs of ordinary characters at once, and special characters one by one."""
        position = 0
        while position < len(text):
            run = _PLAIN_RUN_BY_CONTEXT[self._context].match(text, position)
            piece = run[0] if run else text[position]
            position += len(piece)
            self._size_bytes += len(piece)
            if self._size_bytes > LONGEST_BLOCK_BYTES:
                raise _make_desync("a block without end", self._line)
            if len(self._line) + len(piece) > LONGEST_LINE_BYTES:
                raise _make_desync("a line without end", self._line)
            if run:
                self._line += piece
            else:
                self._decode_character(piece)

    def _decode_character(self, character: str) -> None:
        if self._context is _Context.COMMENT:
            self._line += character
            if self._line.endswith("*/", self._comment_start):
                self._context = _Context.PLAIN_TEXT
        elif character in "\r\n":
            self._end_line()
        elif self._context is _Context.PLAIN_TEXT:
            self._decode_plain_character(character)
        else:
            self._decode_quoted_character(character)

    def _decode_quoted_character(self, character: str) -> None:
        self._line += character
        if self._context is _Context.ESCAPE:
            self._context = _Context.QUOTES
        elif character == "\\":
            self._context = _Context.ESCAPE
        else:  # the closing quote: `_decode_text` consumes all other characters in runs
            self._context = _Context.PLAIN_TEXT

    def _decode_plain_character(self, character: str) -> None:
        if character == ";":
            self._end_block(has_more=False)
        elif character == ">" and self._part is _BlockPart.TEXT and (not self._line or self._line.isspace()):
            self._end_block(has_more=True)
        elif character in "<>" and self._part is _BlockPart.HEADER:
            self._end_prompt(character)
        else:
            self._line += character
            if character == '"':
                self._context = _Context.QUOTES
            elif self._line.endswith("/*"):
                self._context = _Context.COMMENT
                self._comment_start = len(self._line)

    def _end_prompt(self, character: str) -> None:
        if character == ">" and _PROMPT.fullmatch(self._line):
            self._line = ""
        else:
            self._end_line()

    def _end_line(self) -> None:
        line, self._line = self._line, ""
        self._context = _Context.PLAIN_TEXT  # a quoted string does not cross a line end
        if not line.strip():
            return
        if self._part is _BlockPart.HEADER:
            self._decode_header(line)
        elif self._part is _BlockPart.IDENTIFICATION:
            self._identification = _RESPONSE.fullmatch(line) or _REPORT.fullmatch(line)
            if self._identification is None:
                raise _make_desync("neither a response nor a report", line)
            self._part = _BlockPart.TEXT
        else:
            self._text.append(line)

    def _decode_header(self, line: str) -> None:
        acknowledgement = _ACKNOWLEDGEMENT.fullmatch(line)
        if acknowledgement:
            code = cast('Literal["IP", "PF", "OK", "NA", "NG", "RL"]', acknowledgement["code"])
            self._events.append(Acknowledgement(code, acknowledgement["tag"]))
            self._start_block()
        elif _is_header(line):
            self._part = _BlockPart.IDENTIFICATION
        else:
            raise _make_desync("not a header with name, date and time", line)

    def _end_block(self, *, has_more: bool) -> None:
        self._end_line()
        if self._part is _BlockPart.HEADER:  # a stray terminator, as some devices send after a prompt
            self._start_block()
            return
        if self._identification is None:
            raise _make_desync("a block ended after its header", "")
        self._events.append(_make_event(self._identification, self._text, has_more=has_more))
        self._start_block()


def _is_header(line: str) -> bool:
    """Return True if a line consists of a name of one or more words, a date and a time."""
    parts = line.split()
    return len(parts) >= 3 and _DATE_AND_TIME.fullmatch(" ".join(parts[-2:])) is not None


def _make_event(identification: re.Match[str], text_lines: list[str], *, has_more: bool) -> Tl1Event:
    lines, comments = _split_text(text_lines)
    if identification.re is _REPORT:
        verb = " ".join(identification["verb"].split())
        return AutonomousMessage(identification["alarm"], identification["tag"], verb, lines, comments)
    completion = cast("Completion", identification["completion"])
    code = ""
    if completion == "DENY" and lines and _CODE.fullmatch(lines[0]):
        code, lines = lines[0], lines[1:]
    return Reply(identification["tag"], completion, code, lines, comments, has_more)


def _split_text(text_lines: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the text lines without quotes, and the comments without `/*` and `*/`."""
    lines: list[str] = []
    comments: list[str] = []
    for line in text_lines:
        tokens = list(_QUOTED_OR_COMMENT.finditer(line))
        comments += [" ".join(token[2].split()) for token in tokens if token[2] is not None]
        visible_text = _QUOTED_OR_COMMENT.sub(
            lambda token: token[0] if token[2] is None else "", line
        ).strip()
        quoted_tokens = [token for token in tokens if token[1] is not None]
        if len(quoted_tokens) == 1 and quoted_tokens[0][0] == visible_text:
            lines.append(re.sub(r"\\(.)", r"\1", quoted_tokens[0][1]))
        elif visible_text:
            lines.append(visible_text)
    return tuple(lines), tuple(comments)


def _make_desync(problem: str, received: str) -> ProtocolDesync:
    return ProtocolDesync(
        f"the reply is not TL1: {problem}",
        received=received if len(received) <= 200 else f"{received[:200]}...",
        hint="Check that the address is a raw TL1 port, not an interactive or SCPI one.",
    )
