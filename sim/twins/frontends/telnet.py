"""Server side of telnet (RFC 854). It removes protocol bytes from the input, and answers option requests.

Like a login server, this side first offers to echo and to suppress go-ahead, and asks for terminal type and window
size. It accepts any answer.
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

_PIECE_PATTERN = re.compile(
    rb"\xff(?:(?P<iac>\xff)|\xfa[^\xff]*(?:\xff[^\xf0][^\xff]*)*\xff\xf0|(?P<verb>[\xfb-\xfe])(?P<option>.)"
    rb"|[\x00-\xf9])|(?P<data>[^\xff]+)",
    re.DOTALL,
)
_MAX_PIECE_BYTES = 4096


class TelnetLine:
    """A `Line` to a telnet client. `echoes_input` is True if the device echoes the input."""

    def __init__(self, client: Line) -> None:
        self.echoes_input = True
        self._line = client
        self._unparsed_bytes = b""

    def send_option_requests(self) -> None:
        """Send the initial option requests."""
        self._line.send(GREETING)

    async def read(self) -> bytes:
        """Return the next bytes that the client typed.

        Return empty bytes if the client has disconnected, or has sent a telnet command that is too long.
        """
        while received_bytes := await self._line.read():
            data, answer = self._parse_input(received_bytes)
            if answer:
                self._line.send(answer)
            if data:
                return data
            if len(self._unparsed_bytes) > _MAX_PIECE_BYTES:
                break
        return b""

    def send(self, data: bytes) -> None:
        """Send bytes to the client at once."""
        self._line.send(data)  # needs no escapes, because UTF-8 text never contains the byte 0xFF (IAC)

    async def respond(self, execute: Callable[[], Awaitable[bytes]], line_end: bytes = b"") -> None:
        """Execute one command, and send its output followed by `line_end`."""
        await self._line.respond(execute, line_end)

    def _parse_input(self, received_bytes: bytes) -> tuple[bytes, bytes]:
        data, answer, end = b"", b"", 0
        unparsed_bytes = self._unparsed_bytes + received_bytes
        while piece := _PIECE_PATTERN.match(unparsed_bytes, end):
            end = piece.end()
            data += piece["data"] or piece["iac"] or b""
            if piece["verb"]:
                answer += self._answer_option(piece["verb"][0], piece["option"][0])
        self._unparsed_bytes = unparsed_bytes[end:]
        return data, answer

    def _answer_option(self, verb: int, option: int) -> bytes:
        # Acknowledge only a change of the echo. Otherwise both ends could answer each other forever (RFC 854).
        if option == ECHO and verb in {DO, DONT}:
            previous_echo, self.echoes_input = self.echoes_input, verb == DO
            return (
                b""
                if previous_echo == self.echoes_input
                else bytes([IAC, WILL if self.echoes_input else WONT, ECHO])
            )
        if verb == DO and option != SUPPRESS_GO_AHEAD:
            return bytes([IAC, WONT, option])
        if verb == WILL and option not in {TERMINAL_TYPE, WINDOW_SIZE}:
            return bytes([IAC, DONT, option])
        return b""


def make_telnet_server(frontend: CliFrontend) -> Callable[[Line], Awaitable[None]]:
    """Return a function that serves a command line to one telnet client. Pass this function to `Frontend.serve`."""

    async def serve(client: Line) -> None:
        telnet = TelnetLine(client)
        telnet.send_option_requests()
        await frontend.serve(telnet, lambda: telnet.echoes_input and frontend.style.echoes_input)

    return serve
