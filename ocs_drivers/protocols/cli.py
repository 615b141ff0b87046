"""Codec of an interactive command line with a prompt, without any I/O.

`Decoder` turns bytes into `Line`s and `Prompt`s, however the bytes were split. It acts like a terminal: escape
sequences (colours, window titles) are dropped, a backspace removes a character, and CR, LF or CRLF ends a line.
Empty lines are skipped. A prompt has no line end: it is complete as soon as the text since the last line end
matches. Text after a prompt on the same line starts a new line. Bytes that are not UTF-8 become U+FFFD.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from enum import Enum, auto

from ocs_drivers.errors import ProtocolDesync

MAX_LINE_LENGTH = 1 << 16
"""Maximum length of a line or an escape sequence, in characters. No device comes near this limit."""

MAX_PROMPT_LENGTH = 256
"""Maximum length of a prompt, in characters."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PLAIN_RUN = re.compile(rf"[^\x00-\x1f\x7f-\x9f]{{1,{MAX_PROMPT_LENGTH}}}")
_COLOUR = re.compile(r"\x1b\[[ -?]{0,32}[@-~]")
"""A complete control sequence; a partial or longer one is processed character by character."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, without its end and trailing blanks; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """The device waits for a command; `text` is the prompt that it shows."""

    text: str


CliEvent = Line | Prompt


def encode_command(command: str, line_end: bytes) -> bytes:
    r"""Return the bytes of a command line. Raise `ValueError` if it contains a control character.

    >>> encode_command("switchstate input 3", b"\r")
    b'switchstate input 3\r'
    >>> encode_command("show\rreboot", b"\r")
    Traceback (most recent call last):
    ...
    ValueError: '\r' cannot be sent inside a command
    """
    control = _UNPRINTABLE.search(command)
    if control:
        raise ValueError(f"{control.group()!r} cannot be sent inside a command")
    return command.encode() + line_end


class _Context(Enum):
    TEXT = auto()
    ESCAPE = auto()  # after ESC, with any intermediates
    CONTROL = auto()  # ESC [ ... up to a final character
    STRING = auto()  # a window title and the like, up to BEL or ESC \
    STRING_ESCAPE = auto()


class Decoder:
    """Incremental decoder of bytes to lines and prompts, in bounded memory.

    `prompt` is matched against the text since the last line end, after every character: the shortest text that
    matches is the prompt. The pattern must not look beyond its own end (no `$`, no look-ahead). Once `feed` has raised
    `ProtocolDesync`, every later call raises it again.
    """

    def __init__(self, prompt: re.Pattern[str]) -> None:
        self._prompt = prompt
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._context = _Context.TEXT
        self._line = ""
        self._skip_newline = False  # the LF of a CRLF
        self._skip_blanks = False  # the blanks after a prompt
        self._sequence_length = 0
        self._events: list[CliEvent] = []
        self._first_error: ProtocolDesync | None = None

    def feed(self, data: bytes) -> list[CliEvent]:
        """Return the lines and prompts that `data` completes. Raise `ProtocolDesync` for a line that is too long."""
        if self._first_error is None:
            try:
                self._decode_text(self._utf8.decode(data))
            except ProtocolDesync as desync:
                self._first_error = desync
        if self._first_error is not None:
            raise self._first_error
        tokens, self._events = self._events, []
        return tokens

    def _decode_text(self, text: str) -> None:
        """Decode runs of plain text and colours at once, and everything else character by character, for speed."""
        position = 0
        while position < len(text):
            position = self._decode_runs(text, position)
            if position < len(text):
                self._decode_character(text[position])
                position += 1

    def _decode_runs(self, text: str, position: int) -> int:
        """Decode runs of plain text and colours; return the position after them."""
        while self._context is _Context.TEXT:
            if run := _PLAIN_RUN.match(text, position):
                if not self._append_run(run[0]):
                    break
            elif not (run := _COLOUR.match(text, position)):
                break
            position = run.end()
        return position

    def _append_run(self, run: str) -> bool:
        """Append plain text to the line. Return False, without a change, if each character must be checked."""
        line = self._line + run
        if self._skip_blanks or len(line) > MAX_LINE_LENGTH or self._prompt.match(line, 0, MAX_PROMPT_LENGTH):
            return False
        self._line, self._skip_newline = line, False
        return True

    def _decode_character(self, character: str) -> None:
        if self._context is not _Context.TEXT:
            self._decode_escape_character(character)
        elif character == "\x1b":
            self._enter(_Context.ESCAPE)
        else:
            is_crlf_end, self._skip_newline = self._skip_newline and character == "\n", character == "\r"
            if not is_crlf_end:
                self._decode_plain_character(character)

    def _decode_plain_character(self, character: str) -> None:
        if character in "\r\n":
            self._end_line()
        elif character == "\b":
            self._line = self._line[:-1]
        elif character == "\t" or not _UNPRINTABLE.match(character):
            self._append(character)

    def _append(self, character: str) -> None:
        if self._skip_blanks and character.isspace():
            return
        self._skip_blanks = False
        self._line += character
        if len(self._line) <= MAX_PROMPT_LENGTH and self._prompt.fullmatch(self._line):
            self._events.append(Prompt(self._line))
            self._line = ""
            self._skip_blanks = True
        elif len(self._line) > MAX_LINE_LENGTH:
            raise _make_endless_error("a line", self._line)

    def _end_line(self) -> None:
        text, self._line = self._line.rstrip(), ""
        self._skip_blanks = False
        if text:
            self._events.append(Line(text))

    def _enter(self, context: _Context) -> None:
        self._context = context
        self._sequence_length = 0

    def _decode_escape_character(self, character: str) -> None:
        self._sequence_length += 1
        if self._sequence_length > MAX_LINE_LENGTH:
            raise _make_endless_error("an escape sequence", "")
        if self._context in {_Context.STRING, _Context.STRING_ESCAPE}:
            self._decode_string_character(character)
        elif character < " ":  # not part of any sequence: it was cut short
            self._context = _Context.TEXT
            self._decode_character(character)
        elif self._context is _Context.ESCAPE:
            self._start_sequence(character)
        elif "@" <= character <= "~":
            self._context = _Context.TEXT

    def _start_sequence(self, character: str) -> None:
        if character == "[":
            self._context = _Context.CONTROL
        elif character in "]PX^_":
            self._context = _Context.STRING
        elif not " " <= character <= "/":  # an intermediate character is followed by another
            self._context = _Context.TEXT

    def _decode_string_character(self, character: str) -> None:
        is_ended = character == "\x07" or (self._context is _Context.STRING_ESCAPE and character == "\\")
        if is_ended:
            self._context = _Context.TEXT
        else:
            self._context = _Context.STRING_ESCAPE if character == "\x1b" else _Context.STRING


def _make_endless_error(subject: str, received: str) -> ProtocolDesync:
    return ProtocolDesync(
        f"the device sent {subject} without end",
        received=received,
        hint="Check that the address is the command line of the device.",
    )
