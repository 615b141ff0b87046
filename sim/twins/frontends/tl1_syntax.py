"""The grammar of TL1 seen from the network element: bytes to commands.

Sans I/O; `tl1_frames` is the way back. Input is `VERB:[tid]:[aid]:ctag:[general]:[positional]:[keyword];`, where
`;` and `:` inside quotes count as text. Sources: Telcordia GR-831 (frames), GR-833 (codes), the frames of
`RTRV-PATCH` captures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_COMMAND_CHARACTERS = 1 << 16

_FIELDS = 7


class Denied(Exception):
    """A command is refused; `code` is the four-letter code, the text goes out as a comment."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Command:
    """One command. Quotes around values are gone; `keywords` have upper-case names."""

    verb: str
    tid: str
    aid: str
    ctag: str
    positional: tuple[str, ...]
    keywords: Mapping[str, str]

    def keyword(self, name: str) -> str:
        """Return a keyword that must be there. Raises `Denied` (IPMS)."""
        if name not in self.keywords:
            raise Denied("IPMS", f"{name} is missing")
        return self.keywords[name]


class CommandReader:
    """Cuts a stream of bytes into commands, however it was split on its way."""

    def __init__(self) -> None:
        self._text = ""
        self._quoted = False

    def feed(self, data: bytes) -> list[str]:
        """Return the commands that `data` completes, without terminator and surrounding white space."""
        commands = []
        for character in data.decode("latin-1"):
            if character == '"':
                self._quoted = not self._quoted
            if character == ";" and not self._quoted:
                commands.append(self._text.strip())
                self._text = ""
            elif len(self._text) < MAX_COMMAND_CHARACTERS:
                self._text += character
        return [command for command in commands if command]


def parse(text: str) -> Command:
    """Return the command that `text` (without `;`) says.

    >>> command = parse('ENT-PATCH:"ocs1":1&2,17&18:7:')
    >>> command.verb, command.tid, command.aid, command.ctag
    ('ENT-PATCH', 'ocs1', '1&2,17&18', '7')

    A missing ctag is read as 0. Never fails: what is too much is kept in the last block, where nobody
    knows it.
    """
    fields = [field.strip() for field in split_outside_quotes(text, ":")]
    fields += [""] * (_FIELDS - len(fields))
    keywords = (part.partition("=") for part in split_outside_quotes(":".join(fields[6:]), ",") if part)
    return Command(
        verb=fields[0].upper(),
        tid=unquoted(fields[1]),
        aid=fields[2],
        ctag=fields[3] or "0",
        positional=tuple(unquoted(part.strip()) for part in split_outside_quotes(fields[5], ",")),
        keywords={name.strip().upper(): unquoted(value.strip()) for name, _, value in keywords},
    )


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Split at separators that stand outside double quotes.

    >>> split_outside_quotes('LABEL="a,b",X=1', ",")
    ['LABEL="a,b"', 'X=1']
    """
    parts, quoted = [""], False
    for character in text:
        quoted ^= character == '"'
        if character == separator and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def unquoted(text: str) -> str:
    """Return the text without the double quotes around it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
