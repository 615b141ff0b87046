"""Characters typed at a simulated command line, to lines and to what the device repeats of them."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

LONGEST_COMMAND = 1 << 16


class Keyboard:
    """Bytes as they are typed, to lines; gives what a device repeats of them as well."""

    def __init__(self) -> None:
        self._typed = ""
        self._after_return = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> Iterator[tuple[str, str | None]]:
        """Yield for each character what to repeat, and the line when it ends there."""
        for character in self._utf8.decode(data):
            after_return, self._after_return = self._after_return, character == "\r"
            if character in "\n\x00" and after_return:
                continue  # the second half of a line end, in telnet's way or in everybody's
            if character in "\r\n":
                typed, self._typed = self._typed, ""
                yield "\r\n", typed
            elif character in "\b\x7f":
                yield ("\b \b" if self._typed else ""), None
                self._typed = self._typed[:-1]
            elif character == "\x03":
                self._typed = ""
                yield "^C\r\n", ""
            elif character.isprintable() and len(self._typed) < LONGEST_COMMAND:
                self._typed += character
                yield character, None
