"""Uvicorn with a door of its own: clients that are slow, or many, shut nobody else out.

A connection is unfinished until its request is whole. An unfinished one has a time limit; of one address there are only
so many; and where descriptors run short, the oldest of the address that has most makes room, then the connection that
has been idle longest. So a few descriptors are always free for whatever else the process does.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SWEEP_S = 0.5
GRACE_S = 0.1
"""So long a connection has before another takes its place: a request needs milliseconds."""
PAUSE_S = 0.02
FAILED_STARTUP = 3
"""Exit status of uvicorn."""
_AT_ONCE = 16
"""Connections that are accepted before other work has a turn."""
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Time and room that a client is given.

    `header_s` is for the TLS handshake and the headers together; a body has `body_s`, and a second more for every
    `body_rate` bytes that came; an answer that nobody takes for `answer_s` is given up. `of_address` are the unfinished
    connections of one address, `spare` the descriptors that connections leave free.
    """

    header_s: float = 10.0
    body_s: float = 20.0
    body_rate: float = 1000.0
    answer_s: float = 60.0
    of_address: int = 64
    spare: int = 64


class Guest:
    """A connection, from the moment that it is accepted."""

    def __init__(self, connection: socket.socket, address: str, now_s: float) -> None:
        self.connection, self.address = connection, address
        self.since_s = now_s
        self.body_bytes: int | None = None
        """Bytes of the body so far; None while headers are awaited."""
        self.has_spoken = False
        self.protocol: Connection | None = None
        """None during the handshake."""
        self.welcome: asyncio.Task[None] | None = None
        self.stalled_since_s: float | None = None
        """Time since which the answer is not taken."""

    def is_too_slow(self, now_s: float, limits: Limits) -> bool:
        """Return whether an unfinished request took too long; where we do not read, the client is not to blame."""
        if self.body_bytes is None:
            return now_s > self.since_s + limits.header_s
        if self.protocol is not None and self.protocol.is_held_up:
            self.since_s = now_s
        return now_s > self.since_s + limits.body_s + self.body_bytes / limits.body_rate

    def send_away(self, answer: bytes = b"") -> None:
        """End the connection, with an answer if there is still one to give."""
        if self.protocol is not None:
            self.protocol.end(answer)
        elif self.welcome is not None:
            self.welcome.cancel()


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol, which tells the door how far a request is."""

    def __init__(self, door: Door, guest: Guest, **given: Any) -> None:
        super().__init__(**given)
        self._door, self._guest = door, guest

    @property
    def _request(self) -> RequestResponseCycle | None:
        """The request of which headers came last; uvicorn's own type does not say that there may be none."""
        return self.cycle

    @property
    def is_held_up(self) -> bool:
        """True if we do not read what the client may have sent."""
        return self.flow.read_paused or (self._request is not None and self._request.waiting_for_100_continue)

    def end(self, answer: bytes) -> None:
        """Close the connection; what waits for its request is told that the client has gone."""
        if self.transport.is_closing():
            return
        request, has_begun = self._request, False
        if request is not None and not request.response_complete:
            has_begun = request.response_started
            request.disconnected = True
            request.message_event.set()
        if self._guest.stalled_since_s is not None or self.scheme == "https":
            self.transport.abort()  # closing would wait until the client has taken what it is given
            return
        if answer and not has_begun:
            self.transport.write(answer)
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, after the handshake."""
        super().connection_made(transport)
        self._guest.protocol = self

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._door.forget(self._guest)

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        self._guest.has_spoken = True
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Await headers."""
        super().on_message_begin()
        self._door.await_request(self._guest)

    def on_headers_complete(self) -> None:
        """Await the body."""
        super().on_headers_complete()
        self._guest.since_s, self._guest.body_bytes = self._door.now_s(), 0

    def on_body(self, body: bytes) -> None:
        """Count the body."""
        super().on_body(body)
        if self._guest.body_bytes is not None:
            self._guest.body_bytes += len(body)

    def on_message_complete(self) -> None:
        """Take the request for whole."""
        super().on_message_complete()
        self._door.finish_request(self._guest)
        if self.cycle.response_complete:  # refused before its body had come
            self._door.rest(self._guest)

    def on_response_complete(self) -> None:
        """Begin to be idle, if nothing else was asked."""
        super().on_response_complete()
        if not self.pipeline and not self.transport.is_closing():
            self._door.rest(self._guest)

    def pause_writing(self) -> None:
        """Note since when the answer is not taken."""
        super().pause_writing()
        self._guest.stalled_since_s = self._door.now_s()

    def resume_writing(self) -> None:
        """Note that the answer is taken."""
        super().resume_writing()
        self._guest.stalled_since_s = None


class Door:
    """Accepts connections: never more than there are descriptors for, of no address too many that are unfinished."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        make: Callable[[Door, Guest], Connection],
        limits: Limits,
        tls: ssl.SSLContext | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listeners, self._make, self._limits, self._tls, self.now_s = listeners, make, limits, tls, now_s
        self._most = max(
            16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _count_descriptors() - limits.spare
        )
        self._guests: set[Guest] = set()
        self._unfinished: dict[str, dict[Guest, None]] = {}
        """By address, the oldest first."""
        self._idle: dict[Guest, None] = {}
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        for listener in listeners:
            listener.setblocking(False)
            self._loop.add_reader(listener, self._accept, listener)
        self._sweeping = self._loop.create_task(self._sweep())

    # -- as uvicorn ends its servers

    def close(self) -> None:
        """Accept nobody any more."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
        for pause in self._pauses.values():
            pause.cancel()
        self._sweeping.cancel()
        for guest in list(self._guests):
            if guest.protocol is None:
                guest.send_away()

    async def wait_closed(self) -> None:
        """Wait for handshakes and the clock to end."""
        welcomes = [guest.welcome for guest in self._guests if guest.welcome]
        await asyncio.gather(self._sweeping, *welcomes, return_exceptions=True)

    # -- what connections tell

    def await_request(self, guest: Guest) -> None:
        """Give a guest time for a request, from now on."""
        self._idle.pop(guest, None)
        unfinished = self._unfinished.setdefault(guest.address, {})
        if guest not in unfinished:  # the first request has the time since the connection was accepted
            unfinished[guest] = None
            guest.since_s = self.now_s()
        guest.body_bytes = None

    def finish_request(self, guest: Guest) -> None:
        """Note that a request is whole."""
        unfinished = self._unfinished.get(guest.address, {})
        unfinished.pop(guest, None)
        if not unfinished:
            self._unfinished.pop(guest.address, None)

    def rest(self, guest: Guest) -> None:
        """Note that a connection has nothing to do."""
        if guest not in self._unfinished.get(guest.address, {}):
            self._idle[guest] = None

    def forget(self, guest: Guest) -> None:
        """Note that a connection has ended."""
        self._guests.discard(guest)
        self._idle.pop(guest, None)
        self.finish_request(guest)

    # -- arrivals

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            leaver = self._next_to_leave() if len(self._guests) >= self._most else None
            if leaver is not None and leaver not in self._idle and self._is_new(leaver):
                self._pause(
                    listener
                )  # so that whoever is here can say what he wants; the kernel keeps the others
                return
            try:
                connection, place = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor after all: others of this process took them
                log.warning("a connection could not be accepted: %s", error)
                self._pause(listener)
                return
            if leaver is not None:
                self._send_away(leaver, _FULL)
            self._admit(connection, str(place[0]))

    def _pause(self, listener: socket.socket) -> None:
        """Accept nobody for a moment."""
        self._loop.remove_reader(listener)
        self._pauses[listener] = self._loop.call_later(
            PAUSE_S, self._loop.add_reader, listener, self._accept, listener
        )

    def _is_new(self, guest: Guest) -> bool:
        return self.now_s() <= guest.since_s + GRACE_S

    def _next_to_leave(self) -> Guest | None:
        """Return who makes room for others, None if all are being answered."""
        fullest: dict[Guest, None] = max(self._unfinished.values(), key=len, default={})
        return next(iter(fullest), None) or next(iter(self._idle), None)

    def _admit(self, connection: socket.socket, address: str) -> None:
        connection.setblocking(False)
        oldest = next(iter(self._unfinished.get(address, {})), None)
        if oldest and len(self._unfinished[address]) >= self._limits.of_address and not self._is_new(oldest):
            self._send_away(oldest, _FULL)
        if len(self._guests) >= self._most:
            if self._tls is None:
                _try_to_send(connection, _FULL)
            connection.close()
            return
        guest = Guest(connection, address, self.now_s())
        self._guests.add(guest)
        self._unfinished.setdefault(address, {})[guest] = None
        guest.welcome = self._loop.create_task(self._welcome(guest))

    async def _welcome(self, guest: Guest) -> None:
        """Make a protocol for a connection, after the handshake."""
        handshake_s = self._limits.header_s if self._tls else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(self, guest),
                guest.connection,
                ssl=self._tls,
                ssl_handshake_timeout=handshake_s,
            )
        except (
            OSError,
            asyncio.CancelledError,
        ):  # no TLS, or nobody any more: the transport has closed the socket
            self.forget(guest)
        finally:
            guest.welcome = None

    def _send_away(self, guest: Guest, answer: bytes) -> None:
        guest.send_away(answer if guest.has_spoken and guest not in self._idle else b"")
        self.forget(guest)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep()

    def sweep(self) -> None:
        """Send away who took too long."""
        now_s = self.now_s()
        slow = [
            guest
            for unfinished in self._unfinished.values()
            for guest in unfinished
            if guest.is_too_slow(now_s, self._limits)
        ]
        for guest in slow:
            self._send_away(guest, _TOO_SLOW)
        for guest in [guest for guest in self._guests if guest.stalled_since_s is not None]:
            if now_s > cast(float, guest.stalled_since_s) + self._limits.answer_s:
                self._send_away(guest, b"")


def _count_descriptors() -> int:
    try:
        return len(list(Path("/dev/fd").iterdir()))
    except OSError:
        return 32


def _try_to_send(connection: socket.socket, answer: bytes) -> None:
    try:
        connection.send(answer)
    except OSError:
        return


class Server(uvicorn.Server):
    """Uvicorn's server behind a door. `ready` is called when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], limits: Limits = Limits()) -> None:
        super().__init__(config)
        self._ready, self._limits = ready, limits

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections at listening sockets, and say so."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise SystemExit(FAILED_STARTUP)

        def make(door: Door, guest: Guest) -> Connection:
            return Connection(
                door, guest, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        door = Door(sockets or [], make, self._limits, self.config.ssl)
        self.servers = [cast(asyncio.base_events.Server, door)]
        self.started = True
        self._ready()


class HeadToo:
    """ASGI application that answers HEAD as another answers GET, without the body."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        begun = asyncio.Event()

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                begun.set()
            await asyncio.Event().wait()  # the answer may be an endless stream: it is cancelled

        asking = asyncio.ensure_future(self._app({**scope, "method": "GET"}, receive, send_head))
        told = asyncio.ensure_future(begun.wait())
        try:
            await asyncio.wait({asking, told}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                await asking  # raises what went wrong
        finally:
            told.cancel()
            asking.cancel()
