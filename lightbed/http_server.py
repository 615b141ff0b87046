"""Uvicorn with limits per client, so that slow or numerous clients do not keep others out.

A connection is `WAITING` until a request is complete, then `ANSWERING`, then `IDLE`. Waiting, idling and answers that
the client does not read have time limits. The number of waiting connections per address is limited. If connections run
short, the address with the most connections loses a connection: an idle connection, or else the connection that has
waited longest. Some descriptors always stay free for other parts of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv6Address, IPv6Network
from itertools import islice
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

SWEEP_INTERVAL_S = 0.5
MIN_LIFETIME_S = 0.1
"""Minimum lifetime of a connection before another may replace it; a request needs only milliseconds."""
ACCEPT_PAUSE_S = 0.02
CLOSE_TIMEOUT_S = 5.0
"""Time for a client to read the last bytes of a connection that is being closed."""
MAX_CONNECTIONS = 10_000
FAILED_STARTUP_CODE = 3
"""Exit status of uvicorn if its startup fails."""
_MAX_ACCEPTS_PER_CALL = 16
"""Connections accepted in one call of the event loop, so that other work gets its turn."""
_PROGRESS_BYTES = 16 << 10
_TIMEOUT_ANSWER = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)
_SHORTAGE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for clients.

    The TLS handshake and the headers must arrive within `header_s`; a body within `body_s`, plus one second for each
    `body_bytes_per_s` bytes received. An answer is aborted if the client reads nothing of it for `answer_s`. Up to
    `connections_per_address` connections of one address may be waiting; `spare_descriptors` descriptors stay free.
    """

    header_s: float = 10.0
    body_s: float = 20.0
    body_bytes_per_s: float = 1000.0
    answer_s: float = 60.0
    connections_per_address: int = 64
    spare_descriptors: int = 64


class State(Enum):
    """State of a connection."""

    WAITING = auto()
    ANSWERING = auto()
    IDLE = auto()


class Client:
    """The acceptor's record of a connection, from its acceptance on."""

    def __init__(self, accepted_socket: socket.socket, address: str, now_s: float) -> None:
        self.connection, self.address = accepted_socket, address
        self.state, self.since_s = State.WAITING, now_s
        self.protocol: Connection | None = None
        """None during the handshake."""
        self.handshake: asyncio.Task[None] | None = None
        self.body_bytes: int | None = None
        """Bytes of the body received so far; None before the headers are complete."""
        self.unsent_bytes, self.unsent_since_s = 0, now_s
        """Unsent bytes of the answer when the client last read enough of it, and the time of that read."""

    def compute_deadline_s(self, limits: Limits) -> float:
        """Return the time by which the request must be complete."""
        if self.body_bytes is None:
            return self.since_s + limits.header_s
        return self.since_s + limits.body_s + self.body_bytes / limits.body_bytes_per_s


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol, which reports the state of its requests to the acceptor."""

    def __init__(self, acceptor: Acceptor, client: Client, **options: Any) -> None:
        super().__init__(**options)
        self._acceptor, self._client = acceptor, client
        self._begun_count = self._answered_count = 0
        """Numbers of requests whose headers have arrived, and of requests that have been answered."""
        self._is_partial = self._is_in_body = False
        """True if part of a request has arrived; true if its headers are complete, but its body is not."""

    @property
    def _request(self) -> RequestResponseCycle | None:
        """The newest request. It may be None, which uvicorn's type omits."""
        return self.cycle

    @property
    def is_held_up(self) -> bool:
        """True if this side is not reading, so the client is not to blame for a delay."""
        return self.flow.read_paused or (self._request is not None and self._request.waiting_for_100_continue)

    def close(self, answer: bytes = b"") -> None:
        """Close the connection. Send `answer` first, unless another answer has begun or the send would wait."""
        is_busy = self.transport.is_closing() or self.transport.get_write_buffer_size() > 0
        if is_busy or (
            answer is _FULL_ANSWER and self.scheme == "https"
        ):  # ending TLS would wait for the client
            self.transport.abort()
            return
        is_waiting = self._client.state is State.WAITING
        request = self._request if self._is_in_body else None
        if request is not None and not request.response_complete:
            request.disconnected = True  # tells the reader of the body that no more will come
            request.message_event.set()
        if answer and is_waiting and self._is_partial and not (request and request.response_started):
            self.transport.write(answer)
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the protocol, after the handshake."""
        super().connection_made(transport)
        self._client.protocol = self

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._acceptor.forget(self._client)

    def on_message_begin(self) -> None:
        """Wait for headers."""
        super().on_message_begin()
        self._is_partial, self._is_in_body = True, False
        self._client.body_bytes = None
        self._update()

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        super().on_headers_complete()
        self._begun_count += 1
        self._is_in_body = True
        self._client.since_s, self._client.body_bytes = self._acceptor.now_s(), 0

    def on_body(self, body: bytes) -> None:
        """Count the body."""
        super().on_body(body)
        self._client.body_bytes = (self._client.body_bytes or 0) + len(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        super().on_message_complete()
        self._is_partial = self._is_in_body = False
        self._update()

    def on_response_complete(self) -> None:
        """Note that a request is answered."""
        super().on_response_complete()
        self._answered_count += 1
        self._update()

    def resume_writing(self) -> None:
        """Note that the client reads the answer."""
        super().resume_writing()
        self._client.unsent_since_s = self._acceptor.now_s()

    def _update(self) -> None:
        """Report the state to the acceptor. A request has no time limit while an earlier one is being answered."""
        pending_count = self._begun_count - self._answered_count - self._is_in_body
        state = State.ANSWERING if pending_count > 0 else State.WAITING if self._is_partial else State.IDLE
        self._acceptor.set_state(self._client, state)


class Acceptor:
    """Accepts connections, within the limits of descriptors and of waiting connections per address."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        make_connection: Callable[[Acceptor, Client], Connection],
        config: uvicorn.Config,
        limits: Limits,
        get_time_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listeners, self._make_connection, self._config, self._limits = (
            listeners,
            make_connection,
            config,
            limits,
        )
        self.now_s = get_time_s
        available_count = (
            resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _count_descriptors() - limits.spare_descriptors
        )
        self._max_connections = min(MAX_CONNECTIONS, max(16, available_count))
        self._clients: dict[str, dict[State, dict[Client, None]]] = {}
        """Connections by address and state, the oldest first."""
        self._connection_count = 0
        self._closing: set[Client] = set()
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        self._shortage_log_s = -1e9
        for listener in listeners:
            listener.setblocking(False)
            listener.listen(config.backlog)
            self._loop.add_reader(listener, self._accept, listener)
        self._sweep_task = self._loop.create_task(self._sweep_periodically())

    # -- interface of asyncio servers, which uvicorn calls

    def close(self) -> None:
        """Stop accepting connections."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
        for timer in self._pauses.values():
            timer.cancel()
        self._sweep_task.cancel()
        for client in self._list_clients():
            if client.handshake:
                client.handshake.cancel()

    async def wait_closed(self) -> None:
        """Wait for the handshakes to end."""
        handshakes = [client.handshake for client in self._list_clients() if client.handshake]
        await asyncio.gather(self._sweep_task, *handshakes, return_exceptions=True)

    # -- states

    def set_state(self, client: Client, state: State) -> None:
        """Set the state of a connection, which becomes the newest connection in this state."""
        clients_by_state = self._clients.get(client.address)
        if clients_by_state is None or client not in clients_by_state[client.state] or client.state is state:
            return  # it has been closed, or is in this state already
        del clients_by_state[client.state][client]
        clients_by_state[state][client] = None
        client.state, client.since_s = state, self.now_s()

    def forget(self, client: Client) -> None:
        """Forget a connection that is closed."""
        self._closing.discard(client)
        clients_by_state = self._clients.get(client.address)
        if clients_by_state is None or client not in clients_by_state[client.state]:
            return
        del clients_by_state[client.state][client]
        self._connection_count -= 1
        if not any(clients_by_state.values()):
            del self._clients[client.address]

    def _list_clients(self) -> list[Client]:
        return [
            client
            for clients_by_state in self._clients.values()
            for clients in clients_by_state.values()
            for client in clients
        ]

    # -- arrivals

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_MAX_ACCEPTS_PER_CALL):
            evicted_client = (
                self._choose_eviction() if self._connection_count >= self._max_connections else None
            )
            if evicted_client is not None and self._is_new(evicted_client):
                # Existing clients get time to send a request; the kernel queues the new ones.
                self._pause(listener)
                return
            try:
                accepted_socket, peer = listener.accept()
            except OSError as error:
                if error.errno in _SHORTAGE_ERRORS:
                    self._log_shortage(error)
                    evicted_client = self._choose_eviction()
                    if evicted_client is not None and not self._is_new(evicted_client):
                        self._evict(evicted_client, _FULL_ANSWER)
                    self._pause(listener)
                return
            if evicted_client is not None:
                self._evict(evicted_client, _FULL_ANSWER)
            self._admit(accepted_socket, _group_address(str(peer[0])))

    def _pause(self, listener: socket.socket) -> None:
        """Pause accepting for `ACCEPT_PAUSE_S`."""
        self._loop.remove_reader(listener)
        self._pauses[listener] = self._loop.call_later(
            ACCEPT_PAUSE_S, self._loop.add_reader, listener, self._accept, listener
        )

    def _log_shortage(self, error: OSError) -> None:
        if self.now_s() > self._shortage_log_s + 60:
            self._shortage_log_s = self.now_s()
            log.warning("cannot accept connections: %s", error)

    def _is_new(self, client: Client) -> bool:
        return client.state is State.WAITING and self.now_s() <= client.since_s + MIN_LIFETIME_S

    def _choose_eviction(self) -> Client | None:
        """Return the client to evict next, of the address with most connections, or None if all are being answered."""
        connection_counts = {
            address: sum(map(len, clients_by_state.values()))
            for address, clients_by_state in self._clients.items()
        }
        for address in (
            sorted(connection_counts, key=lambda candidate: -connection_counts[candidate])
            if len(connection_counts) > 1
            else connection_counts
        ):
            clients_by_state = self._clients[address]
            evicted_client = next(iter(clients_by_state[State.IDLE]), None) or next(
                iter(clients_by_state[State.WAITING]), None
            )
            if evicted_client is not None:
                return evicted_client
        return None

    def _admit(self, accepted_socket: socket.socket, address: str) -> None:
        accepted_socket.setblocking(False)
        if address in self._clients:
            self._enforce_address_limit(self._clients[address][State.WAITING])
        clients_by_state = self._clients.get(address, {state: {} for state in State})
        if (
            self._connection_count >= self._max_connections
            or len(clients_by_state[State.ANSWERING]) >= self._max_connections * 3 // 4
        ):
            if self._config.ssl is None:
                with contextlib.suppress(OSError):
                    accepted_socket.send(_FULL_ANSWER)
            accepted_socket.close()
            return
        client = Client(accepted_socket, address, self.now_s())
        self._clients[address] = clients_by_state
        clients_by_state[State.WAITING][client] = None
        self._connection_count += 1
        client.handshake = self._loop.create_task(self._shake_hands(client))

    def _enforce_address_limit(self, waiting_clients: Mapping[Client, None]) -> None:
        """Evict the oldest waiting connections of one address if they exceed the limit."""
        excess_count = len(waiting_clients) - self._limits.connections_per_address + 1
        for client in list(islice(waiting_clients, max(excess_count, 0))):
            if not self._is_new(client):
                self._evict(client, _FULL_ANSWER)

    async def _shake_hands(self, client: Client) -> None:
        """Create the protocol of a connection, after the TLS handshake if there is one."""
        tls = self._config.ssl
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make_connection(self, client),
                client.connection,
                ssl=tls,
                ssl_handshake_timeout=self._limits.header_s if tls else None,
            )
        except (OSError, asyncio.CancelledError):  # the transport has closed the socket
            self.forget(client)
        finally:
            client.handshake = None

    def _evict(self, client: Client, answer: bytes = b"") -> None:
        """Close a connection, and no longer count it. It has `CLOSE_TIMEOUT_S` to end."""
        self.forget(client)
        client.unsent_since_s = self.now_s()
        self._closing.add(client)
        if client.protocol is not None:
            client.protocol.close(answer)
        elif client.handshake is not None:
            client.handshake.cancel()

    # -- time limits

    async def _sweep_periodically(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            self.sweep()

    def sweep(self) -> None:
        """Close connections that exceed a time limit."""
        now_s = self.now_s()
        for clients_by_state in list(self._clients.values()):
            self._enforce_address_limit(clients_by_state[State.WAITING])
            for client in list(clients_by_state[State.WAITING]):
                if client.body_bytes is not None and client.protocol and client.protocol.is_held_up:
                    client.since_s = now_s  # the delay is on this side
                elif now_s > client.compute_deadline_s(self._limits):
                    self._evict(client, _TIMEOUT_ANSWER)
            for client in list(clients_by_state[State.IDLE]):
                if now_s > client.since_s + self._config.timeout_keep_alive + SWEEP_INTERVAL_S:
                    self._evict(client)
        for client in [*self._list_clients(), *self._closing]:
            self._abort_stalled_answer(client, now_s)

    def _abort_stalled_answer(self, client: Client, now_s: float) -> None:
        """Abort a connection whose client has stopped reading."""
        if client.protocol is None:
            return
        transport = client.protocol.transport
        unsent_bytes = transport.get_write_buffer_size()
        if (
            not unsent_bytes
            or unsent_bytes <= client.unsent_bytes - _PROGRESS_BYTES
            or not client.unsent_bytes
        ):
            client.unsent_bytes, client.unsent_since_s = unsent_bytes, now_s
        limit_s = CLOSE_TIMEOUT_S if transport.is_closing() else self._limits.answer_s
        if (unsent_bytes or transport.is_closing()) and now_s > client.unsent_since_s + limit_s:
            transport.abort()


def _count_descriptors() -> int:
    try:
        return len(list(Path("/dev/fd").iterdir()))
    except OSError:
        return 32


def _group_address(text: str) -> str:
    """Return the unit that limits apply to: an IPv4 address, or an IPv6 /64 network, which may belong to one client.

    >>> _group_address("2001:db8::1:2:3:4"), _group_address("::ffff:10.0.0.1"), _group_address("10.0.0.1")
    ('2001:db8::/64', '10.0.0.1', '10.0.0.1')
    """
    if ":" not in text:
        return text
    address = IPv6Address(text.partition("%")[0])
    return str(address.ipv4_mapped or IPv6Network((address, 64), strict=False))


class Server(uvicorn.Server):
    """Uvicorn's server with limits per client. It calls `report_ready` once it listens."""

    def __init__(
        self, config: uvicorn.Config, report_ready: Callable[[], None], limits: Limits = Limits()
    ) -> None:
        super().__init__(config)
        self._ready, self._limits = report_ready, limits

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start accepting connections at these sockets, then call `report_ready`."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise SystemExit(FAILED_STARTUP_CODE)

        def make_connection(acceptor: Acceptor, client: Client) -> Connection:
            return Connection(
                acceptor,
                client,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )

        acceptor = Acceptor(sockets or [], make_connection, self.config, self._limits)
        self.servers = [cast(asyncio.base_events.Server, acceptor)]
        self.started = True
        self._ready()


class HeadAsGet:
    """ASGI application that answers HEAD with the answer of `app` to GET, without the body."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, HEAD as GET."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_streaming = asyncio.Event()

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif message.get("more_body"):  # the body may be endless, so the application is cancelled
                is_streaming.set()
                await asyncio.Event().wait()

        answer_task = asyncio.ensure_future(self._app({**scope, "method": "GET"}, receive, send_head))
        streaming_task = asyncio.ensure_future(is_streaming.wait())
        try:
            await asyncio.wait({answer_task, streaming_task}, return_when=asyncio.FIRST_COMPLETED)
            if answer_task.done():
                await answer_task  # raises an error of the application
        finally:
            answer_task.cancel()
            streaming_task.cancel()
            await asyncio.gather(answer_task, streaming_task, return_exceptions=True)
