"""Telnet as a device serves it (RFC 854): what is typed, without the protocol, and answers to the client's wishes.

The server says at once that it repeats what is typed and will speak at any time, and asks for the terminal's type
and size, as login servers do; it takes any answer.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from sim.twins.frontends.cli import CliFrontend
from sim.twins.wire.line import Line

IAC, DONT, DO, WONT, WILL, SB, SE = 255, 254, 253, 252, 251, 250, 240
ECHO, SUPPRESS_GO_AHEAD, TERMINAL_TYPE, WINDOW_SIZE = 1, 3, 24, 31

GREETING = bytes(
    [IAC, WILL, ECHO, IAC, WILL, SUPPRESS_GO_AHEAD, IAC, DO, TERMINAL_TYPE, IAC, DO, WINDOW_SIZE]
)

_PIECE = re.compile(
    rb"\xff(?:(?P<iac>\xff)|\xfa[^\xff]*(?:\xff[^\xf0][^\xff]*)*\xff\xf0|(?P<verb>[\xfb-\xfe])(?P<option>.)"
    rb"|[\x00-\xf9])|(?P<data>[^\xff]+)",
    re.DOTALL,
)
_LONGEST_PIECE = 4096


class TelnetLine:
    """A `Line` of a client that speaks telnet. `echo` is whether the device repeats what is typed."""

    def __init__(self, line: Line) -> None:
        self.echo = True
        self._line = line
        self._rest = b""

    def greet(self) -> None:
        """Say what we do and ask what the client is."""
        self._line.send(GREETING)

    async def read(self) -> bytes:
        """Return the bytes that were typed; empty at the end, and for a client that does not speak telnet."""
        while raw := await self._line.read():
            text, answer = self._parse(raw)
            if answer:
                self._line.send(answer)
            if text:
                return text
            if len(self._rest) > _LONGEST_PIECE:
                break
        return b""

    def send(self, data: bytes) -> None:
        """Show something at once; text in UTF-8 has no byte that telnet would take for its own."""
        self._line.send(data)

    async def respond(self, execute: Callable[[], Awaitable[bytes]], ending: bytes = b"") -> None:
        """Do one command, and show what it prints and then `ending`."""
        await self._line.respond(execute, ending)

    def _parse(self, raw: bytes) -> tuple[bytes, bytes]:
        text, answer, end = b"", b"", 0
        buffered = self._rest + raw
        while piece := _PIECE.match(buffered, end):
            end = piece.end()
            text += piece["data"] or piece["iac"] or b""
            if piece["verb"]:
                answer += self._answer(piece["verb"][0], piece["option"][0])
        self._rest = buffered[end:]
        return text, answer

    def _answer(self, verb: int, option: int) -> bytes:
        if option == ECHO and verb in {DO, DONT}:
            before, self.echo = self.echo, verb == DO
            return b"" if before == self.echo else bytes([IAC, WILL if self.echo else WONT, ECHO])
        if verb == DO and option != SUPPRESS_GO_AHEAD:
            return bytes([IAC, WONT, option])
        if verb == WILL and option not in {TERMINAL_TYPE, WINDOW_SIZE}:
            return bytes([IAC, DONT, option])
        return b""


def over_telnet(frontend: CliFrontend) -> Callable[[Line], Awaitable[None]]:
    """Return the session of a command line with clients that speak telnet, for `Frontend(wire="telnet")`."""

    async def serve(line: Line) -> None:
        telnet = TelnetLine(line)
        telnet.greet()
        await frontend.serve(telnet, lambda: telnet.echo and frontend.manner.echo)

    return serve
